"""What an audit learns from samples of a model: whether there is a signal, and whether a gold answer may be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.errors import ConfigError
from surefoot.rewards.audit_answers import gold_of
from surefoot.rewards.audit_findings import Example, Finding, Severity, counted
from surefoot.rewards.grade import is_right
from surefoot.rollout.engine import Request
from surefoot.seeds import derive
from surefoot.training.assemble import Parts
from surefoot.types import Finish, Prompt, Sample, Score, Status

NO_SIGNAL = 0.8
TRUNCATED = 0.2
AGREE = 0.75
"""Share of a prompt's samples that must give one other answer for its gold answer to be in doubt."""
LEAST = 4
"""Samples of a prompt below which agreement means nothing."""
LENGTHY = 0.5
"""Correlation of reward and length from which length is worth a look."""

Graded = list[tuple[Prompt, tuple[Sample, ...], tuple[Score, ...]]]


def sampled(parts: Parts, prompts: Sequence[Prompt], samples: int, seed: int) -> list[Finding]:
    """Sample some prompts as a run would, and look at the rewards.

    Args:
        parts: policy, engine, wording and reward.
        prompts: what is sampled.
        samples: of each prompt.
        seed: of the samples.

    Raises:
        ConfigError: no sample.
    """
    if samples < 1:
        raise ConfigError(f"samples = {samples}: expected at least one sample of each prompt")
    requests = [
        Request(
            parts.renderer.ids(prompt),
            prompt.prompt_id,
            tuple(derive(seed, "audit", prompt.prompt_id, k) for k in range(samples)),
            parts.sampling,
        )
        for prompt in prompts
    ]
    made = parts.engine.generate(requests)
    scores = iter(parts.grade([(prompt, one) for prompt, group in zip(prompts, made, strict=True) for one in group]))
    graded = [(p, group, tuple(next(scores) for _ in group)) for p, group in zip(prompts, made, strict=True)]
    return [solve_rates(graded), no_signal(graded), endings(graded), components(graded), doubtful(graded)]


def solve_rates(graded: Graded) -> Finding:
    """How many prompts are solved how often."""
    size = len(graded[0][1])
    right = [sum(map(is_right, scores)) for _, _, scores in graded]
    histogram = [right.count(k) for k in range(size + 1)]
    text = (
        f"{100 * float(np.mean(right)) / size:.0f} % of the samples are right; {counted(histogram[0], graded)} are never solved "
        f"in {size} samples, {histogram[-1]} always"
    )
    return Finding("solve rates", "info", text, (), {"histogram": histogram, "samples": size})


def no_signal(graded: Graded) -> Finding:
    """Prompts whose samples all earn the same, from which a group baseline learns nothing."""
    flat = [prompt for prompt, _, scores in graded if len({score.total for score in scores if score.valid}) < 2]
    severity: Severity = "warn" if len(flat) > NO_SIGNAL * len(graded) else "info"
    text = f"{counted(len(flat), graded)} give no signal, since all their samples earn the same"
    if severity == "warn":
        text += ": the task is too hard or too easy for this model, or there are too few samples"
    return Finding("no signal", severity, text, (), {"prompts": len(graded), "no_signal": len(flat)})


def endings(graded: Graded) -> Finding:
    """Samples without an answer, and those that the budget cut."""
    samples = [one for _, group, _ in graded for one in group]
    scores = [one for _, _, group in graded for one in group]
    cut = sum(sample.finish is Finish.LENGTH for sample in samples) / len(samples)
    silent = sum(score.status is Status.NO_ANSWER for score in scores) / len(scores)
    failed = sum(not score.valid for score in scores)
    severity: Severity = "warn" if cut > TRUNCATED or failed else "info"
    text = f"{100 * silent:.0f} % of the samples have no answer, {100 * cut:.0f} % are cut by rollout.max_new_tokens"
    if failed:
        text += f", {failed} could not be graded"
    return Finding("endings", severity, text, (), {"no_answer": silent, "truncated": cut, "ungraded": failed})


def components(graded: Graded) -> Finding:
    """Mean and spread of the reward and of its parts, and how they go with the length of a completion."""
    pairs = [(sample, s) for _, group, scores in graded for sample, s in zip(group, scores, strict=True) if s.valid]
    if not pairs:
        return Finding("rewards", "warn", "no sample could be graded")
    length = np.array([sample.length for sample, _ in pairs], dtype=np.float64)
    names = sorted({name for _, score in pairs for name in score.components})
    columns: dict[str, np.ndarray] = {"total": np.array([score.total for _, score in pairs])}
    columns |= {name: np.array([score.components.get(name, np.nan) for _, score in pairs]) for name in names}
    numbers = {name: _spread(values, length) for name, values in columns.items()}
    total = numbers["total"]
    goes = total["with_length"]
    text = f"rewards are {total['mean']:.2f} on average (standard deviation {total['std']:.2f})"
    if goes is not None:
        text += f" and go with the length at {goes:+.2f}"
    return Finding("rewards", "warn" if goes is not None and abs(goes) > LENGTHY else "info", text, (), numbers)


def _spread(values: np.ndarray, length: np.ndarray) -> Mapping[str, float | None]:
    held = np.isfinite(values)
    values, length = values[held], length[held]
    if not len(values):
        return {"mean": None, "std": None, "with_length": None}
    varies = len(values) > 1 and values.std() > 0 and length.std() > 0
    with_length = float(np.corrcoef(values, length)[0, 1]) if varies else None
    return {"mean": float(values.mean()), "std": float(values.std()), "with_length": with_length}


def doubtful(graded: Graded) -> Finding:
    """Prompts whose samples agree on another answer than the gold one, which may then be wrong."""
    found = []
    for prompt, _, scores in graded:
        answers = Counter(
            score.text for score in scores if score.status is Status.OK and score.text and not is_right(score)
        )
        if len(scores) < LEAST or not answers:
            continue
        answer, number = answers.most_common(1)[0]
        if number >= AGREE * len(scores):
            found.append(
                (number, Example(prompt.prompt_id, gold_of(prompt), prompt.text, answer, f"{number}/{len(scores)}"))
            )
    if not found:
        return Finding("gold in doubt", "ok", "no prompt whose samples agree on another answer than the gold one")
    found.sort(key=lambda one: -one[0])
    text = f"the samples of {counted(len(found), graded)} agree on another answer than the gold one: it may be wrong"
    return Finding("gold in doubt", "info", text, tuple(example for _, example in found[:20]), {"prompts": len(found)})
