"""Inputs outside of what a part is defined on: it leaves the row or the token out, as documented, or refuses it by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from surefoot.algorithms import correction, ratios, weights
from surefoot.algorithms.decoupled import decoupled
from surefoot.algorithms.likelihood import maximum_likelihood
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.table import RewardTable
from surefoot.errors import AlgorithmError, NonFiniteError
from tests.algorithms.harness import Rows, table, tensor

NAN, INF = float("nan"), float("inf")
BAD = pytest.mark.parametrize("number", [NAN, INF, -INF], ids=["nan", "inf", "-inf"])
FORMS = ["conditional", "control_variate", "mean_normalised", "subset", "maclaurin"]


@pytest.mark.parametrize("form", FORMS)
def test_successes_and_failures_are_all_that_is_counted(form: Any) -> None:
    part = maximum_likelihood(form=form)
    with pytest.raises(AlgorithmError, match=r"negative reward, -0.5: .*reward\.wrong = 0"):
        part(table([1.0, -0.5, 0.0]))
    if form == "mean_normalised":  # (r - mean) / mean, whatever the rewards
        assert part(table([0.5, 1.0, 0.0])).tolist() == pytest.approx([0.0, 1.0, -1.0])
        return
    for rewards in ([0.5, 1.0, 0.0, 0.0], [0.9, 0.3, 0.3, 0.3], [0.0, 1.0, 2.0]):
        with pytest.raises(AlgorithmError, match=f"'{form}' counts .*form = 'mean_normalised'"):
            part(table(rewards))


@pytest.mark.parametrize("form", ["subset", "maclaurin"])
@pytest.mark.parametrize("success", [0.5, 2.0])
def test_binomials_count_ones(form: Any, success: float) -> None:
    with pytest.raises(AlgorithmError, match=f"a reward of {success:g} is neither a failure"):
        maximum_likelihood(form=form)(table([success, 0.0, 0.0, success]))


@pytest.mark.parametrize("form", FORMS)
def test_what_was_not_graded_is_no_reward_to_refuse(form: Any) -> None:
    assert maximum_likelihood(form=form)(table([NAN, NAN, NAN])).tolist() == [0.0] * 3
    alone = maximum_likelihood(form=form)(table([1.0, NAN, NAN]))
    assert alone.tolist() == [0.0] * 3


def named(**components: list[float]) -> RewardTable:
    return replace(table([1.0] * 4), components={name: tensor(value) for name, value in components.items()})


@BAD
def test_a_condition_without_a_value_leaves_the_row_out(number: float) -> None:
    """As if the row were not among those of the component: the others are standardised among themselves."""
    part = decoupled(weights={"easy": 1.0}, conditions={"easy": "hard"}, ddof=0, eps=0.0)
    have = part(named(easy=[1.0, 0.0, 1.0, 1.0], hard=[1.0, 1.0, 0.0, number]))
    # Conditioned: 1, 0, 0 and none; mean 1/3, so the sum of squares is 2/3 over the four rows of the batch.
    want = torch.tensor([2.0, -1.0, -1.0, 0.0], dtype=torch.float64) / 3 / (2 / 3 / 4) ** 0.5
    assert have.tolist() == pytest.approx(want.tolist())


@BAD
def test_a_component_without_a_value_leaves_the_row_out_whatever_conditions_it(number: float) -> None:
    part = decoupled(weights={"easy": 1.0}, conditions={"easy": "hard"}, ddof=0, eps=0.0)
    have = part(named(easy=[1.0, 0.0, 1.0, number], hard=[1.0, 1.0, 0.0, 0.0]))
    assert have.tolist() == pytest.approx([2 / 3**0.5 * 3**0.5 / 1.5**0.5, *[-((2 / 3) ** 0.5)] * 2, 0.0], abs=1e-12)


def test_a_component_of_no_row_is_refused_until_it_was_there_once() -> None:
    part, memory = decoupled(weights={"a": 1.0, "b": 1.0}), {}
    only = replace(named(a=[1.0, 0.0, 0.0, 1.0]), memory=memory)
    with pytest.raises(AlgorithmError, match="names the reward 'b', and the rewards have: a"):
        part(only)
    nothing = replace(table([NAN] * 4), memory=memory)
    assert part(nothing).tolist() == [0.0] * 4
    part(replace(named(a=[1.0, 0.0, 0.0, 1.0], b=[1.0, 1.0, 0.0, 0.0]), memory=memory))
    assert torch.equal(part(only), decoupled(weights={"a": 1.0})(only))
    assert part(replace(table([1.0] * 4), memory=memory)).tolist() == [0.0] * 4


@pytest.mark.parametrize("field", ["reward", "logp_old", "logp_reference", "values", "token_penalty"])
@BAD
def test_a_table_takes_no_number_that_is_not_finite(field: str, number: float) -> None:
    wrong = tensor([0.5, number])
    with pytest.raises(NonFiniteError, match=f"{field}.* in rollout batch 5 is {number} at"):
        rows = replace(table([1.0, 0.0]), step=5)
        replace(rows, **{field: wrong})


STREAMS = {"logp_old": [[-0.5, -1.2]], "logp_behaviour": [[-0.5, -1.1]], "logp_reference": [[-0.4, -1.0]]}
LOGP = [[-0.6, -1.0]]


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize(
    "field", ["logp", "logp_old", "logp_reference", "advantage", "entropy", "weight", "kept_logmass", "top_logp"]
)
@BAD
def test_a_loss_takes_no_number_that_is_not_finite(preset: str, field: str, number: float) -> None:
    rows = Rows([[1, 1]])
    tokens = rows.tokens(tensor(LOGP), [1.0], **STREAMS)
    given = tensor([-0.5, number])
    if field == "top_logp":
        given = tensor([[-0.5, -1.0], [NAN if number == -INF else number, -1.0]])
    tokens = replace(tokens, **{field: given})
    with pytest.raises(NonFiniteError, match="at loss token 1 of row 0"):
        policy_loss(PRESETS[preset], tokens, rows.totals)


@BAD
def test_entropies_that_are_not_finite_choose_no_tokens(number: float) -> None:
    tokens = replace(Rows([[1, 1]]).tokens(tensor(LOGP), [1.0]), entropy=tensor([0.5, number]))
    with pytest.raises(NonFiniteError, match="the entropy of the policy is"):
        weights.high_entropy()(tokens)


@BAD
def test_an_unknown_behaviour_probability_adds_no_drift(number: float) -> None:
    """Mean drift (0.02 + 0) / 2 = 0.01 where the unknown token adds nothing; its move from -3 to -1 would drop the row."""
    rows = Rows([[1, 1]])
    algorithm = PRESETS["grpo_token"].but(correction=correction.off_policy_mask(delta=0.1))
    streams = {"logp_old": [[-0.5, -1.0]], "logp_behaviour": [[-0.5, number]]}
    loss, gradient = rows.loss(algorithm, [[-0.52, -3.0]], [-1.0], **streams)
    ratio = 2.718281828459045**-0.02
    assert loss == pytest.approx(ratio / 2) and gradient[0].tolist() == pytest.approx([ratio / 2, 0.0])


@pytest.mark.parametrize("ratio", [ratios.sequence, ratios.sequence_token], ids=["sequence", "sequence_token"])
@pytest.mark.parametrize("anchor", ["old", "behaviour"])
@BAD
def test_an_unknown_behaviour_probability_has_no_policy_gradient_in_its_row(
    ratio: Any, anchor: Any, number: float
) -> None:
    rows = Rows([[1, 1]])
    algorithm = PRESETS["gspo"].but(ratio=ratio(anchor=anchor), trust={"low": 0.5, "high": 0.5})
    streams = {"logp_old": [[-0.5, -1.0]], "logp_behaviour": [[-0.5, number]]}
    _, gradient = rows.loss(algorithm, [[-0.52, -1.1]], [1.0], **streams)
    assert gradient[0, 0] != 0 and gradient[0, 1] == 0
