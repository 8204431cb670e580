"""Parts, composition, validation and cards."""

from __future__ import annotations

import copy
import math
import pickle
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from surefoot.algorithms import advantages, aggregation, kl, ratios, trust
from surefoot.algorithms.algorithm import SLOTS, Algorithm
from surefoot.algorithms.config import AlgorithmConfig
from surefoot.algorithms.part import REGISTRY, part
from surefoot.algorithms.presets import PRESETS, grpo
from surefoot.algorithms.tokens import Tokens
from surefoot.config import load
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import Rows


def test_a_variant_differs_in_what_was_named_and_in_nothing_else() -> None:
    variant = grpo.but(trust={"high": 0.28}, aggregation="token_mean")
    assert variant.trust.numbers == {"low": 0.2, "high": 0.28}
    assert variant.aggregation == aggregation.token_mean()
    assert all(getattr(variant, slot) == getattr(grpo, slot) for slot in SLOTS if slot not in ("trust", "aggregation"))
    assert grpo.trust.numbers["high"] == 0.2


def test_configuration_names_a_preset_and_changes_its_parts() -> None:
    algorithm = load(
        AlgorithmConfig, [], {"preset": "dr_grpo", "trust.high": "0.3", "kl": '{kind = "in_loss", coef = 0.1}'}
    ).build()
    assert algorithm.trust == trust.clip(low=0.2, high=0.3)
    assert algorithm.kl == kl.in_loss(coef=0.1)
    assert "trust = clip(low=0.2, high=0.3)" in algorithm.explain()


def test_resolved_configuration_builds_the_same_algorithm() -> None:
    for name, preset in PRESETS.items():
        resolved = AlgorithmConfig(preset=name).resolved()
        again = AlgorithmConfig(**resolved).build()
        assert all(getattr(again, slot) == getattr(preset, slot) for slot in SLOTS)


def test_a_value_becomes_a_section_that_builds_it_again() -> None:
    named = grpo.but(trust={"high": 0.3}, name="mine")
    section = AlgorithmConfig.of(named)
    assert section.build().name == "mine" and section.build().explain().startswith("# mine\n")
    for algorithm in (named, *PRESETS.values(), Algorithm(advantage=advantages.batch_mean())):
        again = AlgorithmConfig.of(algorithm).build()
        assert again.name == algorithm.name
        assert all(getattr(again, slot) == getattr(algorithm, slot) for slot in SLOTS)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"preset": "dr_gpro"}, "Did you mean 'dr_grpo'?"),
        ({"trust": "clpi"}, "Did you mean 'clip'?"),
        ({"trust": {"hihg": 0.3}}, "Did you mean 'high'?"),
        ({"trust": {"low": -1.0}}, "greater than 0"),
        ({"trust": {"low": 0.0}}, "greater than 0"),
        ({"trust": "score"}, "set algorithm.ratio = 'none'"),
        ({"ratio": "none"}, "set algorithm.ratio = 'token'"),
        ({"kl": {"estimator": "k1"}}, "'k2', 'k3' or 'k3_ratio'"),
        ({"advantage": {"ddof": 2}}, "0 or 1"),
    ],
)
def test_contradictions_are_refused_with_the_way_out(changes: dict[str, object], says: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        AlgorithmConfig(**changes).build()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_group_baseline_needs_a_group() -> None:
    for name, preset in PRESETS.items():
        if any("group" in preset.parts[slot].kind.traits for slot in ("advantage", "selection", "shaping")):
            with pytest.raises(AlgorithmError, match=r"train\.group_size"):
                preset.check(group_size=1)
        else:
            assert name.startswith("reinforce") or name in ("remax", "ppo")
            preset.check(group_size=1)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_card_is_made_of_the_parts_that_run(name: str) -> None:
    preset = PRESETS[name]
    text = preset.explain()
    assert text.startswith(f"# {name}\n")
    said = " ".join(text.split())  # long lines are broken
    assert " ".join(preset.advantage.text.split()) in said
    assert " ".join(preset.trust.text.split()) in said
    if preset.ancestor:
        assert f"From **{preset.ancestor}**" in text
        assert preset.ancestor in PRESETS
    assert "arXiv" in text or "1992" in text
    assert not re.search(r"\{\w*(:\w+)?\}", text.split("```")[1]), "a number was not filled in"


def test_numbers_reach_the_card_and_the_loss() -> None:
    rows = Rows([[1.0, 1.0]])
    old = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
    losses = set()
    for high in (0.1, 0.2, 0.3):
        algorithm = grpo.but(kl="none", trust={"high": high})
        assert f"1+{high:g}" in algorithm.explain()
        losses.add(round(rows.loss(algorithm, [[-0.1, -0.2]], [1.0], logp_old=old)[0], 9))
    assert len(losses) == 3


def test_every_documented_kind_has_an_equation_and_a_reason() -> None:
    for slot, kinds in REGISTRY.items():
        for kind in kinds.values():
            if kind.name.startswith("example"):
                continue
            assert kind.doc, f"{slot} {kind.name} has no docstring"
            assert "idle" in kind.traits or kind().text.strip()


def test_a_new_surrogate_is_a_decorated_function() -> None:
    @part(
        "trust",
        "l_it = -4/{tau:g} sigmoid({tau:g} (x_it - 1)) A_it",
        r"\ell_{{it}} = -\tfrac{{4}}{{{tau:g}}}\sigma({tau:g}(x_{{it}}-1))A_{{it}}",
        "ratio",
    )
    def example_soft_gate(tokens: Tokens, ratio: Tensor, *, tau: float = 1.0) -> Tensor:
        """A sigmoid gate instead of a clip."""
        return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * tokens.advantage

    try:
        algorithm = AlgorithmConfig(preset="grpo", kl="none", trust={"kind": "example_soft_gate", "tau": 2.0}).build()
        assert "sigmoid(2 (x_it - 1))" in algorithm.explain()
        rows = Rows([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
        logp, advantage = [[-0.5, -0.4, 0.0], [-1.0, 0.0, 0.0]], [1.0, -1.0]
        _, gradient = rows.loss(algorithm, logp, advantage)
        _, want = rows.loss(Algorithm(aggregation=aggregation.seq_mean_token_mean()), logp, advantage)
        torch.testing.assert_close(gradient, want)  # on policy every surrogate has the gradient of the score function
    finally:
        del REGISTRY["trust"]["example_soft_gate"]


def test_untrusted_slots_are_named() -> None:
    with pytest.raises(AlgorithmError, match="no part 'agregation'"):
        grpo.but(agregation="token_mean")
    with pytest.raises(AlgorithmError, match="not a part for the slot"):
        Algorithm(trust=advantages.reward())
    assert ratios.token(anchor="behaviour").text.endswith("pi_behaviour(y_it)")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_an_algorithm_is_a_value_that_can_be_copied_pickled_and_hashed(name: str) -> None:
    preset = PRESETS[name]
    for same in (copy.copy(preset), copy.deepcopy(preset), pickle.loads(pickle.dumps(preset))):
        assert same == preset and hash(same) == hash(preset)


def test_the_numbers_of_a_part_cannot_be_changed_from_outside() -> None:
    part = PRESETS["gdpo"].but(advantage={"weights": {"a": 1.0}}).advantage
    part.weights["b"] = 2.0
    part.numbers["weights"]["b"] = 2.0
    assert part.weights == {"a": 1.0}
    assert hash(part) == hash(part.but())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trust": {"high": True}}, "high = True: input should be a valid number"),
        ({"trust": {"high": math.nan}}, "should be a finite number"),
        ({"advantage": {"eps": math.inf}}, "should be a finite number"),
        ({"trust": {"kind": {"a": 1}}}, "expected the name of a part"),
        ({"trust": 5}, "expected the name of a part, or a table"),
        ({"trust": {1: 2}}, "has no number '1'"),
        ({"correction": {"kind": "token_mask", "low": 5.0, "high": 0.5}}, "nothing lies between them"),
        ({"trust": {"kind": "truncated_score", "low": 10.0, "high": 1.0}}, "nothing lies between them"),
        ({"kl": {"coef": 0.0}, "reset": "every"}, "resets the reference, and there is none"),
    ],
)
def test_bad_parts_are_one_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AlgorithmError, match=re.escape(message)):
        grpo.but(**change)
    grpo.but(correction={"kind": "token_truncate", "cap": math.inf})


