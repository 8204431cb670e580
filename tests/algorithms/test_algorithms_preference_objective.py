"""Preference objectives: presets, cards, the mean and its metrics, what is refused, and the choice of pairs."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.algorithms import trust
from surefoot.algorithms.notation import latex_lines
from surefoot.algorithms.part import REGISTRY
from surefoot.algorithms.preference import SHIFT, bco, dpo, ipo
from surefoot.algorithms.preference_objective import PreferenceObjective, preference_loss, remember, rewards
from surefoot.algorithms.preference_pairs import Labelled, Pairs, long2short_pairs
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.errors import AlgorithmError
from surefoot.metrics import StepReport


def pairs(count: int = 4, reference: bool = True, seed: int = 0, **memory: float) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 9, (2, count), generator=generator)
    logp = -lengths * torch.rand(2, count, generator=generator, dtype=torch.float64)
    chosen, rejected = (row.clone().requires_grad_() for row in logp)
    noise = torch.randn(2, count, generator=generator, dtype=torch.float64)
    references = tuple(logp + noise) if reference else (None, None)
    return Pairs(chosen, rejected, *references, *lengths, memory=dict(memory))


def labelled(count: int = 5, seed: int = 0) -> Labelled:
    generator = torch.Generator().manual_seed(seed)
    logp = -5 * torch.rand(count, generator=generator, dtype=torch.float64)
    reference = logp + torch.randn(count, generator=generator, dtype=torch.float64)
    desirable = torch.arange(count) % 2 == 0
    return Labelled(logp.requires_grad_(), reference, desirable, torch.tensor([0.4, -0.1], dtype=torch.float64))


def batch_for(objective: PreferenceObjective, **options: Any) -> Pairs | Labelled:
    return labelled(**options) if objective.unpaired else pairs(**options)


def split(batch: Pairs | Labelled, index: list[int]) -> Pairs | Labelled:
    fields = {name: value for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
    cut = {name: value if name == "mismatched" else value[index] for name, value in fields.items()}
    return Labelled(**cut) if isinstance(batch, Labelled) else Pairs(**cut, memory=batch.memory)


@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_the_card_is_made_of_the_part_that_runs(name: str) -> None:
    objective = PREFERENCES[name]
    text = objective.explain()
    equation = text.split("```")[1]
    assert text.startswith(f"# {name}\n")
    assert " ".join(objective.loss.text.split()) in " ".join(equation.split())  # long lines are broken
    assert all(piece in text for piece in latex_lines(objective.loss.latex))
    assert "{" not in equation, "a number was not filled in"
    assert re.search(r"arXiv \d{4}\.\d{5}|\(2023\)", objective.paper)
    assert objective.note
    if objective.ancestor:
        assert f"From **{objective.ancestor}**: {objective.changes}" in text
        assert objective.ancestor in PREFERENCES
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") == 4 for line in table), "a cell of the table holds a bar"
    assert ("r = log pi(y) - log pi_ref(y)" in equation) == objective.needs_reference
    assert ("o = log(p / (1 - p))" in equation) == (name in ("orpo", "asft", "orpo_align", "asft_align"))


def test_every_part_has_a_preset() -> None:
    assert {preset.loss.name for preset in PREFERENCES.values()} == set(REGISTRY["preference"])


@pytest.mark.parametrize("kind", sorted(REGISTRY["preference"]))
def test_every_number_is_in_the_equation(kind: str) -> None:
    part = REGISTRY["preference"][kind]()
    for number, value in part.numbers.items():
        other = part.but(**{number: not value if isinstance(value, bool) else value / 3 + 0.011})
        assert other.text != part.text, f"{number} is not in the text"
        assert other.latex != part.latex, f"{number} is not in the LaTeX"


@pytest.mark.parametrize("kind", sorted(REGISTRY["preference"]))
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_are_refused(kind: str, value: float) -> None:
    part = REGISTRY["preference"][kind]()
    numbers = [name for name, present in part.numbers.items() if not isinstance(present, bool)]
    assert numbers
    for number in numbers:
        with pytest.raises(AlgorithmError, match=number):
            part.but(**{number: value})


def test_a_variant_differs_in_what_was_named() -> None:
    base = PREFERENCES["dpo"]
    assert base.but(loss={"beta": 0.05}).loss == dpo(beta=0.05)
    assert base.but(loss="ipo", name="mine").loss == ipo()
    assert base.but(loss={"kind": "ipo", "beta": 0.2}).loss == ipo(beta=0.2)
    assert base.but(name="mine").loss == base.loss == dpo(beta=0.1)
    assert "0.05 (r_w - r_l)" in base.but(loss={"beta": 0.05}).explain()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": "dop"}, "Did you mean 'dpo'?"),
        ({"loss": {"bata": 0.1}}, "Did you mean 'beta'?"),
        ({"loss": {"beta": 0.0}}, "greater than 0"),
        ({"loss": {"beta": math.inf}}, "a finite number"),
        ({"loss": {"label_smoothing": 0.5}}, "less than 0.5"),
        ({"trust": "clip"}, "has no 'trust'"),
        ({"loss": trust.score()}, "not a part for the slot 'preference'"),
    ],
)
def test_mistakes_are_refused_with_the_way_out(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        PREFERENCES["dpo"].but(**change)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_only_losses_with_a_reference_need_one(name: str) -> None:
    objective = PREFERENCES[name]
    if objective.unpaired:
        return
    without = pairs(reference=False)
    if objective.needs_reference:
        with pytest.raises(AlgorithmError, match="reference log-probabilities"):
            preference_loss(objective, without)
    else:
        loss, report = preference_loss(objective, without)
        torch.testing.assert_close(loss, preference_loss(objective, pairs())[0])
        assert report.means()["preference/accuracy"] >= 0


@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_the_loss_is_the_mean_and_micro_batches_in_any_order_add_up_to_it(name: str) -> None:
    objective = PREFERENCES[name]
    batch = batch_for(objective, count=5)
    loss, report = preference_loss(objective, batch)
    torch.testing.assert_close(loss, objective.loss(batch).mean(), rtol=1e-12, atol=1e-12)
    total, merged = torch.zeros((), dtype=torch.float64), StepReport()
    for index in ([4, 2], [], [0, 3, 1]):
        part, part_report = preference_loss(objective, split(batch, index), total=5)
        assert part.requires_grad
        assert index or part == 0
        total = total + part
        merged.merge(part_report)
    torch.testing.assert_close(total, loss, rtol=1e-12, atol=1e-12)
    nothing, report_of_nothing = preference_loss(objective, split(batch, []))
    assert nothing == 0 and nothing.requires_grad
    assert not any("chosen" in name for name in report_of_nothing.means())
    assert merged.means() == pytest.approx(report.means(), rel=1e-12)
    assert merged.means()["loss/preference"] == pytest.approx(float(loss.detach()), rel=1e-12)


def test_metrics_of_pairs_say_what_happens_to_each_completion() -> None:
    """Both completions grow less likely; only the margin looks well."""
    given = {"reference_chosen": [-4.0, -4.0], "reference_rejected": [-4.0, -4.0]}
    references = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
    batch = Pairs(
        logp_chosen=torch.tensor([-6.0, -8.0], dtype=torch.float64),
        logp_rejected=torch.tensor([-9.0, -8.0], dtype=torch.float64),
        length_chosen=torch.tensor([2, 4]),
        length_rejected=torch.tensor([3, 4]),
        **references,
    )
    means = preference_loss(PREFERENCES["dpo"], batch)[1].means()
    assert means == pytest.approx(
        {
            "preference/accuracy": 0.5,  # a tie is not right
            "preference/margin": 0.15,
            "preference/reward_chosen": -0.3,
            "preference/reward_rejected": -0.45,
            "preference/logp_chosen": -7.0,
            "preference/logp_rejected": -8.5,
            "loss/preference": means["loss/preference"],
        }
    )
    chosen, rejected = rewards(dpo(beta=0.1, length_normalise=True), batch)
    torch.testing.assert_close(chosen, torch.tensor([-0.1, -0.1], dtype=torch.float64))
    torch.testing.assert_close(rejected, torch.tensor([-0.5 / 3, -0.1], dtype=torch.float64))
    chosen, _ = rewards(PREFERENCES["simpo"].loss, batch)
    torch.testing.assert_close(chosen, torch.tensor([-6.0, -4.0], dtype=torch.float64))
    chosen, _ = rewards(PREFERENCES["orpo"].loss, batch)
    torch.testing.assert_close(chosen, batch.log_odds()[0])


def test_metrics_of_labelled_completions() -> None:
    batch = labelled(count=5)
    means = preference_loss(PREFERENCES["kto"], batch)[1].means()
    reward = 0.1 * (batch.logp - batch.reference).detach()
    assert means["preference/reward_desirable"] == pytest.approx(float(reward[::2].mean()))
    assert means["preference/reward_undesirable"] == pytest.approx(float(reward[1::2].mean()))
    assert means["preference/logp_desirable"] == pytest.approx(float(batch.logp.detach()[::2].mean()))
    assert means["preference/reference_point"] == pytest.approx(0.15)


def test_the_shift_of_bco_is_that_before_the_step_and_has_no_gradient() -> None:
    objective = PreferenceObjective("shifted", bco(beta=0.5, decay=0.9))
    batch = pairs(count=4)
    unshifted = bco(beta=0.5)(batch)
    torch.testing.assert_close(objective.loss(batch), unshifted)  # it starts at 0
    memory = batch.memory
    merged = StepReport()
    for index in ([0, 1, 2], [3]):
        merged.merge(preference_loss(objective, split(batch, index), total=4)[1])
    assert memory == {}
    remember(objective, merged, memory)
    mean = float(torch.stack([0.5 * ratio.detach() for ratio in batch.log_ratios()]).mean())
    assert memory[SHIFT] == pytest.approx(0.1 * mean)
    remember(objective, merged, memory)
    assert memory[SHIFT] == pytest.approx(0.19 * mean)
    chosen, rejected = batch.log_ratios()
    z_chosen, z_rejected = 0.5 * chosen - memory[SHIFT], 0.5 * rejected - memory[SHIFT]
    want = (1 + (-z_chosen).exp()).log() + (1 + z_rejected.exp()).log()
    torch.testing.assert_close(objective.loss(batch), want)
    torch.testing.assert_close(bco(beta=0.5)(batch), unshifted)  # a decay of 1 has no shift


def test_losses_without_memory_keep_none_and_a_step_without_pairs_moves_nothing() -> None:
    memory: dict[str, float] = {}
    remember(PREFERENCES["dpo"], preference_loss(PREFERENCES["dpo"], pairs())[1], memory)
    remember(PREFERENCES["bco"].but(loss={"decay": 0.5}), StepReport(), memory)
    assert memory == {}


def test_pairs_and_labelled_completions_are_not_confused() -> None:
    with pytest.raises(AlgorithmError, match="'kto' takes labelled completions"):
        preference_loss(PREFERENCES["kto"], pairs())
    with pytest.raises(AlgorithmError, match="'dpo' takes pairs"):
        preference_loss(PREFERENCES["dpo"], labelled())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"length_rejected": torch.tensor([3, 0])}, "length_rejected is 0 in pair 1"),
        ({"length_chosen": torch.tensor([3])}, r"expected \(2,\)"),
        ({"logp_chosen": torch.zeros(2, 1)}, "flat tensors"),
        ({"reference_chosen": None}, "give both"),
        ({"reference_rejected": torch.zeros(2, requires_grad=True)}, "detach it"),
    ],
)
def test_pairs_that_cannot_be_used_are_refused(change: dict[str, Any], says: str) -> None:
    good = {name: -torch.ones(2) for name in ("logp_chosen", "logp_rejected", "reference_chosen", "reference_rejected")}
    lengths = {"length_chosen": torch.tensor([1, 2]), "length_rejected": torch.tensor([1, 2])}
    Pairs(**good, **lengths)
    with pytest.raises(AlgorithmError, match=says):
        Pairs(**{**good, **lengths, **change})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"desirable": torch.tensor([1, 0])}, "booleans"),
        ({"mismatched": torch.zeros(0)}, "torch.zeros"),
        ({"mismatched": torch.zeros(1, requires_grad=True)}, "detach it"),
        ({"reference": torch.zeros(3)}, r"expected \(2,\)"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(change: dict[str, Any], says: str) -> None:
    good = {"logp": -torch.ones(2), "reference": -torch.ones(2), "desirable": torch.tensor([True, False])}
    Labelled(**good, mismatched=torch.zeros(1))
    with pytest.raises(AlgorithmError, match=says):
        Labelled(**{**good, "mismatched": torch.zeros(1), **change})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=8), st.sampled_from([1.25, 1.5, 2.0]))
def test_long2short_prefers_the_shortest_right_answer(answers: list[tuple[int, bool]], factor: float) -> None:
    lengths, correct = [length for length, _ in answers], [right for _, right in answers]
    found = long2short_pairs(lengths, correct, factor)
    if not any(correct):
        assert found is None
        return
    assert found is not None
    positive, negatives = found
    assert correct[positive] and positive not in negatives
    assert all(lengths[positive] <= length for length, right in answers if right)
    for i, (length, right) in enumerate(answers):
        assert (i in negatives) == (length >= factor * lengths[positive] if right else length > lengths[positive])


def test_long2short_refuses_what_makes_no_pairs() -> None:
    assert long2short_pairs([5, 4], [False, False]) is None
    assert long2short_pairs([5, 6], [True, True]) == (0, ())
    with pytest.raises(AlgorithmError, match="more than 1"):
        long2short_pairs([5, 5], [True, True], factor=1.0)
    with pytest.raises(AlgorithmError, match="2 lengths and 1 labels"):
        long2short_pairs([5, 5], [True])


@pytest.mark.parametrize("length", [0, -3, math.nan, math.inf])
@pytest.mark.parametrize("right", [True, False])
def test_long2short_refuses_lengths_that_no_completion_has(length: Any, right: bool) -> None:
    """An empty right answer would be at least as long as any multiple of itself, and so preferred to itself."""
    with pytest.raises(AlgorithmError, match=f"completion 1 has {length} tokens"):
        long2short_pairs([5, length], [True, right])
