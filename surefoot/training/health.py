"""Plain warnings about a run that is going wrong, each given once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from surefoot.algorithms.algorithm import Algorithm
from surefoot.training.config import HealthConfig, RunConfig
from surefoot.training.state import RunState

Found = Iterator[tuple[str, str]]
ENDS = 5
"""Steps at each end of a run whose mean reward is compared, at most a third of them."""


def check(
    metrics: Mapping[str, float], state: RunState, config: RunConfig, algorithm: Algorithm
) -> list[tuple[str, str]]:
    """(name, text) of the warnings that these metrics give rise to and that were not given before.

    ``state`` remembers what was said, and the first entropy, against which a collapse is measured.
    """
    found = [
        *_samples(metrics, state, config.health),
        *_groups(metrics, state, config, algorithm),
    ]
    new = [(name, text) for name, text in found if name not in state.warned]
    state.warned += [name for name, _ in new]
    return new


def _samples(metrics: Mapping[str, float], state: RunState, config: HealthConfig) -> Found:
    truncated = metrics.get("length/truncated", 0.0)
    if truncated > config.truncated_above:
        yield (
            "truncated",
            f"{100 * truncated:.0f} % of the completions were cut by rollout.max_new_tokens before they ended, so they cannot "
            "earn a reward for their answer: raise it, or check that the model emits a stop token",
        )
    entropy = metrics.get("rollout/entropy")
    if entropy is not None and state.first_entropy is None:
        state.first_entropy = entropy
    elif (
        entropy is not None and state.first_entropy is not None and entropy < config.entropy_below * state.first_entropy
    ):
        yield (
            "entropy",
            f"the entropy fell to {entropy:.3g} nats per token from {state.first_entropy:.3g}: samples of a prompt are "
            "nearly the same and carry little signal: lower optimiser.lr, or raise algorithm.trust.high",
        )
    mismatch = metrics.get("policy/mismatch", 0.0)
    if mismatch > config.mismatch_above:
        yield (
            "mismatch",
            f"engine and trainer differ by {mismatch:.2g} nats per token on the same weights: the importance ratios are "
            "wrong by that much; run `surefoot doctor` with this configuration",
        )
    if metrics.get("reward/ungraded", 0.0) > 0:
        yield (
            "ungraded",
            f"{100 * metrics['reward/ungraded']:.0f} % of the completions could not be graded (see the status in samples/): "
            "they were left out of the baselines and the loss",
        )


def _groups(metrics: Mapping[str, float], state: RunState, config: RunConfig, algorithm: Algorithm) -> Found:
    graded = metrics.get("reward/ungraded", 0.0) < 1.0  # where nothing was, rewards say nothing of the task
    if graded and metrics.get("groups/no_signal", 0.0) == 1.0:
        yield (
            "no_signal",
            "every prompt's samples earned equal rewards, so there was nothing to learn from: the task is too hard or too "
            "easy for this model, or the verifier does not tell answers apart",
        )
    wanted, got = config.train.prompts_per_step, metrics.get("batch/groups", 0.0)
    if graded and "refill" in algorithm.selection.kind.traits and got < wanted:
        yield (
            "refill",
            f"{metrics.get('rollout/rounds', 0):.0f} rollout batches gave {got:.0f} prompts with signal, and a step takes "
            f"{wanted}: it went on with those; the task is too hard or too easy for this model, or raise "
            "algorithm.selection.rounds",
        )
    if graded and "steps" in algorithm.advantage.kind.traits and metrics.get("reward/steps", 0.0) == 0.0:
        yield (
            "steps",
            f"the advantage '{algorithm.advantage.name}' is made of the rewards of steps, and the reward gave none: use a "
            "reward that scores steps (Score.steps)",
        )
    if algorithm.shaping.numbers.get("warmup_steps", 0) >= config.train.steps:
        yield (
            "warmup",
            f"algorithm.shaping.warmup_steps = {algorithm.shaping.warmup_steps} is as long as the run (train.steps = "
            f"{config.train.steps}), so '{algorithm.shaping.name}' never acts: lower it",
        )
    if state.exhausted:
        yield (
            "exhausted",
            f"algorithm.prompts = '{algorithm.prompts.name}' left no prompt to sample after step {state.step}: the run ends "
            "here",
        )


def rises_alone(rewards: Sequence[float], change: Mapping[str, float], accuracy: float, config: RunConfig) -> str:
    """What to say of a reward that rises while held-out accuracy does not: the sign of a reward that is fooled.

    It is said where the mean reward has risen by more than ``health.reward_rise_above``, the upper end of the interval of
    the change of accuracy is below half of that rise, and the reward is above the accuracy. (Below it, sampled answers only
    come closer to greedy ones, which were right before.)

    Args:
        rewards: mean reward of each step so far.
        change: of the held-out accuracy since before the first step: ``value``, ``low`` and ``high``.
        accuracy: on held-out problems, now.
        config: of the run.

    Returns:
        The warning; "" where there is none to give.
    """
    ends = min(ENDS, len(rewards) // 3)
    if not ends:
        return ""
    first, last = fmean(rewards[:ends]), fmean(rewards[-ends:])
    rise = last - first
    if rise <= config.health.reward_rise_above or change["high"] >= rise / 2 or last <= accuracy:
        return ""
    by = config.evaluation.verifier
    advice = (
        "look into samples/ for what earns it, run `surefoot audit` with this configuration, and judge held-out samples by "
        "another verifier (evaluation.verifier)"
        if by == "same"
        else "look into samples/ for what earns it, and run `surefoot audit` with this configuration"
    )
    return (
        f"the mean reward rose from {first:.2f} to {last:.2f}, and held-out accuracy ({accuracy:.2f}) changed by only "
        f"{change['value']:+.2f} [{change['low']:+.2f}, {change['high']:+.2f}]: the policy may be learning a gap of the reward "
        f"instead of the task; {advice}"
    )
