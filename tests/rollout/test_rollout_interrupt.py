"""Forced interruption: who is interrupted, what becomes of the forced tokens, and that rows stay independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import ConfigError
from surefoot.rollout.engine import Interruption, Request, Sampling
from surefoot.rollout.local import LocalEngine
from surefoot.rollout.sampling import draw
from surefoot.seeds import uniforms
from surefoot.types import Finish, Origin, Sample

Build = Callable[[str], Any]  # a model
Requests = Callable[..., list[Request]]

pytestmark = pytest.mark.filterwarnings("ignore:.*decode step:UserWarning")

EVERY = ["llama", "qwen2", "gpt2", "gemma2", "bloom", "lfm2"]
STOPS = (0, 3, 5)
MIXED = [9, 1, 23, 9, 16, 2]
PHRASE = (40, 5, 41)  # a stop token in its middle
FORCED = Sampling(max_new_tokens=16, stop_ids=STOPS, temperature=1.7, interrupt=Interruption(6, PHRASE, (7,)))


def generate(model: Any, wanted: list[Request], bound: int = 10_000) -> list[tuple[Sample, ...]]:
    return LocalEngine(model, max_batch_tokens=bound).generate(wanted)


def completion(sample: Sample) -> np.ndarray:
    return sample.ids[sample.prompt_length :]


def by_hand(model: Any, request: Request, place: int) -> tuple[list[int], list[bool], Finish]:
    """Ids and which of them are forced: a forward over everything for each token, nothing cached, nobody beside it."""
    sampling = request.sampling
    cut = sampling.interrupt
    ids, forced = request.prompt_ids.tolist(), []
    n = len(ids)
    phrase: list[int] = []
    while len(ids) < n + sampling.max_new_tokens:
        step = len(ids) - n
        own = ids[n:]
        if cut is not None and step == cut.after:
            size = len(cut.close_ids)
            closed = size and any(tuple(own[i : i + size]) == cut.close_ids for i in range(step))
            phrase = [] if closed else list(cut.phrase_ids)
        if phrase:
            ids.append(phrase.pop(0))
            forced.append(True)
            continue
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[:, -1]
        u = torch.from_numpy(uniforms(np.array([request.seeds[place]], dtype=np.uint64), np.array([step])))
        drawn = draw(logits, u, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)
        ids.append(int(drawn.ids))
        forced.append(False)
        if ids[-1] in sampling.stop_ids:
            return ids, forced, Finish.STOP
    return ids, forced, Finish.LENGTH


def likely_close(model: Any, wanted: list[Request]) -> tuple[int]:
    """The token that most of these completions hold where thinking is allowed, and that ends none."""
    free = [replace(request, sampling=replace(request.sampling, interrupt=None)) for request in wanted]
    held = Counter(
        token for group in generate(model, free) for sample in group for token in set(completion(sample)[:6])
    )
    return (int(next(token for token, _ in held.most_common() if token not in STOPS)),)


@pytest.mark.parametrize("name", EVERY)
def test_equal_to_one_token_after_another_by_hand(tiny: Build, requests: Requests, name: str) -> None:
    model = tiny(name)
    kinds = set()
    wanted = requests(MIXED, samples=5, sampling=FORCED)
    cut = Interruption(6, PHRASE, likely_close(model, wanted))
    wanted = [replace(request, sampling=replace(FORCED, interrupt=cut)) for request in wanted]
    for request, group in zip(wanted, generate(model, wanted), strict=True):
        for place, sample in enumerate(group):
            ids, forced, finish = by_hand(model, request, place)
            assert sample.ids.tolist() == ids
            assert (sample.origin[sample.prompt_length :] == Origin.INJECTED).tolist() == forced
            assert sample.finish == finish
            kinds.add((any(forced), len(forced) > 6))
    # Those that were interrupted, those that had stopped before, and those that had closed.
    assert kinds == {(True, True), (False, False), (False, True)}


@pytest.mark.parametrize("bound", [10_000, 90])
def test_forced_tokens_have_no_circumstances_and_end_nothing(tiny: Build, requests: Requests, bound: int) -> None:
    sampling = replace(FORCED, top_logprobs=3, top_p=0.9)
    seen = []
    for group in generate(tiny("llama"), requests(MIXED, samples=8, sampling=sampling), bound):
        for sample in group:
            forced = sample.origin == Origin.INJECTED
            assert (sample.logp_behaviour[forced] == 0).all() and (sample.version[forced] == -1).all()
            assert (sample.temperature[forced] == 1).all() and (sample.kept_logmass[forced] == 0).all()
            assert sample.top_ids is not None and sample.top_logp is not None
            assert (sample.top_ids[forced] == 0).all() and (sample.top_logp[forced] == -np.inf).all()
            assert (sample.logp_behaviour[sample.mask] < 0).all() and (sample.version[sample.mask] == 0).all()
            assert (sample.top_logp[sample.mask] > -np.inf).all()
            assert sample.length == int(sample.mask.sum()) == len(completion(sample)) - forced.sum()
            if not forced.any():
                continue
            seen.append(sample.finish)
            begin = sample.prompt_length + 6
            assert np.flatnonzero(forced).tolist() == [begin, begin + 1, begin + 2]
            assert tuple(sample.ids[forced]) == PHRASE
            assert len(completion(sample)) > 9  # at least one token of its own after the phrase
            assert not np.isin(sample.ids[sample.mask][:-1], STOPS).any()
            if sample.finish == Finish.STOP:
                assert sample.ids[-1] in STOPS
            else:
                assert len(completion(sample)) == 16 and sample.ids[-1] not in STOPS
    assert len(seen) > 10 and set(seen) == {Finish.STOP, Finish.LENGTH}


def test_the_loss_mask_of_a_thought_a_phrase_and_an_answer(
    tiny: Build, requests: Requests, trained: Callable[..., Any]
) -> None:
    """Three tokens of thinking, two forced, two of answer: 1 1 1 0 0 1 1 (ScaleRL, arXiv 2510.13786)."""
    sampling = Sampling(max_new_tokens=7, interrupt=Interruption(3, (10, 11)))
    model = tiny("llama")
    groups = generate(model, requests([4], samples=1, sampling=sampling))
    [[sample]] = groups
    assert sample.finish == Finish.LENGTH and sample.length == 5
    packed, found = trained(model, groups)
    assert packed.mask.int().tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert packed.loss_tokens.tolist() == [5]
    assert len(found.logp) == 5


@pytest.mark.parametrize("layout", ["right", "left", "packed"])
@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}, {"top_k": 6}], ids=str)
def test_the_trainer_finds_the_log_probabilities_of_the_policys_tokens(
    tiny: Build, requests: Requests, trained: Callable[..., Any], cut: dict[str, Any], layout: str
) -> None:
    model = tiny("qwen2")
    groups = generate(model, requests(MIXED, samples=5, sampling=replace(FORCED, top_logprobs=4, **cut)))
    assert sum((sample.origin == Origin.INJECTED).any() for group in groups for sample in group) > 5
    packed, found = trained(model, groups, layout=layout)
    torch.testing.assert_close(found.logp, packed.logp_behaviour[packed.mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.top_logp, packed.top_logp_behaviour[packed.mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_batch_composition_changes_nothing(tiny: Build, requests: Requests, name: str) -> None:
    model, wanted = tiny(name), requests(MIXED, samples=3, sampling=FORCED)
    together = generate(model, wanted)
    backwards = generate(model, wanted[::-1])[::-1]
    narrow = generate(model, wanted, 100)  # two or three rows at a time
    others = generate(model, [*requests([30, 3], samples=7, sampling=FORCED, seed=9), *wanted])[2:]
    alone = [
        tuple(generate(model, [replace(request, seeds=(seed,))])[0][0] for seed in request.seeds) for request in wanted
    ]
    for group, *rest in zip(together, backwards, narrow, others, alone, strict=True):
        for other in rest:
            assert [sample.ids.tolist() for sample in other] == [sample.ids.tolist() for sample in group]
            assert [sample.origin.tolist() for sample in other] == [sample.origin.tolist() for sample in group]


def test_before_the_interruption_a_row_is_what_it_is_without_one(tiny: Build, requests: Requests) -> None:
    """The random number of a token belongs to its place in the completion, forced tokens counted."""
    free = requests(MIXED, samples=6, sampling=replace(FORCED, interrupt=None))
    cut = requests(MIXED, samples=6, sampling=FORCED)
    for plain, forced in zip(generate(tiny("llama"), free), generate(tiny("llama"), cut), strict=True):
        for one, two in zip(plain, forced, strict=True):
            own = completion(one)
            if len(own) <= 6 or 7 in own[:6]:
                assert np.array_equal(one.ids, two.ids) and one.finish == two.finish
                assert np.array_equal(one.logp_behaviour, two.logp_behaviour)
                assert not (two.origin == Origin.INJECTED).any()
            else:
                assert np.array_equal(completion(two)[:6], own[:6])
                assert tuple(completion(two)[6:9]) == PHRASE


def test_closing_needs_the_tokens_in_order_one_after_another_before_the_interruption(
    tiny: Build, requests: Requests
) -> None:
    model, free = tiny("llama"), Sampling(max_new_tokens=12, temperature=1.7)
    [request] = requests([8], samples=1, sampling=free)
    [[plain]] = generate(model, [request])
    own = completion(plain).tolist()
    assert len(set(own[:8])) == 8  # else the cases below would overlap

    def interrupted(close: tuple[int, ...], after: int = 8) -> bool:
        cut = Interruption(after, (40, 41), close)
        [[sample]] = generate(model, [replace(request, sampling=replace(free, interrupt=cut))])
        return bool((sample.origin == Origin.INJECTED).any())

    for begin, size in ((0, 1), (0, 3), (2, 2), (7, 1), (5, 3), (0, 8)):
        assert not interrupted(tuple(own[begin : begin + size]))
    assert interrupted(())
    assert interrupted((own[1], own[0]))  # the wrong way round
    assert interrupted((own[0], own[2]))  # something between them
    assert interrupted(tuple(own[6:9]))  # not yet whole
    assert interrupted((own[8],)) and not interrupted((own[8],), after=9)  # one token too late
    assert interrupted(tuple(own[:9]))  # longer than all that was written
    assert interrupted((own[7], 0))  # what is not written yet is no token 0
    assert interrupted((int(request.prompt_ids[-1]), own[0]))  # the prompt is nobody's thinking


def test_a_row_that_stops_on_its_last_token_of_thinking_is_not_interrupted(tiny: Build, requests: Requests) -> None:
    model, free = tiny("llama"), Sampling(max_new_tokens=12, temperature=1.7)
    [request] = requests([8], samples=1, sampling=free)
    [[plain]] = generate(model, [request])
    last = int(completion(plain)[7])
    assert last not in completion(plain)[:7]
    for after, expected in ((8, (Finish.STOP, 8, 0)), (7, (Finish.LENGTH, 12, 2))):
        sampling = replace(free, stop_ids=(last,), interrupt=Interruption(after, (last, last)))
        [[sample]] = generate(model, [replace(request, sampling=sampling)])
        forced = int((sample.origin == Origin.INJECTED).sum())
        # Nothing but the forced stop tokens is one, whatever is drawn after them.
        if after == 7:
            assert tuple(completion(sample)[7:9]) == (last, last) and len(completion(sample)) > 9
        else:
            assert (sample.finish, len(completion(sample)), forced) == expected


def test_one_token_of_answer_is_room_enough_and_none_is_refused(tiny: Build, requests: Requests) -> None:
    model = tiny("llama")
    for group in generate(
        model, requests([5, 9], sampling=Sampling(max_new_tokens=9, interrupt=Interruption(6, (40, 41))))
    ):
        for sample in group:
            assert completion(sample)[6:8].tolist() == [40, 41]
            assert (len(completion(sample)), sample.length, sample.finish) == (9, 7, Finish.LENGTH)
            assert sample.origin[-1] == Origin.POLICY
    message = (
        r"rollout\.max_new_tokens is 8, but the interruption forces 2 tokens after 6, .*"
        r"set rollout\.max_new_tokens to more than 8, or interrupt earlier"
    )
    with pytest.raises(ConfigError, match=message):
        generate(model, requests([5], sampling=Sampling(max_new_tokens=8, interrupt=Interruption(6, (40, 41)))))


def test_thinking_may_be_forbidden_from_the_first_token_on(tiny: Build, requests: Requests) -> None:
    sampling = Sampling(max_new_tokens=6, interrupt=Interruption(0, (40, 41), (7,)))
    for group in generate(tiny("llama"), requests([5, 9], sampling=sampling)):
        for sample in group:
            assert sample.origin.tolist()[-6:] == [Origin.INJECTED] * 2 + [Origin.POLICY] * 4
            assert sample.prompt_length == len(sample) - 6


def test_interruptions_that_make_no_sense_are_refused(tiny: Build, requests: Requests) -> None:
    for cut, message in (
        (Interruption(3, ()), "forces 0 tokens after 3: expected at least one token"),
        (Interruption(-1, (4,)), "forces 1 tokens after -1: expected at least one token, after 0 or more"),
        (Interruption(3, (4, 71)), "forces token id 71, the model knows 0 to 70"),
        (Interruption(3, (-1,)), "forces token id -1, the model knows 0 to 70"),
    ):
        with pytest.raises(ConfigError, match=message):
            generate(tiny("llama"), requests([5], sampling=Sampling(max_new_tokens=9, interrupt=cut)))


def test_waves_do_not_mix_requests_with_and_without(tiny: Build, requests: Requests) -> None:
    model = tiny("llama")
    wanted = [
        replace(request, sampling=replace(FORCED, interrupt=None) if i % 2 else FORCED)
        for i, request in enumerate(requests(MIXED, samples=4))
    ]
    for i, (request, group) in enumerate(zip(wanted, generate(model, wanted), strict=True)):
        assert [s.ids.tolist() for s in group] == [by_hand(model, request, place)[0] for place in range(4)]
        assert not i % 2 or not any((sample.origin == Origin.INJECTED).any() for sample in group)


def test_rows_leave_the_batch_while_others_are_forced(tiny: Build, requests: Requests) -> None:
    """A long phrase, and rows that closed before it and stop during it: those that are forced must keep their places."""
    phrase = tuple(range(30, 42))
    sampling = Sampling(
        max_new_tokens=26, stop_ids=tuple(range(10)), temperature=2.5, interrupt=Interruption(4, phrase, (50,))
    )
    model, wanted = tiny("llama"), requests([9, 5], samples=40, sampling=sampling)
    ended_during, interrupted = 0, 0
    for request, group in zip(wanted, generate(model, wanted), strict=True):
        for place, sample in enumerate(group):
            forced = (sample.origin == Origin.INJECTED).sum()
            assert forced in (0, 12)
            interrupted += bool(forced)
            ended_during += 4 < len(completion(sample)) <= 16
            assert place % 4 or sample.ids.tolist() == by_hand(model, request, place)[0]
    assert ended_during > 2 and interrupted > 20


def test_greedy_rows_are_interrupted_too(tiny: Build, requests: Requests) -> None:
    sampling = replace(FORCED, temperature=0.0, stop_ids=())
    [[sample]] = generate(tiny("llama"), requests([8], samples=1, sampling=sampling))
    assert tuple(completion(sample)[6:9]) == PHRASE
    with torch.no_grad():
        best = tiny("llama")(input_ids=torch.from_numpy(sample.ids)[None], use_cache=False).logits[0].argmax(-1).numpy()
    own = np.flatnonzero(sample.mask)
    assert np.array_equal(sample.ids[own], best[own - 1])
