"""Micro-batches hold every loss token once, in an order that depends on nothing but the samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_models import build, policy_of, some_samples

from surefoot.batches import Packed
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.types import Origin, Sample

LENGTHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)).filter(sum), min_size=1, max_size=12)


def expected_tokens(sample: Sample) -> list[int]:
    return [place for place in range(len(sample)) if sample.origin[place] == Origin.POLICY and place > 0]


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, limit=st.integers(1, 60), order=st.sampled_from(["length", "given"]))
def test_every_loss_token_is_packed_once_with_its_own_numbers(lengths: list, limit: int, order: str) -> None:
    samples = some_samples(tuple(lengths))
    group = [index // 2 for index in range(len(samples))]
    totals = count(samples, group, 9.0)
    advantage = [np.arange(len(sample)) + 100.0 * index for index, sample in enumerate(samples)]
    batches = pack(samples, advantage, group, totals, max_tokens=limit, order=order)

    seen = set()
    for packed in batches:
        assert packed.sequences == 1 or packed.sequences * int(packed.lengths.max()) <= limit
        for row in range(packed.sequences):
            part = slice(int(packed.seq_start[row]), int(packed.seq_start[row + 1]))
            index = int(packed.sample_index[row])
            sample = samples[index]
            assert packed.ids[part].tolist() == sample.ids.tolist()
            assert packed.positions[part].tolist() == list(range(len(sample)))
            assert (packed.seq_index[part] == row).all()
            places = packed.mask[part].nonzero().squeeze(1).tolist()
            assert places == expected_tokens(sample)
            assert packed.advantage[part].tolist() == [
                advantage[index][p] if p in places else 0 for p in range(len(sample))
            ]
            assert packed.loss_tokens[row] == len(places)
            members = [other for other in range(len(samples)) if group[other] == group[index]]
            assert packed.group_tokens[row] == sum(len(expected_tokens(samples[other])) for other in members)
            seen |= {(index, place) for place in places}
    assert seen == {(index, place) for index, sample in enumerate(samples) for place in expected_tokens(sample)}

    rows = [len(expected_tokens(sample)) for sample in samples]
    assert totals.tokens == sum(rows) == sum(float(packed.loss_tokens.sum()) for packed in batches)
    assert totals.sequences == sum(n > 0 for n in rows) == sum(packed.sequences for packed in batches)
    assert totals.groups == len({group[index] for index, n in enumerate(rows) if n})
    assert totals.constant == 9.0


def test_rows_of_similar_length_lie_together_and_the_order_is_fixed() -> None:
    samples = some_samples(tuple((1, n) for n in (3, 9, 3, 8, 3, 9, 1)))
    group = list(range(len(samples)))

    def packs() -> list[Packed]:
        return pack(samples, [1.0] * 7, group, count(samples, group, 1.0), max_tokens=20)

    assert [packed.sample_index.tolist() for packed in packs()] == [[1, 5], [3, 0], [2, 4, 6]]
    for one, two in zip(packs(), packs(), strict=True):
        for name in one.__dataclass_fields__:
            left, right = getattr(one, name), getattr(two, name)
            assert left is right is None or torch.equal(left, right)


def test_an_empty_completion_is_in_no_denominator() -> None:
    samples = some_samples(((3, 0), (2, 4), (2, 0)))
    totals = count(samples, [0, 1, 1], 1.0)
    assert (totals.tokens, totals.sequences, totals.groups) == (4, 1, 1)
    (packed,) = pack(samples, [1.0, 1.0, 1.0], [0, 1, 1], totals, max_tokens=100)
    assert packed.sample_index.tolist() == [1]
    nothing = some_samples(((3, 0), (2, 0)))
    totals = count(nothing, [0, 1], 1.0)
    assert (totals.tokens, totals.sequences, totals.groups) == (0, 0, 0)
    assert pack(nothing, [1.0, 1.0], [0, 1], totals, max_tokens=100) == []


def test_skipped_rows_still_count_in_their_group() -> None:
    samples = some_samples(((1, 4), (1, 5), (1, 6)))
    totals = count(samples, [0, 0, 1], 1.0)
    (packed,) = pack(samples, [1.0, 0.0, 0.0], [0, 0, 1], totals, max_tokens=100, skip=[False, True, True])
    assert packed.sample_index.tolist() == [0]
    assert packed.group_tokens.tolist() == [9.0]


def test_only_policy_tokens_are_in_the_loss_whoever_else_wrote() -> None:
    (sample,) = some_samples(((3, 6),))
    origin = sample.origin.copy()
    origin[[4, 5, 7]] = Origin.TOOL, Origin.INJECTED, Origin.IMAGE
    (packed,) = pack([replace(sample, origin=origin)], [2.0], [0], count([sample], [0], 1.0), max_tokens=100)
    assert packed.mask.nonzero().squeeze(1).tolist() == [3, 6, 8]
    assert packed.advantage.nonzero().squeeze(1).tolist() == [3, 6, 8]


def test_weights_lie_beside_their_tokens_and_are_one_elsewhere() -> None:
    samples = some_samples(((2, 3), (1, 2)))
    group, totals = [0, 1], count(samples, [0, 1], 1.0)
    (packed,) = pack(samples, [1.0, 1.0], group, totals, max_tokens=99, order="given")
    assert packed.weight.dtype == torch.float32 and packed.weight.tolist() == [1.0] * 8
    given = [np.array([9.0, 9.0, 0.25, 0.0, 2.0]), 0.5]
    (packed,) = pack(samples, [1.0, 1.0], group, totals, max_tokens=99, order="given", weight=given)
    assert packed.weight.tolist() == [1.0, 1.0, 0.25, 0.0, 2.0, 1.0, 0.5, 0.5]
    parts = pack(samples, [1.0, 1.0], group, totals, max_tokens=5, weight=given)  # each row a micro-batch of its own
    assert [part.weight.tolist() for part in parts] == [[1.0, 1.0, 0.25, 0.0, 2.0], [1.0, 0.5, 0.5]]


def with_tops(samples: list[Sample], k: int) -> list[Sample]:
    """Each sample with K ids and log-probabilities of its own at every place."""
    made = []
    for number, sample in enumerate(samples):
        places = np.arange(len(sample) * k).reshape(len(sample), k)
        made.append(replace(sample, top_ids=(places + 1000 * number).astype(np.int32), top_logp=-places.astype("f4")))
    return made


@pytest.mark.parametrize("limit", [4, 12, 1000])
def test_the_likeliest_tokens_lie_beside_the_tokens_of_their_sample(limit: int) -> None:
    samples = with_tops(some_samples(), 3)
    group = list(range(len(samples)))
    seen = 0
    for packed in pack(samples, [1.0] * len(samples), group, count(samples, group, 1.0), max_tokens=limit):
        assert packed.top_ids is not None and packed.top_logp_behaviour is not None
        assert (packed.top_ids.dtype, packed.top_logp_behaviour.dtype) == (torch.int64, torch.float32)
        for row, index in enumerate(packed.sample_index.tolist()):
            part = slice(int(packed.seq_start[row]), int(packed.seq_start[row + 1]))
            assert packed.top_ids[part].tolist() == samples[index].top_ids.tolist()
            assert packed.top_logp_behaviour[part].tolist() == samples[index].top_logp.tolist()
            seen += 1
    assert seen == 5  # the sixth has an empty completion


def test_samples_without_likeliest_tokens_have_none_packed() -> None:
    (packed,) = pack(some_samples(((2, 3),)), [1.0], [0], count(some_samples(((2, 3),)), [0], 1.0), max_tokens=99)
    assert packed.top_ids is packed.top_logp_behaviour is None
    assert packed.to("cpu").top_ids is None


def test_likeliest_tokens_are_all_there_or_none_and_of_one_number() -> None:
    samples = some_samples(((2, 3), (2, 4), (2, 0)))
    totals = count(samples, [0, 1, 2], 1.0)
    three, two = with_tops(samples, 3), with_tops(samples, 2)

    def pack_all(*chosen: Sample) -> list[Packed]:
        return pack(chosen, [1.0] * 3, [0, 1, 2], totals, max_tokens=99)

    with pytest.raises(ValueError, match=r"sample p0/0 has 3, sample p1/1 has none; sample all of them with one Samp"):
        pack_all(three[0], samples[1], three[2])
    with pytest.raises(ValueError, match=r"sample p0/0 has 2, sample p1/1 has 3"):
        pack_all(two[0], three[1], three[2])
    assert len(pack_all(three[0], three[1], samples[2])) == 1  # an empty completion has no tokens to differ in


@pytest.mark.parametrize("reported", [-np.inf, np.nan, np.inf])
def test_what_another_engine_reports_is_carried_as_it_is(reported: float) -> None:
    """Whether a token without a usable log-probability counts is for the loss to decide, which also counts them."""
    (sample,) = with_tops(some_samples(((2, 4),)), 2)
    logp, top_logp = sample.logp_behaviour.copy(), sample.top_logp.copy()
    logp[3], top_logp[4, 1] = reported, reported
    sample = replace(sample, logp_behaviour=logp, top_logp=top_logp)
    (packed,) = pack([sample], [1.0], [0], count([sample], [0], 1.0), max_tokens=99)
    np.testing.assert_array_equal(packed.logp_behaviour.numpy(), logp)
    np.testing.assert_array_equal(packed.top_logp_behaviour.numpy(), top_logp)
    assert int(packed.mask.sum()) == 4
    found = token_logprobs(policy_of(build("llama")), packed)
    assert found.logp.isfinite().all()


def test_what_cannot_be_trained_on_is_refused() -> None:
    samples = some_samples(((2, 3), (2, 3)))
    totals = count(samples, [0, 1], 1.0)
    with pytest.raises(ValueError, match="p1/1: sampled greedily"):
        pack([samples[0], replace(samples[1], temperature=np.zeros(5))], [1.0, 1.0], [0, 1], totals, max_tokens=99)
    with pytest.raises(ValueError, match="p0/0: its advantage is not finite"):
        pack(samples, [float("nan"), 1.0], [0, 1], totals, max_tokens=99)
    with pytest.raises(ValueError, match=r"p0/0: advantage of shape \(3,\) for 5 tokens"):
        pack(samples, [np.ones(3), np.ones(5)], [0, 1], totals, max_tokens=99)
    with pytest.raises(ValueError, match="p1/1: its weight is not finite"):
        pack(samples, [1.0, 1.0], [0, 1], totals, max_tokens=99, weight=[1.0, float("inf")])
    with pytest.raises(ValueError, match=r"p0/0: weight of shape \(4,\) for 5 tokens"):
        pack(samples, [1.0, 1.0], [0, 1], totals, max_tokens=99, weight=[np.ones(4), np.ones(5)])
    with pytest.raises(ValueError, match="weight has 3 entries"):
        pack(samples, [1.0, 1.0], [0, 1], totals, max_tokens=99, weight=[1.0] * 3)
    with pytest.raises(ValueError, match="advantage has 1 entries"):
        pack(samples, [1.0], [0, 1], totals, max_tokens=99)
    with pytest.raises(ValueError, match="group has 3 entries"):
        count(samples, [0, 1, 2], 1.0)
    with pytest.raises(ValueError, match=r"6 loss tokens to pack, but totals\.tokens = 3"):
        pack(samples, [1.0, 1.0], [0, 1], count(samples[:1], [0], 1.0), max_tokens=99)


def test_the_gradient_is_the_same_for_every_split_into_micro_batches() -> None:
    model = build("llama", torch.float64)
    samples = some_samples(tuple((2 + n % 3, 1 + (5 * n) % 11) for n in range(12)))
    group = [index // 3 for index in range(12)]
    totals = count(samples, group, 1.0)
    advantage = [(-1.0) ** index * (1 + index) for index in range(12)]
    gradients = []
    for limit in (10**6, 60, 30, 1):
        model.zero_grad()
        batches = pack(samples, advantage, group, totals, max_tokens=limit)
        for packed in batches:
            logp = token_logprobs(policy_of(model), packed).logp
            (-(logp * packed.advantage[packed.mask]).sum() / totals.tokens).backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert len(batches) == 12
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-10, rtol=1e-10)


def test_samples_of_a_prompt_stay_together_where_sharing_saves_tokens() -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 50, 30) for _ in range(3)]
    samples = [
        Sample.of(prompts[k % 3], rng.integers(0, 50, 2 + k), prompt_id=str(k % 3), sample_id=k) for k in range(9)
    ]
    totals = count(samples, list(range(9)), 1.0)

    def batches(layout: Any, limit: int) -> list[list[int]]:
        found = pack(samples, [1.0] * 9, list(range(9)), totals, max_tokens=limit, layout=layout)
        return [packed.sample_index.tolist() for packed in found]

    for layout in ("shared", "auto"):
        # Of the longest answer's prompt first; a prompt of 30 tokens once and three rests of at most 10 take 60 places.
        assert batches(layout, 60) == [[8, 5, 2], [7, 4, 1], [6, 3, 0]]
        assert batches(layout, 59) == [[8, 5], [2], [7, 4, 1], [6, 3, 0]]
        assert batches(layout, 10**6) == [[8, 5, 2, 7, 4, 1, 6, 3, 0]]
    assert batches("packed", 10**6) == batches("right", 10**6) == [[8, 7, 6, 5, 4, 3, 2, 1, 0]]
    long = [Sample.of(prompts[0][:1], rng.integers(0, 50, 40 + k), prompt_id="0", sample_id=k) for k in range(3)]
    totals = count(long, [0, 1, 2], 1.0)
    (packed,) = pack(long, [1.0] * 3, [0, 1, 2], totals, max_tokens=10**6, layout="auto")
    assert packed.sample_index.tolist() == [2, 1, 0]
