"""The Engine protocol: token ids in, token ids out.

An engine knows no algorithm and no text. Everything that a sample depends on is in its request (prompt ids, sampling,
its own seed) and in the version of the weights, never in what else was generated beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.errors import ConfigError
from surefoot.types import Sample


@dataclass(frozen=True)
class Interruption:
    """Thinking that takes too long is ended by words that the engine forces on the policy.

    A row that has drawn ``after`` tokens, has not stopped and has not written ``close_ids`` goes on with ``phrase_ids``
    as if it had written them, and then with tokens of its own up to its budget. The forced tokens are INJECTED: they
    have no log-probability, are in no loss, and end nothing, even where a stop token is among them. ScaleRL ("The Art of
    Scaling Reinforcement Learning Compute for LLMs", arXiv 2510.13786) bounds the length of its completions this way.

    Attributes:
        after: tokens of thinking that are allowed.
        phrase_ids: what is forced, with whatever closes the thinking at its end.
        close_ids: what closes the thinking, as consecutive tokens; a tokenizer that may write the closing text in
            several ways closes it only in this one. Empty: every row that is still running is interrupted.
    """

    after: int
    phrase_ids: tuple[int, ...]
    close_ids: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """Tokens of an interrupted completion with the phrase at its end."""
        return self.after + len(self.phrase_ids)


@dataclass(frozen=True)
class Sampling:
    """How to sample.

    Attributes:
        temperature: 0 is greedy (such samples cannot be trained on).
        top_p: keep the smallest set of tokens with at least this mass (1: all).
        top_k: keep the k likeliest tokens (0: all).
        max_new_tokens: budget, the stop token and forced tokens included.
        stop_ids: tokens that end a completion.
        top_logprobs: the K likeliest tokens whose log-probabilities are recorded at every place, under the tempered
            distribution before top-p and top-k cut it (0: none; more than the vocabulary: all of it).
        interrupt: whether and how a completion that goes on for too long is brought to its end.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64
    stop_ids: tuple[int, ...] = ()
    top_logprobs: int = 0
    interrupt: Interruption | None = None


@dataclass(frozen=True)
class Request:
    """A prompt and the samples wanted of it, one seed each. The prompt is prefilled once for all of them.

    Attributes:
        prompt_ids: [L] int64, L >= 1.
        prompt_id: name of the prompt.
        seeds: one seed per sample, see :func:`surefoot.seeds.derive`.
        sampling: how to sample.
        first_sample_id: ``sample_id`` of the first sample; the others follow.
    """

    prompt_ids: np.ndarray
    prompt_id: str
    seeds: tuple[int, ...]
    sampling: Sampling
    first_sample_id: int = 0


Finished = Callable[[int, tuple[Sample, ...]], None]
"""Is told the index of a request and its samples, in the order of its seeds."""


class Engine(Protocol):
    """What every engine does.

    Attributes:
        version: of the weights that it holds.
        reports_kept_logmass: whether it records the mass that top-p or top-k kept (:attr:`Sample.kept_logmass`).
        reports_finished: whether ``generate`` takes ``finished=``, a :data:`Finished` that is called from the same thread for
            every request as soon as its samples are made, in whatever order. An engine that does not say so does not.
    """

    version: int
    reports_kept_logmass: bool

    def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """For each request, in order, its samples, in the order of its seeds."""

    def load(self, version: int) -> None:
        """Use the weights of this version from now on; nothing cached from older weights may be used again."""


def check_sampling(engine: Engine, sampling: Sampling) -> None:
    """Refuse sampling whose samples this engine cannot make fit to train on.

    Under top-p or top-k a token is drawn from what is left of the distribution, renormalised. The trainer sees the
    whole distribution, and without the mass that was kept its ratio to the engine is not 1 on equal weights.

    Raises:
        ConfigError: numbers outside their range, or top-p or top-k from an engine that does not report the kept mass.
    """
    check_budget(sampling)
    used = [f"rollout.top_p = {sampling.top_p:g}"] * (sampling.top_p < 1)
    used += [f"rollout.top_k = {sampling.top_k}"] * (sampling.top_k > 0)
    if used and not getattr(engine, "reports_kept_logmass", False):  # an engine that does not say so does not
        raise ConfigError(
            f"{' and '.join(used)} cuts the distribution, and {type(engine).__name__} does not report the mass that is "
            f"kept, so that log-probabilities of engine and trainer would differ: set rollout.top_p = 1 and "
            f"rollout.top_k = 0"
        )


def check_budget(sampling: Sampling) -> None:
    """Refuse a budget without room for an answer.

    Raises:
        ConfigError: numbers outside their range, or an interruption that the budget does not reach.
    """
    budget, interrupt = sampling.max_new_tokens, sampling.interrupt
    if budget < 1:
        raise ConfigError(f"rollout.max_new_tokens is {budget}: expected at least 1")
    if sampling.top_logprobs < 0:
        raise ConfigError(f"top_logprobs is {sampling.top_logprobs}: expected 0 or more")
    if interrupt is None:
        return
    if interrupt.after < 0 or not interrupt.phrase_ids:
        raise ConfigError(
            f"the interruption forces {len(interrupt.phrase_ids)} tokens after {interrupt.after}: expected at least one "
            f"token, after 0 or more"
        )
    if interrupt.end >= budget:
        raise ConfigError(
            f"rollout.max_new_tokens is {budget}, but the interruption forces {len(interrupt.phrase_ids)} tokens after "
            f"{interrupt.after}, which leaves no token for an answer: set rollout.max_new_tokens to more than "
            f"{interrupt.end}, or interrupt earlier"
        )
