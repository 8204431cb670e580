"""Which prompts are sampled, when thinking is interrupted, and when a run starts afresh."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import interruption, prompts, reset
from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.prompts import PromptTable, choose
from surefoot.algorithms.reset import Course
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES
from tests.algorithms.test_algorithms_golden import close


def seen(rates: list[float | None], labels: list[float] | None = None, step: int = 1, count: int = 100) -> PromptTable:
    """Prompts with these success rates over ``count`` graded samples; None: never sampled."""
    return PromptTable(
        graded=np.array([0 if rate is None else count for rate in rates]),
        right=np.array([0 if rate is None else round(count * rate) for rate in rates]),
        difficulty=np.full(len(rates), np.nan) if labels is None else np.array(labels),
        step=step,
    )


def unseen(labels: list[float], step: int) -> PromptTable:
    return seen([None] * len(labels), labels, step)


# Prompts.


def test_no_positive_resampling() -> None:
    case = CASES["scalerl_npr"]
    rates = case["inputs"]["pass_rate"]
    part = prompts.no_positive_resampling(rate=case["hyperparameters"]["cap"])
    weight = part(seen(list(rates.values())))
    assert [name for name, value in zip(rates, weight, strict=True) if value > 0] == case["expected"]["kept"]
    assert set(weight) <= {0.0, 1.0}


def test_no_positive_resampling_counts_exactly_at_the_rate() -> None:
    part = prompts.no_positive_resampling(rate=0.9)
    for count in (10, 20, 30, 70, 90, 1000):
        right = count * 9 // 10
        graded = np.array([count] * 3)
        table = PromptTable(graded, np.array([right - 1, right, right + 1]), np.full(3, np.nan))
        assert part(table).tolist() == [1.0, 0.0, 0.0]
    # The history of a prompt that is not sampled does not change, so it never returns.
    assert part(seen([1.0, None])).tolist() == [0.0, 1.0]


def test_prioritised() -> None:
    case = CASES["kimi_prioritised"]
    weight = prompts.prioritised()(seen(case["inputs"]["success_rate"]))
    close(weight / weight.sum(), np.array(case["expected"]["prob"]))
    close(weight, 1 - np.array(case["inputs"]["success_rate"]))


def test_prioritised_prompts_that_are_new_or_always_solved() -> None:
    table = seen([None, 1.0, 0.25, 0.0])
    close(prompts.prioritised()(table), np.array([1.0, 0.0, 0.75, 1.0]))
    close(prompts.prioritised(unseen=0.4, floor=0.1)(table), np.array([0.4, 0.1, 0.75, 1.0]))
    with pytest.raises(AlgorithmError, match="greater than 0"):
        prompts.prioritised(unseen=0.0)
    with pytest.raises(AlgorithmError, match="unseen"):
        prompts.prioritised(unseen=math.inf)


def test_curriculum_opens_linearly_from_easy_to_hard() -> None:
    part = prompts.curriculum(start=0.2, steps=4)
    labels = [5.0, 1.0, 4.0, 2.0, 3.0]
    opened = [[label for label, w in zip(labels, part(unseen(labels, step)), strict=True) if w] for step in range(1, 8)]
    assert [len(now) for now in opened] == [1, 2, 3, 4, 5, 5, 5]
    assert opened[0] == [1.0] and opened[1] == [1.0, 2.0] and opened[4] == labels
    assert prompts.curriculum(start=1.0)(unseen(labels, 1)).tolist() == [1.0] * 5


def test_curriculum_takes_equal_labels_together_and_missing_ones_last() -> None:
    part = prompts.curriculum(start=0.2, steps=10)
    levels = [1.0] * 3 + [2.0] * 5 + [math.nan] * 2
    assert part(unseen(levels, 1)).tolist() == [1.0] * 3 + [0.0] * 7
    assert part(unseen(levels, 4)).tolist() == [1.0] * 8 + [0.0] * 2
    assert part(unseen(levels, 10)).tolist() == [1.0] * 10
    with pytest.raises(AlgorithmError, match="no prompt has a label"):
        part(unseen([math.nan] * 3, 1))


def test_prioritised_curriculum_is_both() -> None:
    table = seen([0.5, 0.0, None, 1.0], [1.0, 2.0, 3.0, 1.0], step=3)
    one, other = prompts.curriculum(start=0.5, steps=8), prompts.prioritised()
    both = prompts.prioritised_curriculum(start=0.5, steps=8)
    close(both(table), one(table) * other(table))
    assert both(table).tolist() == [0.5, 1.0, 0.0, 0.0]
    assert both.kind.traits == one.kind.traits | other.kind.traits == {"labels", "history", "draw"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.floats(0.01, 1), st.integers(1, 50), st.integers(1, 60))
def test_curriculum_is_monotone(labels: list[int], start: float, steps: int, step: int) -> None:
    part = prompts.curriculum(start=start, steps=steps)
    given_labels = [float(label) for label in labels]
    now, later = (part(unseen(given_labels, at)) for at in (step, step + 1))
    assert now.sum() >= min(len(labels), math.ceil(start * len(labels) - 1e-9)) >= 1
    assert (later >= now).all()
    easiest_closed = min((label for label, w in zip(labels, now, strict=True) if not w), default=math.inf)
    assert all(label < easiest_closed for label, w in zip(labels, now, strict=True) if w)
    assert part(unseen(given_labels, steps + 1)).all()


# Drawing.


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 10), max_size=20), st.integers(0, 25), st.integers(0, 1000))
def test_choose_draws_without_replacement_and_never_what_has_no_weight(
    weights: list[float], count: int, seed: int
) -> None:
    drawn = choose(np.array(weights), count, seed, "prompts")
    assert len(set(drawn)) == len(drawn) == min(count, sum(weight > 0 for weight in weights))
    assert all(weights[i] > 0 for i in drawn)
    assert drawn == choose(np.array(weights), count, seed, "prompts")
    # A shorter draw is the beginning of a longer one.
    assert choose(np.array(weights), count + 3, seed, "prompts")[: len(drawn)] == drawn


def test_choose_follows_the_weights() -> None:
    weight, draws = np.array([1.0, 2.0, 0.0, 5.0]), 20_000
    pairs = Counter(tuple(choose(weight, 2, "pairs", i)) for i in range(draws))
    assert len(pairs) == 6
    for (one, other), found in pairs.items():
        p = weight[one] / 8 * weight[other] / (8 - weight[one])
        deviation = math.sqrt(p * (1 - p) / draws)
        assert abs(found / draws - p) < 4.5 * deviation


def test_choose_is_a_stream_of_its_own_and_other_weights_do_not_move_it() -> None:
    weight = np.ones(50)
    assert choose(weight, 50, 1, "a") != choose(weight, 50, 2, "a") != choose(weight, 50, 2, "b")
    assert sorted(choose(weight, 50, 1, "a")) == list(range(50))
    # Taking one prompt out leaves the order of the others.
    order = choose(weight, 50, 1, "a")
    less = weight.copy()
    less[order[3]] = 0.0
    assert choose(less, 50, 1, "a") == order[:3] + order[4:]
    assert all(isinstance(i, int) for i in order)
    assert choose(np.array([1e-320, 1.0, 1e-310]), 3, 0)[0] == 1


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_choose_refuses_weights_that_are_none(wrong: float) -> None:
    with pytest.raises(AlgorithmError, match="weight of prompt 1"):
        choose(np.array([1.0, wrong]), 1, 0)


# Interruption.


def test_force_answer_leaves_a_share_of_the_budget() -> None:
    part = interruption.force_answer()
    assert part(14_000) == 11_900
    assert interruption.force_answer(share=12 / 14)(14_000) == 12_000
    assert interruption.force_answer(share=0.29)(100) == 29  # 0.29 * 100 is a little less in floating point
    assert part(1) == 1 and interruption.force_answer(share=0.01)(10) == 1
    assert interruption.none()(100) is None
    assert part.phrase == "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
    assert part.close == "</think>"
    for share in (0.0, 1.0):
        with pytest.raises(AlgorithmError, match="share"):
            interruption.force_answer(share=share)
    with pytest.raises(AlgorithmError, match="phrase"):
        interruption.force_answer(phrase="")


def test_the_equation_of_an_interruption_quotes_what_is_written() -> None:
    part = interruption.force_answer(phrase='100% "sure" {now}\n', close="")
    assert r'"100% \"sure\" {now}\n"' in part.text and "that is still running" in part.text
    assert r"100\% " in part.latex and r"\{now\}" in part.latex and "\n" not in part.latex
    assert '"</think>"' in interruption.force_answer().text


# Resets.


def resets(part: Part, accuracies: dict[int, float], last: int) -> list[int]:
    """The steps of a run at which the part resets; accuracies are those of held-out evaluations, by step."""
    since, found = 0, []
    for step in range(last + 1):
        done = [(at, value) for at, value in accuracies.items() if at <= step]
        if part(Course(step, since, done)):
            found.append(step)
            since = step
    return found


def test_every() -> None:
    assert resets(reset.every(steps=4), {}, 13) == [4, 8, 12]
    assert resets(reset.never(), {}, 13) == []
    # A run that resumes right after a reset does not reset again.
    assert not reset.every(steps=4)(Course(8, 8, []))
    trl = reset.every(optimiser=False, alpha=0.6)
    assert trl.numbers == {"steps": 512, "reference": True, "optimiser": False, "alpha": 0.6}


def test_stagnation_and_degradation_reset_and_progress_does_not() -> None:
    part = reset.on_stagnation(patience=2)
    assert resets(part, {0: 0.1, 5: 0.2, 10: 0.3, 15: 0.4}, 16) == []
    assert resets(part, {0: 0.1, 5: 0.3, 10: 0.3, 15: 0.3, 20: 0.3}, 22) == [15]
    assert resets(part, {0: 0.5, 5: 0.4, 10: 0.3}, 12) == [10]
    # One bad evaluation between better ones is none.
    assert resets(part, {0: 0.1, 5: 0.05, 10: 0.2, 15: 0.15, 20: 0.25}, 22) == []
    assert resets(reset.on_stagnation(patience=1), {0: 0.1, 5: 0.05, 10: 0.2}, 12) == [5]


def test_after_a_reset_there_are_new_evaluations_before_the_next() -> None:
    flat = {step: 0.3 for step in range(0, 60, 5)}
    assert resets(reset.on_stagnation(patience=2), flat, 59) == [10, 20, 30, 40, 50]
    assert resets(reset.on_stagnation(patience=3), flat, 59) == [15, 30, 45]
    # What was reached before a reset is not asked of the run after it.
    course = {0: 0.5, 5: 0.4, 10: 0.3, 15: 0.35, 20: 0.4}
    assert resets(reset.on_stagnation(patience=2), course, 22) == [10]


def test_an_improvement_counts_when_it_is_more_than_the_threshold() -> None:
    creeping = {0: 0.30, 5: 0.31, 10: 0.32, 15: 0.33, 20: 0.34}
    assert resets(reset.on_stagnation(patience=2), creeping, 22) == []
    assert resets(reset.on_stagnation(patience=2, threshold=0.025), creeping, 22) == [10, 20]
    # Small steps add up: the third evaluation is 0.03 above the first.
    assert resets(reset.on_stagnation(patience=3, threshold=0.025), creeping, 22) == []


def test_a_reset_follows_an_evaluation_at_once() -> None:
    part = reset.on_stagnation(patience=1)
    evaluations = [(0, 0.5), (5, 0.4)]
    assert part(Course(5, 0, evaluations))
    assert not part(Course(6, 0, evaluations))
    assert not part(Course(3, 0, []))
    assert not part(Course(5, 0, [(5, 0.4)]))  # nothing to compare with
    assert not part(Course(5, 0, [(0, math.nan), (5, 0.4)]))  # the first number is the best so far


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=25), st.integers(1, 4), st.floats(0, 0.3), st.integers(1, 3))
def test_resets_are_never_closer_than_the_patience(
    accuracies: list[float], patience: int, threshold: float, interval: int
) -> None:
    part = reset.on_stagnation(patience=patience, threshold=threshold)
    found = resets(part, {interval * i: value for i, value in enumerate(accuracies)}, interval * len(accuracies))
    at = [step // interval for step in found]
    assert all(step % interval == 0 for step in found)
    assert all(later - earlier >= patience for earlier, later in zip([0, *at], at, strict=False))
    for earlier, later in zip([0, *at], at, strict=False):
        # Since the reset, nothing in the last `patience` evaluations was clearly better than the best before them.
        since = accuracies[earlier : later + 1]
        assert max(since[-patience:]) <= max(since[:-patience]) + threshold


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"patience": 0}, "patience"),
        ({"threshold": -1.0}, "threshold"),
    ],
)
def test_numbers_outside_their_range_are_refused(numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(AlgorithmError, match=says):
        reset.on_stagnation(**numbers)


def test_what_is_reset_is_printed() -> None:
    assert reset.every(steps=10).text == "every 10 steps: pi_ref <- pi, optimiser state <- 0"
    mixed = reset.every(steps=512, optimiser=False, alpha=0.6)
    assert mixed.text == "every 512 steps: pi_ref <- 0.6 pi + 0.4 pi_ref"
    assert r"0.6\,\pi_\theta + 0.4\,\pi_{\text{ref}}" in mixed.latex
    assert "after 3 evaluations" in reset.on_stagnation(patience=3).text


@pytest.mark.parametrize("slot", ["prompts", "interruption", "reset", "weights"])
def test_braces_of_equations_are_balanced(slot: str) -> None:
    for kind in REGISTRY[slot].values():
        if "idle" not in kind.traits:
            latex = kind().latex
            assert latex.count("{") == latex.count("}") > 0 and "{{" not in latex.replace(r"\texttt{{", "")
            assert kind().text.strip()
