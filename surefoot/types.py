"""The data that flows: Prompt -> Sample -> Score -> Group, and from there into :mod:`surefoot.batches`.

All are frozen. A Sample holds NumPy arrays and knows no model; a Score knows no tensor; what the mathematics needs is packed
into batches, which know no text. The same Sample serves supervised training, preference pairs, reward models and
reinforcement learning.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


class Origin(enum.IntEnum):
    """Who wrote a token. Only POLICY tokens are ever trained on by a policy gradient."""

    PROMPT = 0
    POLICY = 1
    TOOL = 2
    IMAGE = 3
    INJECTED = 4


class Finish(enum.StrEnum):
    """Why a completion ended."""

    STOP = "stop"  # the policy emitted a stop token (which is part of the sample)
    LENGTH = "length"  # the budget ran out; no stop token is made up
    TOOL_LIMIT = "tool_limit"
    ABORTED = "aborted"
    ERROR = "error"


class Status(enum.StrEnum):
    """What became of grading one completion."""

    OK = "ok"
    NO_ANSWER = "no_answer"  # graded; the completion holds nothing that could be an answer
    NOT_APPLICABLE = "not_applicable"  # the reward says that it does not speak of this completion
    INVALID = "invalid"  # the reward was NaN, None, infinite or above 1e15 in magnitude
    TIMEOUT = "timeout"
    ERROR = "error"


FAILED = frozenset({Status.INVALID, Status.TIMEOUT, Status.ERROR})
"""The statuses of a grading that went wrong."""


@dataclass(frozen=True)
class Prompt:
    """A problem.

    Attributes:
        prompt_id: stable name, the same in every run (a hash of the task and the content).
        content: the text of the prompt, or chat messages ``({"role": ..., "content": ...}, ...)``.
        answer: the gold answer as the row has it (:mod:`surefoot.tasks.gold` says which texts are right); never seen by
            the policy.
        metadata: anything else the verifier or the report wants (difficulty, demonstration ...).
        source: where it was read (``problems.csv, line 3``), for messages; "" where it was made.
    """

    prompt_id: str
    content: str | tuple[Mapping[str, str], ...]
    answer: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = field(default="", repr=False, compare=False)

    @property
    def text(self) -> str:
        """The problem as plain text (the last user message of a chat)."""
        return self.content if isinstance(self.content, str) else self.content[-1]["content"]


@dataclass(frozen=True)
class Sample:
    """One token sequence with the origin and the circumstances of every token.

    Attributes:
        ids: [T] int64 token ids: prompt and completion, exactly as the model read and wrote them.
        origin: [T] uint8, values of :class:`Origin`.
        logp_behaviour: [T] float32, log-probability of the token under the distribution it was sampled from (tempered,
            and renormalised over the kept tokens under top-p or top-k); 0 where origin is not POLICY.
        version: [T] int32, version of the weights that made the token; -1 where origin is not POLICY.
        temperature: [T] float32, sampling temperature of the token; 1 where origin is not POLICY.
        kept_logmass: [T] float32, log of the probability mass that top-p or top-k kept (0: everything was kept).
        finish: why the completion ended.
        prompt_id: name of the prompt.
        sample_id: index of the sample among those of its prompt in its step.
        seed: seed of the sample's own random stream.
        parent: (sample name, token index) where it forked, for trees; None for independent samples.
        top_ids: [T, K] int32, the K likeliest tokens of the full tempered distribution (before top-p and top-k cut it)
            at each place; 0 where origin is not POLICY. None unless the engine was asked for them.
        top_logp: [T, K] float32, their log-probabilities; -inf where origin is not POLICY.
    """

    ids: np.ndarray
    origin: np.ndarray
    logp_behaviour: np.ndarray
    version: np.ndarray
    temperature: np.ndarray
    kept_logmass: np.ndarray
    finish: Finish
    prompt_id: str
    sample_id: int = 0
    seed: int = 0
    parent: tuple[str, int] | None = None
    top_ids: np.ndarray | None = None
    top_logp: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = {
            name: len(getattr(self, name))
            for name in ("ids", "origin", "logp_behaviour", "version", "temperature", "kept_logmass")
        }
        if len(set(lengths.values())) != 1:
            raise ValueError(f"sample {self.prompt_id}/{self.sample_id}: per-token arrays differ in length: {lengths}")
        if self.top_ids is not None or self.top_logp is not None:
            shapes = [None if top is None else top.shape for top in (self.top_ids, self.top_logp)]
            if shapes[0] is None or shapes[0] != shapes[1] or shapes[0][:-1] != (len(self),):
                raise ValueError(
                    f"sample {self.prompt_id}/{self.sample_id}: top_ids and top_logp have the shapes {shapes[0]} and "
                    f"{shapes[1]}: expected ({len(self)}, K) for both"
                )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def mask(self) -> np.ndarray:
        """[T] bool, the tokens a policy gradient may touch: those that the policy wrote. Read only."""
        mask: np.ndarray = self.origin == int(Origin.POLICY)  # NumPy takes its time over members of an enumeration
        mask.setflags(write=False)
        return mask

    @cached_property
    def length(self) -> int:
        """Number of tokens that the policy wrote, a final stop token included."""
        return int(self.mask.sum())

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first one that is not PROMPT."""
        other = np.flatnonzero(self.origin != Origin.PROMPT)
        return int(other[0]) if len(other) else len(self.ids)

    @classmethod
    def of(
        cls,
        prompt_ids: np.ndarray,
        completion_ids: np.ndarray,
        *,
        prompt_id: str,
        finish: Finish = Finish.STOP,
        logp: np.ndarray | None = None,
        kept_logmass: np.ndarray | None = None,
        temperature: float = 1.0,
        version: int = 0,
        sample_id: int = 0,
        seed: int = 0,
        injected: np.ndarray | None = None,
        top_ids: np.ndarray | None = None,
        top_logp: np.ndarray | None = None,
    ) -> Sample:
        """A sample of one prompt and one completion written by the policy (or by a demonstrator, without ``logp``).

        Args:
            prompt_ids: [n] token ids.
            completion_ids: [m] token ids.
            prompt_id, finish, sample_id, seed: as in :class:`Sample`.
            logp, kept_logmass: [m], of the completion; zeros where they are left out.
            temperature, version: of every token that the policy wrote.
            injected: [m] bool, tokens of the completion that were forced on the policy; what the other arguments say
                of them is not kept.
            top_ids, top_logp: [m, K], of the completion.
        """
        n, m = len(prompt_ids), len(completion_ids)

        def spread(outside: float, inside: Any, dtype: type, *width: int) -> np.ndarray:
            array: np.ndarray = np.full((n + m, *width), outside, dtype=dtype)
            array[n:] = inside
            if injected is not None:
                array[n:][injected] = outside
            return array

        origin = spread(int(Origin.PROMPT), int(Origin.POLICY), np.uint8)
        if injected is not None:
            origin[n:][injected] = Origin.INJECTED
        return cls(
            ids=np.concatenate([prompt_ids, completion_ids]).astype(np.int64),
            origin=origin,
            logp_behaviour=spread(0.0, 0.0 if logp is None else logp, np.float32),
            version=spread(-1, version, np.int32),
            temperature=spread(1.0, temperature, np.float32),
            kept_logmass=spread(0.0, 0.0 if kept_logmass is None else kept_logmass, np.float32),
            finish=finish,
            prompt_id=prompt_id,
            sample_id=sample_id,
            seed=seed,
            top_ids=None if top_ids is None else spread(0, top_ids, np.int32, top_ids.shape[1]),
            top_logp=None if top_logp is None else spread(-np.inf, top_logp, np.float32, top_logp.shape[1]),
        )


