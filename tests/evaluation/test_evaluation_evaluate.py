"""Evaluation: what is asked of the engine, what counts as right, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from surefoot.errors import ConfigError, DataError, RewardError
from surefoot.evaluation.config import EvaluationConfig
from surefoot.evaluation.evaluate import Evaluation, evaluate
from surefoot.evaluation.intervals import mean_interval, paired_interval
from surefoot.rewards.grade import is_right
from surefoot.rollout.engine import Request
from surefoot.seeds import uniforms
from surefoot.types import Finish, Prompt, Sample, Score, Status


class DiceEngine:
    """Writes the single token 1 with the chance that the prompt's only token says in percent, and 0 otherwise."""

    def __init__(self, bonus: float = 0.0) -> None:
        self.version, self.bonus = 0, bonus
        self.asked: list[Request] = []

    def load(self, version: int) -> None:
        self.version = version

    def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        self.asked += requests
        return [tuple(self.sample(request, i) for i in range(len(request.seeds))) for request in requests]

    def sample(self, request: Request, i: int) -> Sample:
        u = uniforms(np.array([request.seeds[i]]), np.array([0]))[0]
        right = u < request.prompt_ids[0] / 100 + self.bonus
        completion = np.array([1, 9]) if right else np.array([0, 0, 0, 0])
        return Sample.of(
            request.prompt_ids,
            completion,
            prompt_id=request.prompt_id,
            finish=Finish.STOP if right else Finish.LENGTH,
            sample_id=i,
            seed=request.seeds[i],
        )


def grade(pairs: Sequence[tuple[Prompt, Sample]]) -> list[Score]:
    return [
        Score(total=float(right), correct=right, status=Status.OK if right else Status.NO_ANSWER)
        for right in (bool(sample.ids[1] == 1) for _, sample in pairs)
    ]


def problems(percents: Sequence[int]) -> list[tuple[Prompt, np.ndarray]]:
    return [(Prompt(f"p{i}", f"roll {percent}"), np.array([percent])) for i, percent in enumerate(percents)]


def run(percents: Sequence[int], config: EvaluationConfig, engine: DiceEngine | None = None) -> Evaluation:
    return evaluate(engine or DiceEngine(), problems(percents), grade, config, max_new_tokens=4, stop_ids=(9,))


MIXED = [0, 20, 40, 60, 80, 100] * 20
SAMPLED = EvaluationConfig(samples=4, temperature=1.0)


def test_counts_and_shares() -> None:
    result = run([0, 100, 100, 0], EvaluationConfig(samples=3, temperature=1.0))
    assert result.correct.tolist() == [0, 3, 3, 0]
    assert result.accuracy == 0.5
    assert result.truncated == 0.5 and result.no_answer == 0.5 and result.length == 3.0
    assert result.ungraded == 0
    assert result.pass_at[1].value == result.pass_at[2].value == 0.5
    assert list(result.pass_at) == [1, 2]


def test_avg_pass_and_their_intervals() -> None:
    result = run(MIXED, SAMPLED)
    assert list(result.pass_at) == [1, 2, 4]
    assert result.accuracy == pytest.approx(result.correct.mean() / 4)
    assert (result.accuracy, result.low, result.high) == result.pass_at[1]
    assert result.pass_at[4] == mean_interval(result.correct > 0)
    for k, truth in ((1, 0.5), (2, np.mean([1 - (1 - p / 100) ** 2 for p in MIXED]))):
        assert result.pass_at[k].low < truth < result.pass_at[k].high
    assert np.array_equal(result.accuracy_p, result.correct / 4)


def test_the_record_is_the_line_of_the_run_folder() -> None:
    record = json.loads(json.dumps(run(MIXED, SAMPLED).record(20)))
    assert record["step"] == 20 and record["problems"] == 120 and record["samples"] == 4
    assert record["pass"].keys() == {"1", "2", "4"} and record["pass"]["1"] == record["accuracy"]
    assert record["low"] < record["accuracy"] < record["high"]
    assert record.keys() == {
        *("step", "problems", "samples", "accuracy", "low", "high", "pass", "length", "truncated", "no_answer"),
        "ungraded",
        "right",
        "set",  # a hash of the problems
    }


