"""Plain warnings about a run that is going wrong, each given once."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.training.config import HealthConfig
from surefoot.training.state import RunState


def check(metrics: Mapping[str, float], state: RunState, config: HealthConfig) -> list[tuple[str, str]]:
    """(name, text) of the warnings that these metrics give rise to and that were not given before.

    ``state`` remembers what was said, and the first entropy, against which a collapse is measured.
    """
    found: list[tuple[str, str]] = []
    truncated = metrics.get("length/truncated", 0.0)
    if truncated > config.truncated_above:
        found.append(
            (
                "truncated",
                f"{truncated:.0%} of the completions were cut by the budget before they ended, so they cannot earn a reward "
                "for their answer: raise rollout.max_new_tokens, or check that the model emits a stop token",
            )
        )
    entropy = metrics.get("rollout/entropy")
    if entropy is not None:
        if state.first_entropy is None:
            state.first_entropy = entropy
        elif entropy < config.entropy_below * state.first_entropy:
            found.append(
                (
                    "entropy",
                    f"the entropy fell to {entropy:.3g} nats per token from {state.first_entropy:.3g}: samples of a prompt are "
                    "nearly the same and carry little signal: lower optimiser.lr, or raise algorithm.trust.high",
                )
            )
    mismatch = metrics.get("policy/mismatch", 0.0)
    if mismatch > config.mismatch_above:
        found.append(
            (
                "mismatch",
                f"engine and trainer differ by {mismatch:.2g} nats per token on the same weights: the importance ratios are "
                "wrong by that much; run `surefoot doctor` with this configuration",
            )
        )
    if metrics.get("groups/no_signal", 0.0) == 1.0:
        found.append(
            (
                "no_signal",
                "every prompt's samples earned equal rewards, so there was nothing to learn from: the task is too hard or too "
                "easy for this model, or the verifier does not tell answers apart",
            )
        )
    if metrics.get("reward/ungraded", 0.0) > 0:
        found.append(
            (
                "ungraded",
                f"{metrics['reward/ungraded']:.0%} of the completions could not be graded (see the status in samples/): "
                "they were left out of the baselines and the loss",
            )
        )
    new = [(name, text) for name, text in found if name not in state.warned]
    state.warned += [name for name, _ in new]
    return new
