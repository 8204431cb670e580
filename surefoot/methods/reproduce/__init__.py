"""``surefoot reproduce``: the claims of the papers behind the presets, as experiments that a laptop can run.

``claim`` says what a claim is and judges what was measured, ``store`` runs and keeps it, ``table`` shows it, ``catalogue``
lists them all. The other modules measure: ``tabular`` on policies small enough for exact gradients, ``rollouts`` on one batch of
the embedded model, ``arms`` on training runs that the claims share; each family of claims has a module of its own.
"""
