"""What an audit finds: findings with a severity, a sentence and examples, and the report that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from surefoot.rewards.audit_answers import gold_of
from surefoot.types import Prompt, Score

Severity = Literal["fail", "warn", "info", "ok"]
SEVERITIES: tuple[Severity, ...] = ("fail", "warn", "info", "ok")
SHOWN = 5
"""Examples that a finding keeps."""


@dataclass(frozen=True)
class Example:
    """A completion that shows a finding.

    Attributes:
        prompt_id: the problem.
        gold: its gold answer as text; "" where it has none.
        completion: what was graded, or the text in question.
        found: what the reward read as the answer, or why it could not grade.
        status: of the grading; "" where nothing was graded.
        total: the reward; None where there is none.
    """

    prompt_id: str
    gold: str
    completion: str
    found: str = ""
    status: str = ""
    total: float | None = None

    @classmethod
    def of(cls, prompt: Prompt, text: str, score: Score) -> Example:
        total = score.total if score.valid else None
        return cls(prompt.prompt_id, gold_of(prompt), text, score.text, str(score.status), total)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: its short name.
        severity: "fail" (the reward can be fooled, or refuses what is right), "warn" (look at it), "info", or "ok".
        text: what was found, in a sentence.
        examples: the worst cases.
        numbers: what was measured.
    """

    check: str
    severity: Severity
    text: str
    examples: tuple[Example, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class AuditReport:
    """What an audit of a task and its reward found.

    Attributes:
        task, reward: their names.
        prompts: how many prompts were looked at.
        findings: in the order of the checks.
    """

    task: str
    reward: str
    prompts: int
    findings: tuple[Finding, ...]

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def __getitem__(self, check: str) -> Finding:
        """The finding of one check.

        Raises:
            KeyError: the check was not made.
        """
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    @property
    def failed(self) -> bool:
        return bool(self.of("fail"))

    @property
    def verdict(self) -> str:
        """The report in a sentence."""
        failures, warnings = len(self.of("fail")), len(self.of("warn"))
        if failures:
            return f"{_number(failures, 'fault')}: `surefoot train` would stop here (audit.before)."
        if not self.prompts:
            why = next(
                (f": {f.text.removeprefix('nothing was tried: ')}" for f in self.findings if f.check == "time"), ""
            )
            return f"The reward was not audited, nothing was tried{why}."
        return f"No faults, {_number(warnings, 'warning')}." if warnings else "No faults."

    def __str__(self) -> str:
        """The findings, a line each, and the verdict."""
        width = max((len(finding.check) for finding in self.findings), default=0)
        rows = [f"{one.severity:4}  {one.check:{width}}  {one.text}" for one in self.findings]
        head = f"task {self.task}, reward {self.reward}, {self.prompts} prompts"
        return "\n".join([head, "", *rows, "", self.verdict])

    def __repr__(self) -> str:
        return f"<AuditReport of task {self.task!r}, reward {self.reward!r}: {self.verdict}>"

    def record(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {**asdict(self), "failed": self.failed}


def _number(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def examples(cases: Iterable[tuple[Prompt, str, Score]], most: int = SHOWN) -> tuple[Example, ...]:
    """The first cases, as examples."""
    return tuple(Example.of(*case) for case, _ in zip(cases, range(most), strict=False))


def counted(number: int, of: Sequence[Any] | int, what: str = "prompts") -> str:
    """``3 of 32 prompts``"""
    return f"{number} of {of if isinstance(of, int) else len(of)} {what}"