@dataclass(frozen=True)
class StepScore:
    """The verdict on one step of a completion.

    Attributes:
        end: the character index (exclusive) where the step ends.
        value: its reward.
        token: the index, among the tokens that the policy wrote, of the step's last one; filled in after grading where a
            part of the algorithm reads it.
    """

    end: int
    value: float
    token: int | None = None


@dataclass(frozen=True)
class PartScore:
    """What one part of a composed reward says of a completion.

    Attributes:
        value: what the part gave; NaN where it gave nothing.
        weight: its factor in the total.
        counts: whether its condition held; the total is the sum of weight * value over the parts that count.
        status: what became of grading the completion with this part.
        components: named numbers behind the value, where there are any.
    """

    value: float
    weight: float = 1.0
    counts: bool = True
    status: Status = Status.OK
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """The verdict on one completion.

    Attributes:
        total: the scalar that the algorithm sees; NaN when the status is not a valid one.
        components: the named parts of the total; NaN for one that has no value here.
        correct: whether the answer is right, before shaping; None where the reward does not say.
        status: see :class:`Status`.
        steps: verdicts on the steps, where the verifier can judge them.
        text: something for a person to read (the extracted answer, an error message).
        parts: of a composed reward, what each of its parts said, by name.
    """

    total: float
    components: Mapping[str, float] = field(default_factory=dict)
    correct: bool | None = None
    status: Status = Status.OK
    steps: tuple[StepScore, ...] = ()
    text: str = ""
    parts: Mapping[str, PartScore] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Whether the score may enter a baseline."""
        return self.status in (Status.OK, Status.NO_ANSWER) and math.isfinite(self.total)

    @classmethod
    def failed(cls, status: Status, text: str) -> Score:
        """A completion that could not be graded: it is counted, and leaves the statistics of its group."""
        return cls(total=math.nan, status=status, text=text)


@dataclass(frozen=True)
class Group:
    """Samples that share a baseline, with their scores; and the score of the greedy completion, where one was made."""

    prompt: Prompt
    samples: tuple[Sample, ...]
    scores: tuple[Score, ...]
    greedy: Score | None = None

    def __post_init__(self) -> None:
        if len(self.samples) != len(self.scores):
            raise ValueError(f"group {self.prompt.prompt_id}: {len(self.samples)} samples, {len(self.scores)} scores")