def test_samples_and_scores_belong_together() -> None:
    result = run(MIXED, SAMPLED)
    for i, (prompt, samples, scores) in enumerate(zip(result.prompts, result.samples, result.scores, strict=True)):
        assert len(samples) == len(scores) == 4
        assert {sample.prompt_id for sample in samples} == {prompt.prompt_id}
        assert [score.correct for score in scores] == [sample.ids[1] == 1 for sample in samples]
        assert result.correct[i] == sum(bool(score.correct) for score in scores)


def test_what_is_asked_of_the_engine() -> None:
    engine = DiceEngine()
    run(MIXED, EvaluationConfig(samples=2, temperature=0.6, top_p=0.9, problems=7), engine)
    assert [request.prompt_id for request in engine.asked] == [f"p{i}" for i in range(7)]
    for request in engine.asked:
        sampling = request.sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.6, 0.9, 0)
        assert (sampling.max_new_tokens, sampling.stop_ids) == (4, (9,))
    seeds = [seed for request in engine.asked for seed in request.seeds]
    assert len(set(seeds)) == len(seeds) == 14


def test_seeds_depend_on_the_problem_and_the_seed_alone() -> None:
    first, second, other = DiceEngine(), DiceEngine(), DiceEngine()
    run(MIXED, SAMPLED, first)
    evaluate(second, problems(MIXED)[::-1], grade, SAMPLED, max_new_tokens=9, stop_ids=())
    assert {r.prompt_id: r.seeds for r in first.asked} == {r.prompt_id: r.seeds for r in second.asked}
    run(MIXED, EvaluationConfig(samples=4, temperature=1.0, seed=1), other)
    assert not {s for r in first.asked for s in r.seeds} & {s for r in other.asked for s in r.seeds}


def test_confidence_widens_the_interval() -> None:
    narrow = run(MIXED, EvaluationConfig(samples=4, temperature=1.0, confidence=0.8))
    wide = run(MIXED, EvaluationConfig(samples=4, temperature=1.0, confidence=0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_two_evaluations_compare_problem_by_problem() -> None:
    before, after = run(MIXED, SAMPLED), run(MIXED, SAMPLED, DiceEngine(bonus=0.05))
    assert after.low < before.high  # their own intervals overlap
    assert paired_interval(after.accuracy_p, before.accuracy_p).low > 0


def test_what_could_not_be_graded_is_wrong_and_counted() -> None:
    def broken(pairs: Sequence[tuple[Prompt, Sample]]) -> list[Score]:
        failed = Score.failed(Status.TIMEOUT, "too slow")
        scores = zip(pairs, grade(pairs), strict=True)
        return [failed if prompt.prompt_id == "p1" else score for (prompt, _), score in scores]

    result = evaluate(DiceEngine(), problems([100, 100, 0]), broken, SAMPLED, max_new_tokens=4, stop_ids=())
    assert result.correct.tolist() == [4, 0, 0]
    assert result.accuracy == pytest.approx(1 / 3)
    assert result.ungraded == 4


def test_what_counts_as_right() -> None:
    assert is_right(Score(total=0.2, correct=True)) and not is_right(Score(total=1.0, correct=False))
    assert is_right(Score(total=1.0)) and not is_right(Score(total=0.9))
    assert not is_right(Score(total=1.0, correct=True, status=Status.ERROR))
    assert not is_right(Score(total=float("nan"), correct=True))


def test_one_greedy_sample_per_problem_is_the_default() -> None:
    result = run(MIXED, EvaluationConfig())
    assert result.samples_per_problem == 1 and list(result.pass_at) == [1]
    assert (result.accuracy, result.low, result.high) == mean_interval(result.correct)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"evaluation.samples is 4 and evaluation.temperature is 0"):
        run(MIXED, EvaluationConfig(samples=4))
    with pytest.raises(DataError, match="no held-out problem"):
        run([], SAMPLED)
    with pytest.raises(RewardError, match="3 scores for 8 completions"):
        evaluate(
            DiceEngine(), problems([50, 50]), lambda pairs: grade(pairs)[:3], SAMPLED, max_new_tokens=4, stop_ids=()
        )