def test_a_part_of_the_library_cannot_be_taken_for_another() -> None:
    with pytest.raises(AlgorithmError, match="'clip' is a part of the library: give yours another name"):

        @part("trust", "mine", "mine", "ratio")
        def clip(tokens: Tokens, ratio: torch.Tensor, *, low: float = 0.2, high: float = 0.2) -> torch.Tensor:
            return -ratio * tokens.advantage

    def example_again(tokens: Tokens, ratio: torch.Tensor) -> torch.Tensor:
        return -ratio * tokens.advantage

    old = part("trust", "l", "l", "ratio")(example_again)
    part("trust", "l", "l", "ratio")(example_again)  # as in a notebook
    with pytest.raises(AlgorithmError, match="is not the part that is registered under the name 'example_again'"):
        AlgorithmConfig.of(grpo.but(trust=old(), name="mine"))


def test_a_variant_keeps_the_words_of_what_it_varies() -> None:
    mine = PRESETS["ppo"].but(advantage={"lam": 0.9}, name="mine", note="My note.")
    built = AlgorithmConfig.of(mine).build()
    assert built.parts == mine.parts and (built.paper, built.note, built.ancestor) == (mine.paper, "My note.", "ppo")
    own = PRESETS["grpo"].but(trust={"high": 0.3}, name="own", paper="Mine (2026).", ancestor="grpo", changes="widens.")
    assert AlgorithmConfig.of(own).build().paper == "Mine (2026)."


def test_a_part_of_a_user_is_checked_where_it_is_made() -> None:
    def example_loss(tokens: Tokens, ratio: torch.Tensor, *, scale=1.0) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return (-scale * ratio * tokens.advantage).mean()

    with pytest.raises(AlgorithmError, match="for the slot 'surrogate', which is not known"):
        part("surrogate", "l", "l")(example_loss)
    with pytest.raises(AlgorithmError, match=r"the trait 'ratoi', which nothing reads. Did you mean 'ratio'\?"):
        part("trust", "l", "l", "ratoi")(example_loss)
    kind = part("trust", "l = {scale:g}", r"\frac{a}{b}", "ratio")(example_loss)
    with pytest.raises(AlgorithmError, match="scale = 'abc'"):
        kind(scale="abc")
    with pytest.raises(AlgorithmError, match="every other brace is written twice"):
        grpo.but(trust=kind()).explain()
    rows = Rows([[1.0, 1.0]])
    with pytest.raises(AlgorithmError, match=r"gave a loss of shape \(\) for 2 tokens: return one number per token"):
        rows.loss(grpo.but(trust=kind(), kl="none"), [[-0.1, -0.2]], [1.0])
