"""Every number of every part changes what the part computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.preference import SHIFT
from surefoot.algorithms.preference_objective import PreferenceObjective
from surefoot.algorithms.preference_pairs import Labelled, Pairs
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.prompts import PromptTable
from surefoot.algorithms.reset import Course
from surefoot.algorithms.table import RewardTable, StepTable
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals

# Another value for each number, and the base that it acts on where the default hides it.
CHANGES: dict[tuple[str, str, str], tuple[Any, dict[str, Any]]] = {
    ("advantage", "moving_average", "decay"): (0.5, {}),
    ("advantage", "group_norm", "ddof"): (0, {}),
    ("advantage", "group_norm", "eps"): (0.1, {}),
    ("advantage", "batch_scaled", "ddof"): (0, {}),
    ("advantage", "batch_scaled", "eps"): (0.1, {}),
    ("advantage", "entropy_weighted", "sharpness"): (1.0, {}),
    ("advantage", "entropy_weighted", "ddof"): (0, {}),
    ("advantage", "entropy_weighted", "eps"): (0.1, {}),
    ("advantage", "decoupled", "weights"): ({"a": 1.0, "b": 3.0}, {}),
    ("advantage", "decoupled", "conditions"): ({"b": "a"}, {}),
    ("advantage", "decoupled", "threshold"): (0.1, {"conditions": {"b": "a"}}),
    ("advantage", "decoupled", "ddof"): (0, {}),
    ("advantage", "decoupled", "eps"): (0.1, {}),
    ("advantage", "decoupled", "weighting"): ("tokens", {}),
    ("advantage", "maximum_likelihood", "form"): ("conditional", {}),
    ("advantage", "maximum_likelihood", "order"): (2, {"form": "subset"}),
    ("advantage", "whitened_group_mean", "weighting"): ("rows", {}),
    ("advantage", "whitened_group_mean", "ddof"): (0, {}),
    ("advantage", "soft_mean", "tau"): (0.1, {}),
    ("advantage", "gae", "gamma"): (0.5, {}),
    ("advantage", "gae", "lam"): (0.5, {}),
    ("advantage", "gae", "whiten"): (False, {}),
    ("advantage", "gae", "ddof"): (0, {}),
    ("advantage", "gae", "bootstrap_truncated"): (True, {}),
    ("advantage", "reward_to_go", "gamma"): (0.5, {}),
    ("advantage", "reward_to_go", "whiten"): (False, {}),
    ("advantage", "reward_to_go", "ddof"): (0, {}),
    ("advantage", "process", "ddof"): (0, {}),
    ("advantage", "process", "eps"): (0.1, {}),
    ("shaping", "soft_overlong", "share"): (0.9, {}),
    ("shaping", "soft_overlong", "tokens"): (3, {}),
    ("shaping", "soft_overlong", "factor"): (0.5, {}),
    ("shaping", "length_reward", "weight"): (0.5, {}),
    ("shaping", "length_reward", "warmup_steps"): (1, {}),
    ("shaping", "stop_properly", "coef"): (-0.5, {}),
    ("selection", "refill", "measure"): ("reward", {}),
    ("value", "squared", "clip"): (0.5, {}),
    ("ratio", "token", "anchor"): ("behaviour", {}),
    ("ratio", "sequence", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_token", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_sum", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_log", "anchor"): ("behaviour", {}),
    ("ratio", "sequence_log", "length_normalise"): (True, {}),
    ("trust", "clip", "low"): (0.5, {}),
    ("trust", "clip", "high"): (0.5, {}),
    ("trust", "dual_clip", "low"): (0.5, {}),
    ("trust", "dual_clip", "high"): (0.5, {}),
    ("trust", "dual_clip", "bound"): (1.1, {}),
    ("trust", "truncated_score", "low"): (0.9, {}),
    ("trust", "truncated_score", "high"): (1.1, {}),
    ("trust", "divergence_mask", "measure"): ("kl", {"delta": 0.05}),
    ("trust", "divergence_mask", "delta"): (0.9, {"delta": 0.01}),
    ("trust", "divergence_topk", "measure"): ("kl", {"k": 2}),
    ("trust", "divergence_topk", "delta"): (0.9, {"delta": 0.01, "k": 2}),
    ("trust", "divergence_topk", "k"): (4, {"k": 1}),
    ("trust", "divergence_topk", "sampled"): ("replace", {"k": 1}),
    ("trust", "quadratic", "tau"): (0.5, {}),
    ("weights", "high_entropy", "share"): (0.5, {}),
    ("weights", "high_entropy", "denominator"): ("all", {}),
    ("weights", "high_entropy", "side"): ("low", {}),
    ("prompts", "no_positive_resampling", "rate"): (0.4, {}),
    ("prompts", "prioritised", "unseen"): (0.5, {}),
    ("prompts", "prioritised", "floor"): (0.3, {}),
    ("prompts", "curriculum", "start"): (0.6, {}),
    ("prompts", "curriculum", "steps"): (2, {}),
    ("prompts", "prioritised_curriculum", "start"): (0.6, {}),
    ("prompts", "prioritised_curriculum", "steps"): (2, {}),
    ("prompts", "prioritised_curriculum", "unseen"): (0.5, {"start": 1.0}),
    ("prompts", "prioritised_curriculum", "floor"): (0.3, {"start": 1.0}),
    ("prompts", "levels", "review"): (0.5, {}),
    ("interruption", "force_answer", "share"): (0.5, {}),
    ("reset", "every", "steps"): (3, {"steps": 4}),
    ("reset", "on_stagnation", "patience"): (3, {}),
    ("reset", "on_stagnation", "threshold"): (0.15, {}),
    ("correction", "token_truncate", "cap"): (1.01, {}),
    ("correction", "seq_truncate", "cap"): (1.01, {}),
    ("correction", "token_mask", "low"): (0.95, {}),
    ("correction", "token_mask", "high"): (1.05, {}),
    ("correction", "token_mask", "binary"): (True, {}),
    ("correction", "seq_mask", "low"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "seq_mask", "high"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "seq_mask", "binary"): (True, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "low"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "high"): (1.01, {"low": 0.0, "high": 9.0}),
    ("correction", "geo_mask", "binary"): (True, {"low": 0.0, "high": 9.0}),
    ("correction", "off_policy_mask", "delta"): (9.0, {"delta": 0.0}),
    ("kl", "in_loss", "coef"): (0.5, {}),
    ("kl", "in_loss", "estimator"): ("k2", {}),
    ("kl", "in_reward", "coef"): (0.5, {}),
    ("kl", "in_reward", "estimator"): ("k3", {}),
    ("kl", "in_reward", "target"): (0.01, {}),
    ("kl", "in_reward", "horizon"): (100.0, {"target": 0.01}),
    ("preference", "dpo", "beta"): (0.5, {}),
    ("preference", "dpo", "label_smoothing"): (0.2, {}),
    ("preference", "dpo", "length_normalise"): (True, {}),
    ("preference", "ipo", "beta"): (0.5, {}),
    ("preference", "ipo", "length_normalise"): (True, {}),
    ("preference", "hinge", "beta"): (0.5, {}),
    ("preference", "simpo", "beta"): (1.0, {}),
    ("preference", "simpo", "gamma"): (0.5, {}),
    ("preference", "nca", "beta"): (0.5, {}),
    ("preference", "sppo_hard", "beta"): (0.5, {}),
    ("preference", "cal_dpo", "beta"): (0.5, {}),
    ("preference", "apo_zero", "beta"): (0.5, {}),
    ("preference", "apo_down", "beta"): (0.5, {}),
    ("preference", "bco", "beta"): (0.5, {}),
    ("preference", "bco", "decay"): (0.9, {}),
    ("preference", "orpo_align", "beta"): (1.0, {}),
    ("preference", "asft_align", "beta"): (1.0, {}),
    ("preference", "orpo", "weight"): (0.5, {}),
    ("preference", "asft", "weight"): (0.5, {}),
    ("preference", "kto", "beta"): (0.5, {}),
    ("preference", "kto", "weight_desirable"): (2.0, {}),
    ("preference", "kto", "weight_undesirable"): (2.0, {}),
}

# Numbers that the training loop reads; the part itself does not.
READ_IN_TRAINING = {
    ("selection", "refill", "rounds"),
    ("value", "squared", "coef"),
    ("kl", "in_reward", "after_baseline"),
    ("prompts", "levels", "rate"),
    ("prompts", "levels", "samples"),
}

# Numbers that the part only states: whoever applies the part reads them, and the card prints them.
STATED: dict[tuple[str, str, str], Any] = {
    ("interruption", "force_answer", "phrase"): "Answer now: ",
    ("interruption", "force_answer", "close"): "",
    **{
        ("reset", name, number): value
        for name in ("every", "on_stagnation")
        for number, value in (("reference", False), ("optimiser", False), ("alpha", 0.6))
    },
}


def all_numbers() -> set[tuple[str, str, str]]:
    return {
        (slot, kind.name, number)
        for slot, kinds in REGISTRY.items()
        for kind in kinds.values()
        if not kind.name.startswith("example")
        for number in kind.schema.model_fields
    }


def test_every_number_has_a_row() -> None:
    assert set(CHANGES) | READ_IN_TRAINING | set(STATED) == all_numbers()
    assert not set(CHANGES) & (READ_IN_TRAINING | set(STATED))


def table() -> RewardTable:
    reward = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    other = torch.tensor([0.2, 0.9, 0.4, 0.1, 0.8, 0.3, 0.6, 0.5], dtype=torch.float64)
    group = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    length = torch.tensor([4.0, 2.0, 3.0, 1.0, 2.0, 4.0, 4.0, 3.0], dtype=torch.float64)
    # The hard part is between 0.1 and 1 in some rows, so that the threshold of a condition matters.
    hard = torch.where(reward > 0, reward, 0.5 * (other > 0.5))
    generator = torch.Generator().manual_seed(4)
    tokens = [-torch.rand(23, generator=generator, dtype=torch.float64) for _ in range(4)]
    return RewardTable(
        reward,
        torch.ones(8, dtype=torch.bool),
        group,
        length,
        {"a": hard, "b": other},
        memory={},
        truncated=torch.tensor([True, False, False, False, False, True, True, False]),
        budget=4.0,
        steps=StepTable(torch.tensor([0, 0, 1, 2, 4, 5, 5]), torch.tensor([1, 3, 0, 2, 1, 0, 3]), other[:7]),
        logp_old=tokens[0],
        logp_reference=tokens[1],
        values=tokens[2],
        token_penalty=0.1 * tokens[3],
    )


def tokens() -> Tokens:
    generator = torch.Generator().manual_seed(3)

    def draw(scale: float) -> torch.Tensor:
        return scale * torch.randn(24, generator=generator, dtype=torch.float64)

    base = -1.0 - draw(0.3).abs()
    lengths = torch.full((6,), 4.0, dtype=torch.float64)
    return Tokens(
        logp=(base + draw(0.5)).clamp(max=-0.01),
        logp_old=base,
        logp_behaviour=base + draw(0.2),
        entropy=torch.rand(24, generator=torch.Generator().manual_seed(4), dtype=torch.float64),
        advantage=torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0], dtype=torch.float64).repeat_interleave(4),
        row=torch.arange(6).repeat_interleave(4),
        loss_tokens=lengths,
        group_tokens=2 * lengths,
        logp_reference=base + draw(0.4),
    )


def preferences(unpaired: bool) -> Pairs | Labelled:
    chosen = torch.tensor([-12.0, -9.0, -20.0], dtype=torch.float64)
    rejected = torch.tensor([-15.0, -8.0, -31.0], dtype=torch.float64)
    references = torch.tensor([[-13.0, -9.5, -18.0], [-14.0, -7.0, -29.0]], dtype=torch.float64)
    if unpaired:
        return Labelled(chosen, references[0], torch.tensor([True, False, True]), torch.tensor([0.3, 0.5]))
    lengths = torch.tensor([[10, 6, 20], [12, 5, 31]])
    return Pairs(chosen, rejected, *references, *lengths, memory={SHIFT: 0.3})


def whole_distributions() -> Tokens:
    """Tokens with the likeliest four of a vocabulary of eight, under two policies; some sampled tokens are among them."""
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(24, 8, generator=generator, dtype=torch.float64)
    mu = logits.log_softmax(1)
    pi = (logits + torch.randn(24, 8, generator=generator, dtype=torch.float64)).log_softmax(1)
    target = torch.randint(0, 8, (24,), generator=generator)
    top = mu.topk(4).indices
    return replace(
        tokens(),
        logp=pi.gather(1, target[:, None]).squeeze(1),
        logp_behaviour=mu.gather(1, target[:, None]).squeeze(1),
        top_logp=pi.gather(1, top),
        top_logp_behaviour=mu.gather(1, top),
        top_is_target=top == target[:, None],
    )


def prompt_table() -> PromptTable:
    return PromptTable(
        graded=np.array([0, 10, 10, 10, 10]),
        right=np.array([0, 10, 5, 9, 0]),
        difficulty=np.array([3.0, 1.0, 2.0, 2.0, np.nan]),
        step=3,
        level=1,
    )


def courses() -> list[Course]:
    accuracy = [0.1, 0.5, 0.6, 0.4, 0.55, 0.3, 0.7]
    return [Course(step, 0, [(i, accuracy[i]) for i in range(step + 1)]) for step in range(len(accuracy))]


def result(part: Part) -> torch.Tensor:
    if part.slot == "preference":
        return part(preferences(PreferenceObjective("any", part).unpaired))
    if part.slot in ("advantage", "shaping"):
        found = part(table())
        return torch.cat(found) if isinstance(found, tuple) else found
    if part.slot == "selection":
        # Every answer of the first group is right, with rewards that differ.
        return part(replace(table(), correct=torch.tensor([True] * 4 + [True, False] * 2))).double()
    if "reward" in part.kind.traits:
        rows = table()
        part(rows)
        return part(rows)  # of the second batch: an adaptive coefficient has adapted
    if part.slot == "value":
        old, values, returns = (torch.linspace(start, 1.0, 8, dtype=torch.float64) for start in (-1.0, 0.2, 0.9))
        return part(values, old, returns)
    if part.slot == "prompts":
        return torch.from_numpy(part(prompt_table()))
    if part.slot == "interruption":
        return torch.tensor(float(part(100)))
    if part.slot == "reset":
        return torch.tensor([float(part(course)) for course in courses()])
    given = whole_distributions() if "topk" in part.kind.traits else tokens()
    if part.slot == "trust":
        return part(given, (given.logp - given.logp_behaviour).exp())
    return part(given)


@pytest.mark.parametrize("row", sorted(CHANGES), ids=".".join)
def test_the_number_changes_the_result(row: tuple[str, str, str]) -> None:
    slot, name, number = row
    value, base = CHANGES[row]
    before = REGISTRY[slot][name](**base)
    after = before.but(**{number: value})
    assert before.numbers[number] != after.numbers[number]
    one, other = result(before), result(after)
    assert one.isfinite().all() and other.isfinite().all()
    assert not torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("row", sorted(STATED), ids=".".join)
def test_a_number_that_the_part_states_changes_its_equation(row: tuple[str, str, str]) -> None:
    slot, name, number = row
    before = REGISTRY[slot][name]()
    after = before.but(**{number: STATED[row]})
    assert before.text != after.text
    assert before.latex != after.latex


def test_every_part_stands_in_an_algorithm_and_its_loss_is_finite() -> None:
    totals = Totals(24.0, 6.0, 3.0, 8.0)
    for preset in PRESETS.values():
        given = whole_distributions() if preset.top_logprobs else tokens()
        loss, report = policy_loss(preset, given, totals)
        assert loss.isfinite()
        assert all(torch.isfinite(torch.tensor(value)) for value in report.means().values())
