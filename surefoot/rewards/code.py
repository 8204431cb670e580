"""The verifier of programs: a completion is right where its program passes the tests of the problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from surefoot.rewards.base import Completion
from surefoot.rewards.code_compare import room_for, same_output, same_result
from surefoot.rewards.code_extract import READER, Found, defined_in, program_in
from surefoot.rewards.code_suites import Case, Suite, suite_of
from surefoot.rewards.sandbox import Call, Checks, Ending, Job, Result, Sandbox, SandboxConfig
from surefoot.rewards.sandbox.pool import shared
from surefoot.rewards.values import short
from surefoot.types import Prompt, Score, Status

IMPORTS = """
import bisect, collections, datetime, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
pow = __builtins__["pow"] if isinstance(__builtins__, dict) else __builtins__.pow
"""
"""What solutions in the style of LeetCode expect to find."""
FAILURES = {
    Ending.COMPILE: "compile_error",
    Ending.FAILED: "runtime_error",
    Ending.MEMORY: "out_of_memory",
    Ending.TIMEOUT: "timeout",
    Ending.OUTPUT: "output_limit",
    Ending.DISK: "disk_limit",
}
WRONG = "wrong_answer"


@dataclass(frozen=True)
class Verdict:
    """One test of one program: whether it passed, and if not, the kind of failure and what to tell a person."""

    passed: bool
    kind: str = ""
    text: str = ""


@dataclass(frozen=True)
class CodeTests:
    """Runs the program of each completion in the sandbox against the gold tests; a :class:`Reward`.

    The tests come from ``prompt.answer`` or ``prompt.metadata`` (:mod:`surefoot.rewards.code_suites`). Expected values
    never enter the process of the program.

    The total is 1 where all tests pass and 0 otherwise, or the share of tests that pass. Components are ``passed`` (the
    share of tests that were seen to pass) and one per kind of failure, 1 for the first test that failed: a program that
    crashes, does not end or eats the memory is graded 0. Only a failure of the sandbox itself is ``Status.ERROR``, which
    leaves the statistics. No program in the completion is ``Status.NO_ANSWER``.

    Attributes:
        score_by: 'all' stops at the first test that fails; 'share' runs all of them, up to the first timeout.
        sandbox: where programs run; verifiers of one configuration share the workers.
        pool: a sandbox to use in place of the shared one.
    """

    name: str = "code"
    score_by: Literal["all", "share"] = "all"
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    pool: Sandbox | None = None
    gold_is_tests: ClassVar[bool] = True  # a gold answer is nothing that a completion could say
    threads: ClassVar[int] = 1  # beside the one that samples; programs run in as many workers as the sandbox has

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """One score per completion, in order. Equal programs for one problem are run once."""
        pool = self.pool or shared(self.sandbox)
        suites = {completion.prompt.prompt_id: suite_of(completion.prompt) for completion in completions}
        found = [
            (completion.prompt.prompt_id, program_in(completion.text, suites[completion.prompt.prompt_id].wanted))
            for completion in completions
        ]
        wanted = list(dict.fromkeys(found))
        with ThreadPoolExecutor(pool.workers) as threads:
            scores = threads.map(lambda one: self._grade(pool, suites[one[0]], one[1]), wanted)
            graded = dict(zip(wanted, scores, strict=True))
        return [graded[one] for one in found]

    def check(self, prompts: Iterable[Prompt]) -> None:
        """See that every problem has tests that can be read.

        Raises:
            RewardError: one has not.
        """
        for prompt in prompts:
            suite_of(prompt)

    def _grade(self, pool: Sandbox, suite: Suite, found: Found | None) -> Score:
        nothing = Score(0.0, {"passed": 0.0}, correct=False, status=Status.NO_ANSWER, text="no program")
        if found is None:
            return nothing
        if found.bare:
            read = pool.run_job(Job(READER, found.to_read(suite.header)))
            if read.status is Ending.ERROR:
                return Score.failed(Status.ERROR, read.text)
            if read.stdout != "program\n":
                return nothing
        if suite.sources:
            verdicts = _by_code(pool, suite, found.source, stop=self.score_by == "all")
        else:
            verdicts = list(self._until(_by_cases(pool, suite, found.source)))
        if verdicts and verdicts[-1].kind == "error":
            return Score.failed(Status.ERROR, verdicts[-1].text)
        share = sum(verdict.passed for verdict in verdicts) / len(suite)
        failure = next((verdict for verdict in verdicts if not verdict.passed), None)
        components = {"passed": share}
        if failure is not None:
            components[failure.kind] = 1.0
        total = share if self.score_by == "share" else float(share == 1.0)
        text = "" if failure is None else f"{failure.kind.replace('_', ' ')}: {failure.text}"
        return Score(total, components, correct=share == 1.0, text=text)

    def _until(self, verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
        """Up to where going on is of no use; a program that does not end once is not waited for again."""
        for verdict in verdicts:
            yield verdict
            if not verdict.passed and (self.score_by == "all" or verdict.kind in ("error", "timeout", "compile_error")):
                return


def _by_cases(pool: Sandbox, suite: Suite, program: str) -> Iterator[Verdict]:
    """One process per case; what it prints or returns is compared here."""
    for case in suite.cases:
        job = Job(program, case.given) if suite.function is None else _calling(program, suite.function, case)
        limits = replace(pool.limits, output=max(pool.limits.output, room_for(case.expected)))
        result = pool.run_job(replace(job, limits=limits))
        if not result.ok:
            yield _failed(result)
        elif suite.function is None:
            right = same_output(result.stdout, case.expected)
            yield Verdict(right, "" if right else WRONG, f"printed {_shown(result.stdout)}")
        else:
            right = same_result(result, case.expected)
            yield Verdict(right, "" if right else WRONG, f"returned {_shown(result.value)}")


def _shown(value: Any) -> str:
    try:
        return short(value)
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits
        return f"a {type(value).__name__} that is too large to show"


def _calling(program: str, function: str, case: Case) -> Job:
    return Job(program, task=Call(function, case.given), prelude=IMPORTS)


def _by_code(pool: Sandbox, suite: Suite, program: str, *, stop: bool) -> list[Verdict]:
    """The tests in a process of their own; the program answers their calls from another."""
    prelude = ""
    if suite.header and suite.wanted & defined_in(program):
        # On its own, so that `from __future__` may stand first in the program; without the function that it leaves open.
        prelude = re.split(rf"^(?:async )?def {suite.entry}\b", suite.header, maxsplit=1, flags=re.MULTILINE)[0]
    elif suite.header:
        program = suite.header + program
    result = pool.run(program, task=Checks(suite.sources, suite.setup, suite.entry, stop), prelude=prelude)
    verdicts = [Verdict(passed, "" if passed else WRONG, result.text) for passed in result.passed]
    if result.status is not Ending.OK:
        first = next((i for i, verdict in enumerate(verdicts) if not verdict.passed), len(verdicts))
        verdicts[first:] = [_failed(result), *verdicts[first + 1 :]]
    return verdicts


def _failed(result: Result) -> Verdict:
    if result.status is Ending.ERROR:
        return Verdict(False, "error", result.text)
    return Verdict(False, FAILURES[result.status], result.text)
