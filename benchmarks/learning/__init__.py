"""Does every preset learn? One command trains the embedded model with each of them and keeps the table in the docs.

    python -m benchmarks.learning --out runs/learning --page docs/learning.md

``settings`` says what is run, ``runs`` runs what is not done yet, ``page`` writes the table.
"""
