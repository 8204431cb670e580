"""What may be asked of an engine whose samples are trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from surefoot.errors import ConfigError
from surefoot.rollout.engine import Engine, Interruption, Request, Sampling, check_sampling
from surefoot.rollout.local import LocalEngine
from surefoot.types import Sample


class Mute:
    """An engine that returns log-probabilities and nothing of what it cut."""

    version = 0
    reports_kept_logmass = False

    def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        raise AssertionError("a check does not generate")

    def load(self, version: int) -> None:
        raise AssertionError("a check does not load")


class Older:
    """An engine from before there was anything to say."""

    version = 0
    generate, load = Mute.generate, Mute.load


@pytest.mark.parametrize("engine", [Mute(), Older()], ids=["mute", "older"])
def test_a_cut_distribution_needs_an_engine_that_reports_the_kept_mass(engine: Engine) -> None:
    name = type(engine).__name__
    for sampling, told in (
        (Sampling(top_p=0.9), r"rollout\.top_p = 0\.9 cuts"),
        (Sampling(top_k=20), r"rollout\.top_k = 20 cuts"),
        (Sampling(top_p=0.95, top_k=5), r"rollout\.top_p = 0\.95 and rollout\.top_k = 5 cuts"),
    ):
        with pytest.raises(
            ConfigError, match=f"{told} .*{name} does not report.*set rollout.top_p = 1 and rollout.top_k = 0"
        ):
            check_sampling(engine, sampling)
    check_sampling(engine, Sampling(temperature=0.7))  # the whole distribution: nothing is kept back


def test_the_local_engine_reports_it(tiny: Callable[[str], Any]) -> None:
    engine = LocalEngine(tiny("llama"), max_batch_tokens=100)
    assert engine.reports_kept_logmass
    check_sampling(engine, Sampling(top_p=0.5, top_k=3))


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(max_new_tokens=0), "max_new_tokens is 0: expected at least 1"),
        (Sampling(top_logprobs=-2), "top_logprobs is -2"),
        (Sampling(max_new_tokens=5, interrupt=Interruption(4, (1,))), "max_new_tokens is 5, but the interruption"),
    ],
)
def test_numbers_are_checked_before_a_run(sampling: Sampling, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sampling(Mute(), sampling)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.5])
@pytest.mark.parametrize("cut", [{"top_p": 0.8}, {"top_k": 5}, {"top_p": 0.7, "top_k": 12}], ids=str)
@pytest.mark.parametrize("layout", ["right", "packed"])
def test_the_ratio_is_one_on_equal_weights(
    tiny: Callable[[str], Any],
    requests: Callable[..., list[Request]],
    trained: Callable[..., Any],
    cut: dict[str, Any],
    temperature: float,
    layout: str,
) -> None:
    """Engine and trainer from end to end: the kept mass, and nothing else, makes them agree."""
    model = tiny("llama")
    sampling = Sampling(temperature=temperature, max_new_tokens=12, **cut)
    groups = LocalEngine(model, max_batch_tokens=10_000).generate(requests([9, 1, 14], sampling=sampling))
    packed, found = trained(model, groups, layout=layout)
    mask = packed.mask
    ratio = (found.logp - packed.logp_behaviour[mask]).exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=3e-5, rtol=0)
    assert packed.kept_logmass[mask].exp().min() < 0.95  # without it the ratio would be off by this much
