"""The judge as a Reward: every completion is judged once, many at a time, and what a judgement cost is counted."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.config import validate
from surefoot.errors import ConfigError, RewardError
from surefoot.metrics import StepReport
from surefoot.rewards.asynchronous import DEFAULT, Caller, LateError, Limits, forget
from surefoot.rewards.base import Completion
from surefoot.rewards.functions import scores_of
from surefoot.rewards.judge import wording
from surefoot.rewards.judge.config import JudgeConfig
from surefoot.rewards.judge.endpoint import Endpoint
from surefoot.rewards.notes import Notes
from surefoot.types import Score

KEPT = 100_000
"""Verdicts that are remembered; the oldest is forgotten for a new one."""


class Judge:
    """A reward that a language model gives by a rubric: (score - low) / (high - low).

    A request that was answered before is not sent again, so a repeated completion costs nothing. A judgement that fails
    (no reply after all attempts, a reply that cannot be read) marks its own sample ``Status.ERROR``, one that takes
    longer than the deadline ``Status.TIMEOUT``. Metrics: ``judge/requests``, ``judge/retries``, ``judge/cached``,
    ``judge/tokens_in``, ``judge/tokens_out`` and ``judge/cost``, sums over a step.

    Args:
        config: the model, the rubric and the range of scores.
        limits: judgements at once, and seconds for each with its retries.
    """

    name = "judge"
    threads = 32
    asks_model = True

    def __init__(self, config: JudgeConfig, limits: Limits = DEFAULT) -> None:
        self.config = config
        self.notes = Notes()
        self._endpoint = Endpoint(config, self.notes)
        self._caller = Caller(limits)
        self._settings = config.model_dump_json()
        self._asking: dict[str, asyncio.Future[wording.Verdict]] = {}
        self._verdicts: dict[str, wording.Verdict] = {}

    def take_notes(self) -> StepReport:
        return self.notes.take()

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        questions = [wording.ask(self.config, completion) for completion in completions]
        calls = [lambda q=question: self._judge(q) for question in questions]
        return scores_of(self.name, [self._explained(outcome) for outcome in self._caller.all(calls)])

    def _explained(self, outcome: Any) -> Any:
        """A judgement that came too late, with what kept it."""
        if not isinstance(outcome, LateError) or not self._endpoint.trouble:
            return outcome
        return LateError(f"{outcome}; the last request to {self.config.base_url} failed: {self._endpoint.trouble}")

    async def _judge(self, question: wording.Question) -> Score:
        key = hashlib.blake2b(json.dumps([self._settings, question.messages]).encode(), digest_size=16).hexdigest()
        if key in self._verdicts or key in self._asking:
            self.notes.total("judge/cached")
        if key not in self._verdicts:
            if key not in self._asking:
                self._asking[key] = asyncio.ensure_future(self._ask(key, question))
                self._asking[key].add_done_callback(forget)
            # Whoever else waits for the same verdict may have more time left than this call.
            return self._score(await asyncio.shield(self._asking[key]))
        return self._score(self._verdicts[key])

    async def _ask(self, key: str, question: wording.Question) -> wording.Verdict:
        form = wording.schema(self.config) if self.config.reply == "json" else None
        try:
            reply = await self._endpoint.ask(question.messages, form)
            self.notes.total("judge/tokens_in", reply.tokens_in)
            self.notes.total("judge/tokens_out", reply.tokens_out)
            prices = reply.tokens_in * self.config.price_in + reply.tokens_out * self.config.price_out
            self.notes.total("judge/cost", prices / 1e6)
            verdict = wording.read(self.config, question, self._endpoint.hidden(reply.text))
        finally:
            del self._asking[key]
        if len(self._verdicts) >= KEPT:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[key] = verdict
        return verdict

    def _score(self, verdict: wording.Verdict) -> Score:
        value = (verdict.score - self.config.low) / (self.config.high - self.config.low)
        least = self.config.right_at_least
        return Score(
            total=value,
            components={self.name: value},
            correct=None if least is None else verdict.score >= least,
            text=f"{verdict.score:g}: {verdict.reason}" if verdict.reason else f"{verdict.score:g}",
        )


def make_judge(options: Mapping[str, Any], limits: Limits = DEFAULT) -> Judge:
    """A judge from the options of a configuration, those of :class:`JudgeConfig`.

    Raises:
        RewardError: an unknown option or a bad value; no key in the environment.
        MissingExtraError: the HTTP client is not installed.
    """
    try:
        config = validate(JudgeConfig, options)
    except ConfigError as error:
        raise RewardError(f"the options of the judge: {error}") from error
    return Judge(config, limits)
