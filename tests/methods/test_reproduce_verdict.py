"""The verdict of a claim: from the interval of the quantity, its threshold, and whether the control held."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from surefoot.methods.reproduce.catalogue import CLAIMS
from surefoot.methods.reproduce.claim import Claim, Control, Criterion, Verdict, interval, judge

ABOVE = Criterion("gain", "gain", "above", 0.1, "why")
BELOW = Criterion("cost", "cost", "below", 2.0, "why")


def claim(*criteria: Criterion) -> Claim:
    control = Control("control", -0.0625, 0.0625)
    return Claim("c", "c", "paper", "hypothesis", criteria or (ABOVE,), control, (0, 1, 2), 1, lambda *_: {})


def seeds(gain: list[float], control: float = 0.0, cost: float = 1.0) -> list[dict[str, float]]:
    return [{"gain": one, "control": control, "cost": cost} for one in gain]


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.30, 0.32, 0.31], Verdict.REPRODUCED),
        ([0.01, 0.02, 0.03], Verdict.NOT_REPRODUCED),
        ([-0.30, -0.32, -0.31], Verdict.NOT_REPRODUCED),
        ([0.05, 0.30, 0.40], Verdict.INCONCLUSIVE),  # the mean is above, the interval is not
        ([0.3, math.nan, 0.3], Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_decides(gains: list[float], verdict: Verdict) -> None:
    assert judge(claim(), seeds(gains)).verdict == verdict


def test_below_is_the_mirror_of_above() -> None:
    for cost, verdict in ((1.0, Verdict.REPRODUCED), (2.0, Verdict.NOT_REPRODUCED), (3.0, Verdict.NOT_REPRODUCED)):
        assert judge(claim(BELOW), seeds([0.0] * 3, cost=cost)).verdict == verdict


def test_a_control_that_moved_makes_any_result_inconclusive() -> None:
    for gains in ([0.30, 0.32, 0.31], [0.01, 0.02, 0.03]):
        finding = judge(claim(), seeds(gains, control=0.07))
        assert finding.verdict == Verdict.INCONCLUSIVE and not finding.held
        assert finding.verdicts["gain"] != Verdict.INCONCLUSIVE  # what was measured is still said
    assert judge(claim(), seeds([0.3, 0.32, 0.31], control=0.05)).held  # the bound itself is within
    assert not judge(claim(), seeds([0.3, 0.32, 0.31], control=math.nan)).held


def test_every_criterion_must_come_out_and_a_refutation_wins_over_doubt() -> None:
    both = claim(ABOVE, BELOW)
    assert judge(both, seeds([0.30, 0.32, 0.31])).verdict == Verdict.REPRODUCED
    assert judge(both, seeds([0.05, 0.30, 0.40])).verdict == Verdict.INCONCLUSIVE
    assert judge(both, seeds([0.05, 0.30, 0.40], cost=3.0)).verdict == Verdict.NOT_REPRODUCED


def test_intervals_are_over_seeds_or_over_seeds_and_problems() -> None:
    values = [0.1, 0.4, 0.2]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)
    mean = np.mean(values)
    assert interval(values) == pytest.approx((mean, mean - half, mean + half))
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.2, size=(3, 200))
    found = interval((0.1 + noise).tolist())
    assert found.value == pytest.approx(0.1 + noise.mean()) and found.low < 0.1 < found.high
    assert found.high - found.low < 0.2, "600 values say more than three means"


def test_what_was_not_measured_and_what_is_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="two of them"):
        judge(claim(), seeds([0.3]))
    with pytest.raises(ValueError, match="'cost' was not measured"):
        judge(claim(BELOW), [{"gain": 1.0, "control": 0.0}] * 3)


def test_other_quantities_are_kept_and_judge_nothing() -> None:
    finding = judge(claim(), seeds([0.30, 0.32, 0.31]))
    assert set(finding.intervals) == {"gain", "control", "cost"} and set(finding.verdicts) == {"gain"}


def test_the_catalogue_says_everything_before_a_run() -> None:
    assert len(CLAIMS) >= 18
    for name, one in CLAIMS.items():
        assert one.name == name and one.title and one.hypothesis.endswith("."), name
        assert "arXiv" in one.paper, name
        assert len(one.seeds) >= 3 and one.seconds > 0, name
        assert one.control.low <= one.control.high and one.control.quantity, name
        for criterion in one.criteria:
            assert criterion.quantity and criterion.why and math.isfinite(criterion.threshold), name
        assert len({criterion.key for criterion in one.criteria} | {"control"}) == len(one.criteria) + 1, name


def test_numbers_of_the_experiment_are_in_the_digest_and_thresholds_are_not() -> None:
    one = claim()
    assert one.but(steps=3).digest != one.digest == one.but(seeds=(5, 6)).digest
    assert one.but(seeds=(5, 6)).seeds == (5, 6) and one.but(steps=3).settings == {"steps": 3}
