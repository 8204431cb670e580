"""Identities of trust regions, corrections and token weights over random shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot.algorithms import advantages, aggregation, correction, kl, ratios, trust, weights
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.divergence import (
    binary_divergence,
    class_divergence,
    divergence_mask,
    divergence_topk,
    topk_divergence,
)
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.part import REGISTRY
from surefoot.algorithms.presets import PRESETS
from surefoot.algorithms.tokens import Tokens
from tests.algorithms.batches import AGGREGATIONS, batches, draw_logp, full, table_of
from tests.algorithms.harness import Rows
from tests.algorithms.test_algorithms_golden import clipped_tokens

Draw = tuple[Rows, torch.Generator]


def draw_advantage(rows: Rows, generator: torch.Generator) -> Tensor:
    return torch.randn(len(rows.mask), generator=generator, dtype=torch.float64)


def same(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> None:
    """Value and gradient."""
    torch.testing.assert_close(one[0], other[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(one[1], other[1], rtol=1e-10, atol=1e-10)


def masked(algorithm: Algorithm, tokens: Tokens) -> Tensor:
    shares = algorithm.trust.kind.shares
    assert shares is not None
    return shares(tokens, algorithm.ratio(tokens), **algorithm.trust.numbers)["masked"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**31), st.floats(0.01, 0.9))
def test_identity_06_gspo_of_rows_of_one_token_is_grpo(count: int, seed: int, bound: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, 1, generator=generator) < 0.8
    rows = Rows(mask.double().tolist())
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    advantage = draw_advantage(rows, generator).tolist()
    changes = {"trust": {"low": bound, "high": bound}, "kl": "none"}
    grpo, gspo, token = (
        rows.loss(PRESETS[name].but(**changes), logp.tolist(), advantage, logp_old=old)
        for name in ("grpo", "gspo", "gspo_token")
    )
    same(gspo, grpo)
    same(token, grpo)


@settings(max_examples=60, deadline=None)
@given(batches(), st.floats(0.01, 0.9))
def test_identity_07_gspo_token_with_one_advantage_per_row_is_gspo(batch: Draw, bound: float) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    advantage = draw_advantage(rows, generator).tolist()
    one, other = (
        rows.loss(PRESETS[name].but(trust={"low": bound, "high": bound}), logp.tolist(), advantage, logp_old=old)
        for name in ("gspo", "gspo_token")
    )
    same(one, other)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS), st.floats(0.01, 0.9))
def test_identity_08_cispo_is_ppo_where_nothing_is_clipped(batch: Draw, mode: str, bound: float) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    advantage = draw_advantage(rows, generator)
    base = Algorithm(ratio=ratios.token(), trust=trust.unclipped(), aggregation=getattr(aggregation, mode)())

    def gradient(part: Any) -> Tensor:
        return rows.loss(base.but(trust=part), logp.tolist(), advantage.tolist(), logp_old=old)[1]

    plain = gradient(trust.unclipped())
    torch.testing.assert_close(gradient(trust.truncated_score(high=math.inf)), plain, rtol=1e-10, atol=1e-10)
    ratio, up = (logp - old).exp(), advantage[:, None] > 0
    kept = rows.mask & ~((up & (ratio > 1 + bound)) | (~up & (ratio < 1 - bound)))
    clipped = gradient(trust.clip(low=bound, high=bound))
    soft = gradient(trust.truncated_score(high=math.inf))
    torch.testing.assert_close(clipped, torch.where(kept, soft, 0.0), rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.floats(0.01, 0.9), st.floats(0.01, 2), st.floats(0.01, 5))
def test_identity_09_dual_clip_is_a_ratio_cut_before_the_clip(
    batch: Draw, low: float, high: float, further: float
) -> None:
    rows, generator = batch
    bound = 1 + high + further
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    tokens = rows.tokens(logp, draw_advantage(rows, generator), logp_old=old)
    ratio = ratios.token()(tokens)
    have = trust.dual_clip(low=low, high=high, bound=bound)(tokens, ratio)
    # TRL's delta: the ratio is cut at delta, then the pessimistic minimum is taken.
    want = -torch.minimum(ratio.clamp(max=bound) * tokens.advantage, ratio.clamp(1 - low, 1 + high) * tokens.advantage)
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(batches(), st.floats(0.01, 0.5))
def test_identity_10_dppo_by_total_variation_is_ppo_with_a_bound_for_each_token(batch: Draw, delta: float) -> None:
    rows, generator = batch
    logp, behaviour = draw_logp(rows, generator).requires_grad_(), draw_logp(rows, generator)
    tokens = rows.tokens(logp, draw_advantage(rows, generator), logp_behaviour=behaviour)
    algorithm = PRESETS["dppo_tv"].but(trust={"delta": delta})
    width = delta / tokens.logp_behaviour.exp()
    ratio = algorithm.ratio(tokens)
    clipped = -torch.minimum(ratio * tokens.advantage, ratio.clamp(1 - width, 1 + width) * tokens.advantage)
    (want,) = torch.autograd.grad(clipped.sum(), logp, retain_graph=True)
    (have,) = torch.autograd.grad(algorithm.trust(tokens, ratio).sum(), logp)
    torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)
    assert masked(algorithm, tokens).tolist() == (want[rows.mask] == 0).tolist()


@settings(max_examples=40, deadline=None)
@given(batches(), st.floats(1, 5), st.sampled_from(AGGREGATIONS))
def test_identity_11_dppo_with_a_threshold_of_one_masks_nothing(batch: Draw, delta: float, mode: str) -> None:
    rows, generator = batch
    leaf = draw_logp(rows, generator).requires_grad_()
    tokens = full(rows, generator, leaf)
    tokens = replace(tokens, logp_behaviour=tokens.logp_behaviour.clamp(max=0.0))
    base = Algorithm(
        ratio=ratios.token(anchor="behaviour"), trust=trust.unclipped(), aggregation=getattr(aggregation, mode)()
    )
    gradients = []
    for part in (trust.unclipped(), divergence_mask(delta=delta)):
        loss, _ = policy_loss(base.but(trust=part), tokens, rows.totals)
        gradients.append(torch.autograd.grad(loss, leaf, retain_graph=True)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 9), st.integers(1, 9), st.integers(0, 2**31), st.floats(0.1, 5), st.sampled_from(["tv", "kl"]))
def test_identity_12_more_classes_see_a_larger_divergence(
    vocabulary: int, k: int, seed: int, spread: float, measure: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mu, pi = (spread * torch.randn(2, 5, vocabulary, generator=generator, dtype=torch.float64)).log_softmax(2)
    own = torch.randint(0, vocabulary, (5, 1), generator=generator)
    rows = Rows([[1.0]] * 5)
    tokens = rows.tokens(pi.gather(1, own), [1.0] * 5, logp_behaviour=mu.gather(1, own))

    def listed(count: int) -> Tokens:
        top = mu.topk(count).indices
        return replace(
            tokens, top_logp=pi.gather(1, top), top_logp_behaviour=mu.gather(1, top), top_is_target=top == own
        )

    k, tiny = min(k, vocabulary), 1e-6  # the binary measure adds 1e-8 to both rests
    binary = binary_divergence(measure, tokens.logp, tokens.logp_behaviour)
    complete = class_divergence(measure, pi.exp(), mu.exp())
    for mode in ("union", "replace"):
        part = topk_divergence(listed(k), measure, k, mode)
        assert (binary <= part + tiny).all() and (part <= complete + tiny).all()
        torch.testing.assert_close(topk_divergence(listed(vocabulary), measure, vocabulary, mode), complete)
    # One class of its own for the sampled token is the binary measure.
    alone = topk_divergence(replace(listed(1), top_is_target=torch.zeros(5, 1).bool()), measure, 1, "replace")
    torch.testing.assert_close(alone, binary, rtol=tiny, atol=tiny)


@settings(max_examples=60, deadline=None)
@given(batches(), st.floats(0.01, 2))
def test_identity_20_kimi_on_policy_is_reinforce_and_the_squared_form_has_its_gradient(batch: Draw, tau: float) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    rewards = torch.rand(len(rows.mask), generator=generator, dtype=torch.float64)
    advantage = advantages.group_mean()(table_of(rewards, rows.group))
    kimi = Algorithm(
        ratio=ratios.sequence_log(), trust=trust.quadratic(tau=tau), aggregation=aggregation.seq_mean_token_mean()
    )
    score = Algorithm(aggregation=aggregation.seq_mean_token_sum())
    _, have = rows.loss(kimi, logp.tolist(), advantage.tolist())
    _, want = rows.loss(score, logp.tolist(), advantage.tolist())
    torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)

    leaf = logp.clone().requires_grad_()
    x = ((leaf - old) * rows.mask).sum(1)
    squared = ((advantage - tau * x) ** 2)[rows.lengths > 0].sum() / max(1.0, rows.totals.sequences)
    _, have = rows.loss(kimi, logp.tolist(), advantage.tolist(), logp_old=old)
    torch.testing.assert_close(2 * tau * have, torch.autograd.grad(squared, leaf)[0], rtol=1e-10, atol=1e-10)


CORRECTIONS = sorted(name for name in REGISTRY["correction"] if name != "none")


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS))
def test_identity_21_uncapped_tis_is_importance_sampling(batch: Draw, mode: str) -> None:
    rows, generator = batch
    advantage = draw_advantage(rows, generator).tolist()
    logp, old, behaviour = (draw_logp(rows, generator) for _ in range(3))
    uncapped = Algorithm(
        ratio=ratios.token(),
        trust=trust.unclipped(),
        correction=correction.token_truncate(cap=math.inf),
        aggregation=getattr(aggregation, mode)(),
    )
    direct = uncapped.but(ratio=ratios.token(anchor="behaviour"), correction="none")
    streams = {"logp_old": old, "logp_behaviour": behaviour}
    same(
        rows.loss(uncapped, logp.tolist(), advantage, **streams), rows.loss(direct, logp.tolist(), advantage, **streams)
    )


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(AGGREGATIONS))
def test_identity_22_decoupled_ppo(batch: Draw, mode: str) -> None:
    rows, generator = batch
    advantage = draw_advantage(rows, generator).tolist()
    logp, old, behaviour = (draw_logp(rows, generator) for _ in range(3))
    decoupled = PRESETS["decoupled_ppo"].but(aggregation=mode)
    plain = clipped_tokens.but(aggregation=mode)
    same(
        rows.loss(decoupled, logp.tolist(), advantage, logp_old=old, logp_behaviour=old),
        rows.loss(plain, logp.tolist(), advantage, logp_old=old),
    )
    # What is not clipped is weighted by pi / mu in all.
    tokens = rows.tokens(logp, advantage, logp_old=old, logp_behaviour=behaviour)
    ratio = decoupled.ratio(tokens)
    free = (ratio > 0.8) & (ratio < 1.2)
    loss = decoupled.correction(tokens) * decoupled.trust(tokens, ratio)
    want = -(tokens.logp - tokens.logp_behaviour).exp() * tokens.advantage
    torch.testing.assert_close(loss[free], want[free], rtol=1e-10, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(["k2", "k3", "k3_ratio"]), st.sampled_from(AGGREGATIONS))
def test_identity_23_right_after_a_reset_the_kl_and_its_gradient_are_zero(
    batch: Draw, estimator: str, mode: str
) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    plain = clipped_tokens.but(trust={"high": 0.4}, aggregation=mode)
    penalised = plain.but(kl=kl.in_loss(coef=0.5, estimator=estimator))
    advantage = draw_advantage(rows, generator).tolist()
    same(
        rows.loss(penalised, logp.tolist(), advantage, logp_old=old, logp_reference=logp),
        rows.loss(plain, logp.tolist(), advantage, logp_old=old),
    )


@settings(max_examples=60, deadline=None)
@given(batches(), st.floats(0.05, 1), st.sampled_from(["high", "low"]))
def test_identity_35_entropy_weights(batch: Draw, share: float, side: str) -> None:
    rows, generator = batch
    leaf = draw_logp(rows, generator).requires_grad_()
    tokens = full(rows, generator, leaf)
    dapo = clipped_tokens.but(trust={"high": 0.28})

    def loss(part: Any) -> tuple[float, Tensor]:
        value, _ = policy_loss(dapo.but(weights=part), replace(tokens, weight=part(tokens)), rows.totals)
        return float(value.detach()), torch.autograd.grad(value, leaf, retain_graph=True)[0]

    plain, everything = loss(weights.all_tokens()), loss(weights.high_entropy(share=1.0, side=side))
    same(everything, plain)
    part = weights.high_entropy(share=share, side=side)
    selected, total = int((part(tokens) > 0).sum()), len(tokens.logp)
    chosen, other = loss(part), loss(part.but(denominator="all"))
    factor = selected / max(1, total)
    same(other, (factor * chosen[0], factor * chosen[1]))
    # The mean over the selected tokens, as if there were no others.
    kept = part(tokens) > 0
    want = dapo.trust(tokens, dapo.ratio(tokens))[kept].sum() / max(1, selected)
    torch.testing.assert_close(chosen[0], float(want.detach()), rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from(CORRECTIONS), st.sampled_from(AGGREGATIONS))
def test_identity_42_corrections_of_an_engine_that_agrees_do_nothing(batch: Draw, name: str, mode: str) -> None:
    rows, generator = batch
    logp, old = draw_logp(rows, generator), draw_logp(rows, generator)
    # A row that the policy has left is dropped by off_policy_mask whatever the engine reports, unless delta forbids it.
    part = correction.off_policy_mask(delta=math.inf) if name == "off_policy_mask" else REGISTRY["correction"][name]()
    plain = clipped_tokens.but(aggregation=mode)
    advantage = draw_advantage(rows, generator).tolist()
    same(
        rows.loss(plain.but(correction=part), logp.tolist(), advantage, logp_old=old, logp_behaviour=old),
        rows.loss(plain, logp.tolist(), advantage, logp_old=old, logp_behaviour=old),
    )


PARTS: list[Callable[[], Any]] = [divergence_mask, lambda: divergence_mask(measure="kl", delta=0.05), divergence_topk]


@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(PARTS), st.sampled_from(AGGREGATIONS))
def test_identity_42_dppo_on_policy_does_nothing(batch: Draw, make: Callable[[], Any], mode: str) -> None:
    rows, generator = batch
    leaf = draw_logp(rows, generator).requires_grad_()
    tokens = full(rows, generator, leaf, logp_old=leaf.detach(), logp_behaviour=leaf.detach())
    tokens = replace(tokens, top_logp=tokens.top_logp_behaviour)
    base = Algorithm(aggregation=getattr(aggregation, mode)())
    bounded = base.but(ratio=ratios.token(anchor="behaviour"), trust=make())
    assert not masked(bounded, tokens).any()
    losses = [policy_loss(algorithm, tokens, rows.totals)[0] for algorithm in (base, bounded)]
    same(*((float(x.detach()), torch.autograd.grad(x, leaf, retain_graph=True)[0]) for x in losses))
