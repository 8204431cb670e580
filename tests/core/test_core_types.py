"""The data that flows: masks from origin, arrays of one length, scores that cannot be graded, sums with weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.batches import Packed
from surefoot.metrics import StepReport
from surefoot.types import Finish, Group, Origin, Prompt, Sample, Score, Status


def sample(prompt: int = 3, completion: int = 2) -> Sample:
    return Sample.of(np.arange(prompt), np.arange(completion), prompt_id="p")


def test_the_mask_follows_the_origin_and_not_the_ids() -> None:
    """The prompt holds the ids of pad and EOS, and the policy wrote them too: only who wrote them counts."""
    pad = eos = 0
    made = Sample.of(np.array([pad, eos, 5]), np.array([5, eos, pad]), prompt_id="p", logp=np.array([-1, -2, -3]))
    assert made.mask.tolist() == [False] * 3 + [True] * 3
    assert (made.length, made.prompt_length, len(made)) == (3, 3, 6)
    assert made.logp_behaviour.tolist() == [0, 0, 0, -1, -2, -3]


def test_only_policy_tokens_are_trained_on() -> None:
    origin = np.array(
        [Origin.PROMPT, Origin.IMAGE, Origin.POLICY, Origin.TOOL, Origin.INJECTED, Origin.POLICY], np.uint8
    )
    zeros = np.zeros(6, np.float32)
    made = Sample(np.arange(6), origin, zeros, np.zeros(6, np.int32), zeros, zeros, Finish.LENGTH, "p")
    assert made.mask.tolist() == [False, False, True, False, False, True]
    assert (made.length, made.prompt_length) == (2, 1)


@pytest.mark.parametrize(("prompt", "completion"), [(3, 0), (1, 1), (0, 2)])
def test_empty_prompts_and_completions_are_defined(prompt: int, completion: int) -> None:
    made = sample(prompt, completion)
    assert (made.length, made.prompt_length) == (completion, prompt)


def test_arrays_of_different_length_are_refused_by_name() -> None:
    good = sample()
    with pytest.raises(ValueError, match=r"p/0.*'logp_behaviour': 4"):
        Sample(
            good.ids,
            good.origin,
            np.zeros(4, np.float32),
            good.version,
            good.temperature,
            good.kept_logmass,
            good.finish,
            "p",
        )


def test_dtypes_are_those_of_the_documentation() -> None:
    made = Sample.of(np.array([1], np.int32), np.array([2], np.int32), prompt_id="p", temperature=0.7, version=4)
    dtypes = [made.ids.dtype, made.origin.dtype, made.logp_behaviour.dtype, made.version.dtype, made.temperature.dtype]
    assert dtypes == [np.int64, np.uint8, np.float32, np.int32, np.float32]
    assert made.version.tolist() == [-1, 4]
    assert made.temperature.tolist() == [1.0, np.float32(0.7)]


def test_forced_tokens_have_no_circumstances() -> None:
    """Three tokens of thinking, a phrase of two that was forced, an answer of two."""
    injected = np.array([False, False, False, True, True, False, False])
    made = Sample.of(
        np.array([8, 9]),
        np.arange(7),
        prompt_id="p",
        logp=np.arange(-7.0, 0.0),
        kept_logmass=np.full(7, -0.5),
        temperature=0.7,
        version=3,
        injected=injected,
        top_ids=np.arange(14).reshape(7, 2),
        top_logp=np.full((7, 2), -2.0),
    )
    assert made.mask[2:].tolist() == [True, True, True, False, False, True, True]
    assert (
        made.origin.tolist() == [Origin.PROMPT] * 2 + [Origin.POLICY] * 3 + [Origin.INJECTED] * 2 + [Origin.POLICY] * 2
    )
    assert (made.length, made.prompt_length, len(made)) == (5, 2, 9)
    assert made.ids.tolist() == [8, 9, 0, 1, 2, 3, 4, 5, 6]
    assert made.logp_behaviour.tolist() == [0, 0, -7, -6, -5, 0, 0, -2, -1]
    assert made.version.tolist() == [-1, -1, 3, 3, 3, -1, -1, 3, 3]
    temperature, kept = np.float32(0.7), np.float32(-0.5)
    assert made.temperature.tolist() == [1, 1, temperature, temperature, temperature, 1, 1, temperature, temperature]
    assert made.kept_logmass.tolist() == [0, 0, kept, kept, kept, 0, 0, kept, kept]
    assert made.top_ids is not None and made.top_logp is not None
    assert made.top_ids[~made.mask].tolist() == [[0, 0]] * 4 and (made.top_logp[~made.mask] == -np.inf).all()
    assert made.top_ids[made.mask].tolist() == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13]]
    assert (made.top_logp[made.mask] == -2).all()
    assert (made.top_ids.dtype, made.top_logp.dtype) == (np.int32, np.float32)


def test_the_likeliest_tokens_have_one_row_for_each_token() -> None:
    ids, logp = np.zeros((5, 3), np.int32), np.zeros((5, 3), np.float32)
    assert replace(sample(), top_ids=ids, top_logp=logp).top_ids is ids
    for wrong in ((ids, None), (None, logp), (ids[:4], logp[:4]), (ids, logp[:, :2]), (ids[:, 0], logp[:, 0])):
        with pytest.raises(
            ValueError, match=r"p/0: top_ids and top_logp have the shapes .*: expected \(5, K\) for both"
        ):
            replace(sample(), top_ids=wrong[0], top_logp=wrong[1])


@pytest.mark.parametrize(
    ("score", "valid"),
    [
        (Score(1.0), True),
        (Score(0.0, status=Status.NO_ANSWER), True),
        (Score(math.nan), False),
        (Score(math.inf), False),
        (Score(1.0, status=Status.TIMEOUT), False),
        (Score.failed(Status.ERROR, "why"), False),
    ],
)
def test_what_may_enter_a_baseline(score: Score, valid: bool) -> None:
    assert score.valid is valid


def test_a_group_has_a_score_for_each_sample() -> None:
    with pytest.raises(ValueError, match="1 samples, 2 scores"):
        Group(Prompt("p", "x"), (sample(),), (Score(1.0), Score(0.0)))


def test_the_text_of_a_chat_is_its_last_message() -> None:
    chat = Prompt("p", ({"role": "system", "content": "s"}, {"role": "user", "content": "u"}))
    assert (chat.text, Prompt("p", "plain").text) == ("u", "plain")


def test_packed_moves_whole_and_knows_its_lengths() -> None:
    n = torch.zeros(5)
    packed = Packed(
        ids=n.long(),
        positions=n.long(),
        seq_start=torch.tensor([0, 2, 5]),
        seq_index=n.long(),
        mask=n.bool(),
        advantage=n,
        logp_behaviour=n,
        temperature=n,
        kept_logmass=n,
        loss_tokens=n,
        group_tokens=n,
        sample_index=n.long(),
        weight=n,
    )
    moved = packed.to("meta")
    assert (moved.top_ids, moved.top_logp_behaviour) == (None, None)
    for name in set(Packed.__dataclass_fields__) - {"top_ids", "top_logp_behaviour"}:
        assert getattr(moved, name).device.type == "meta"
    full = replace(packed, top_ids=torch.zeros(5, 2), top_logp_behaviour=torch.zeros(5, 2)).to("meta")
    assert all(getattr(full, name).device.type == "meta" for name in Packed.__dataclass_fields__)
    assert (packed.sequences, packed.lengths.tolist()) == (2, [2, 3])


parts = st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=5), min_size=1, max_size=6)


@given(parts)
def test_a_report_averages_over_everything_however_it_was_split(split: list[list[float]]) -> None:
    """The mean of all numbers, not the mean of the means of the parts."""
    report = StepReport()
    for part in split:
        one = StepReport()
        one.add("x", sum(part), len(part))
        one.maximum("x_max", max(part))
        report.merge(one)
    everything = [value for part in split for value in part]
    assert report.means()["x"] == pytest.approx(np.mean(everything), abs=1e-9)
    assert report.means()["x_max"] == max(everything)


def test_a_mean_over_nothing_is_left_out() -> None:
    report = StepReport()
    report.add("x", 0.0, 0.0)
    report.add("y", torch.tensor(3.0), torch.tensor(2))
    assert report.means() == {"y": 1.5}
