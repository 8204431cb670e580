"""Trust regions over the likeliest tokens, against worked cases."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from surefoot.algorithms import ratios
from surefoot.algorithms.divergence import (
    binary_divergence,
    class_divergence,
    divergence_mask,
    divergence_topk,
    topk_divergence,
)
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import Part
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Totals
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import CASES, Rows, tensor
from tests.algorithms.test_algorithms_golden import close


def whole(mu: Tensor, pi: Tensor, sampled: Tensor, k: int, advantage: Tensor | None = None) -> Tokens:
    """Tokens sampled from distributions mu [M, V], with the k likeliest of each, under the policy pi [M, V]."""
    top = mu.topk(k).indices
    rows = Rows([[1.0]] * len(mu))
    own = sampled[:, None]
    tokens = rows.tokens(
        pi.log().gather(1, own),
        torch.ones(len(mu)) if advantage is None else advantage,
        logp_behaviour=mu.log().gather(1, own),
    )
    return replace(
        tokens,
        top_logp=pi.log().gather(1, top),
        top_logp_behaviour=mu.log().gather(1, top),
        top_is_target=top == own,
    )


def test_dppo_topk() -> None:
    inputs, expected = CASES["dppo_topk"]["inputs"], CASES["dppo_topk"]["expected"]
    mu, pi = tensor([inputs["mu"]]), tensor([inputs["pi"]])
    sampled = torch.tensor([inputs["sampled"]])
    for k in (1, 2, 3, 5):
        tokens = whole(mu, pi, sampled, k)
        for measure in ("tv", "kl"):
            for mode in ("replace", "union"):
                have = topk_divergence(tokens, measure, k, mode)
                close(have, tensor([expected[f"K{k}"][f"{measure}_{mode}"]]))
    for measure in ("tv", "kl"):
        own = whole(mu, pi, sampled, 1)
        # The binary measure adds 1e-8 to both rests, for probabilities that round to 1.
        close(binary_divergence(measure, own.logp, own.logp_behaviour), tensor([expected[f"binary_{measure}"]]), 2e-8)
        close(class_divergence(measure, pi, mu), tensor([expected[f"full_{measure}"]]))


def test_k_cuts_a_longer_list_of_likeliest_tokens() -> None:
    inputs, expected = CASES["dppo_topk"]["inputs"], CASES["dppo_topk"]["expected"]
    tokens = whole(tensor([inputs["mu"]]), tensor([inputs["pi"]]), torch.tensor([inputs["sampled"]]), 5)
    close(topk_divergence(tokens, "kl", 1, "union"), tensor([expected["K1"]["kl_union"]]))
    close(topk_divergence(tokens, "kl", 2, "replace"), tensor([expected["K2"]["kl_replace"]]))
    close(topk_divergence(tokens, "kl", 50, "union"), tensor([expected["full_kl"]]))


def test_the_likeliest_tokens_show_what_the_sampled_one_does_not() -> None:
    # The sampled token keeps its probability; the mass moves between two others.
    mu, pi = tensor([[0.1, 0.6, 0.2, 0.1]]), tensor([[0.11, 0.2, 0.59, 0.1]])
    tokens = whole(mu, pi, torch.tensor([0]), 2, torch.tensor([1.0]))
    ratio = ratios.token(anchor="behaviour")(tokens)
    assert counted(divergence_mask(delta=0.15), tokens, ratio)["masked"].tolist() == [False]
    assert counted(divergence_topk(delta=0.15, k=2), tokens, ratio)["masked"].tolist() == [True]
    assert divergence_topk(delta=0.15, k=2)(tokens, ratio).tolist() == [0.0]
    back = replace(tokens, advantage=torch.tensor([-1.0], dtype=torch.float64))
    assert counted(divergence_topk(delta=0.15, k=2), back, ratio)["masked"].tolist() == [False]


def counted(part: Part, tokens: Tokens, ratio: Tensor) -> dict[str, Tensor]:
    assert part.kind.shares is not None
    return part.kind.shares(tokens, ratio, **part.numbers)


def test_divergence_is_that_of_the_whole_distribution_where_top_p_cut_it() -> None:
    mu, pi = tensor([[0.5, 0.3, 0.15, 0.05]]), tensor([[0.75, 0.1, 0.1, 0.05]])
    kept = tensor([math.log(0.8)])  # top-p = 0.8 kept the first two
    tokens = whole(mu, pi, torch.tensor([0]), 2, torch.tensor([1.0]))
    cut = replace(tokens, logp=tokens.logp - kept, logp_behaviour=tokens.logp_behaviour - kept, kept_logmass=kept)
    for measure in ("tv", "kl"):
        for mode in ("union", "replace"):
            close(topk_divergence(cut, measure, 2, mode), topk_divergence(tokens, measure, 2, mode))
        ratio = tensor([1.5])
        for delta in (0.05, 0.3):
            part = divergence_mask(measure=measure, delta=delta)
            one, other = (counted(part, given, ratio)["masked"] for given in (cut, tokens))
            assert one.tolist() == other.tolist()
    # Renormalised by the mass that mu kept, pi's probability is 0.94: the others have 0.06, not 0.25.
    close(
        binary_divergence("kl", cut.logp + kept, cut.logp_behaviour + kept),
        tensor([0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)]),
        1e-7,
    )


def test_topk_survives_probabilities_of_zero_and_one() -> None:
    zero, one = -math.inf, 0.0
    tokens = whole(tensor([[0.5, 0.5]] * 3), tensor([[0.5, 0.5]] * 3), torch.tensor([0, 0, 0]), 2)
    tokens = replace(
        tokens,
        top_logp=tensor([[zero, one], [one, zero], [-1.0, zero]]),
        top_logp_behaviour=tensor([[one, zero], [one, zero], [-1.0, zero]]),
    )
    for measure in ("tv", "kl"):
        for mode in ("union", "replace"):
            have = topk_divergence(tokens, measure, 2, mode)
            assert have.isfinite().all()
            assert have[0] > 0.9 and have[1].abs() < 1e-9 and have[2].abs() < 1e-9


def test_listed_probabilities_that_add_up_to_more_than_one_leave_nothing_for_the_rest() -> None:
    pi, mu = tensor([[0.6, 0.4 + 1e-7]]), tensor([[0.6, 0.4]])  # what float32 may make of two tokens that are all
    close(class_divergence("tv", pi, mu), tensor([0.5e-7]), 1e-11)


def test_topk_without_the_likeliest_tokens_says_what_to_do() -> None:
    rows = Rows([[1.0]])
    tokens = rows.tokens(tensor([[-1.0]]), [1.0])
    with pytest.raises(AlgorithmError, match=r"top_logprobs.*divergence_mask"):
        divergence_topk()(tokens, tensor([1.0]))


def test_topk_composes_with_an_algorithm_and_says_how_many_tokens_it_needs() -> None:
    algorithm = PRESETS["dppo_tv"].but(trust=divergence_topk(k=2, delta=0.1))
    assert algorithm.top_logprobs == 2 and PRESETS["dppo_tv"].top_logprobs == 0
    assert "top 2 of mu" in algorithm.explain()
    generator = torch.Generator().manual_seed(0)
    mu, pi = (torch.rand(12, 6, generator=generator, dtype=torch.float64).softmax(1) for _ in range(2))
    sampled = torch.randint(0, 6, (12,), generator=generator)
    tokens = whole(mu, pi, sampled, 2, torch.randn(12, generator=generator))
    leaf = tokens.logp.clone().requires_grad_()
    loss, report = policy_loss(algorithm, replace(tokens, logp=leaf), Totals(12.0, 12.0, 12.0, 1.0))
    loss.backward()
    ratio = (pi / mu).gather(1, sampled[:, None]).squeeze(1)
    outside = counted(algorithm.trust, tokens, ratio)["masked"]
    assert leaf.grad is not None
    close(leaf.grad, torch.where(outside, 0.0, -ratio * tokens.advantage / 12))
    close(report.means()["policy/masked"], outside.double().mean())
    with pytest.raises(AlgorithmError, match="anchor = 'behaviour'"):
        algorithm.but(ratio={"anchor": "old"})
    with pytest.raises(AlgorithmError, match="correct a second time"):
        algorithm.but(correction="token_truncate")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_divergence_masks_what_it_cannot_measure(value: float) -> None:
    tokens = whole(tensor([[0.6, 0.4]] * 2), tensor([[0.5, 0.5]] * 2), torch.tensor([0, 0]), 2)
    tokens = replace(tokens, logp_behaviour=tensor([value, math.log(0.6)]))
    ratio = (tokens.logp - tokens.logp_behaviour).exp()
    for part in (divergence_mask(), divergence_topk(k=2), divergence_mask(measure="kl"), divergence_topk(measure="kl")):
        for sign in (1.0, -1.0):
            loss = part(replace(tokens, advantage=tensor([sign, sign])), ratio)
            assert loss[0] == 0 and loss[1] != 0 and loss.isfinite().all()
