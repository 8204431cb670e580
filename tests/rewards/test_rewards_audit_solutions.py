"""Worked solutions in an audit: they must be right, and what they say on the way is no answer that was cut off."""

from __future__ import annotations

from dataclasses import replace

from surefoot.rewards.audit import audit_reward
from surefoot.rewards.audit_findings import AuditReport
from surefoot.rewards.build import build_reward
from surefoot.rewards.code import CodeTests
from surefoot.rewards.compose import Part, compose
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import as_reward
from surefoot.rewards.verifiers import make_verifier
from surefoot.tasks.base import Task
from surefoot.types import Prompt

PAIRS = [(9, 5), (20, 7), (31, 8), (450, 61), (700, 44), (1000, 34), (2, 1), (3, 3)]


def sums(solution: str = "{a}+{b}={c}\nThe answer is {c}") -> Task:
    prompts = []
    for a, b in PAIRS:
        metadata = {"completion": solution.format(a=a, b=b, c=a + b)} if solution else {}
        prompts.append(Prompt(f"p{a}", f"Add {a} and {b}.", str(a + b), metadata))
    return Task("sums", prompts, (), demonstrate=(lambda p, seed, rate: p.metadata["completion"]) if solution else None)


def programs(solution: str | None) -> Task:
    prompts = []
    for number in range(4):
        tests = [{"stdin": f"{n}\n", "stdout": f"{n + number}\n"} for n in (1, 5)]
        metadata = {} if solution is None else {"completion": solution.format(number)}
        prompts.append(Prompt(f"p{number}", f"Add {number}.", tests, metadata))
    return Task("programs", prompts, ())


def faults(report: AuditReport) -> list[tuple[str, str]]:
    return [(finding.check, finding.text) for finding in report.findings if finding.severity in ("fail", "warn")]


def test_a_solution_that_says_the_answer_before_the_end_is_not_cut_before_it() -> None:
    reward = make_verifier("number")
    report = audit_reward(sums(), reward)
    assert faults(report) == [] and report["gold"].numbers["solutions"] == len(PAIRS)
    assert faults(audit_reward(sums("It is {c}.0, so\nThe answer is {c}"), reward)) == []


def test_a_solution_that_scores_nothing_is_a_fault_although_the_bare_answer_is_right() -> None:
    report = audit_reward(sums("The answer is {c}. Checked in 3 ways, page 99"), make_verifier("number"))
    assert report["gold"].severity == "fail" and "8 of 8 worked solutions score nothing" in report["gold"].text
    assert report["gold"].examples[0].completion.endswith("page 99")


def test_a_column_named_solution_counts_too_unless_the_task_judges_by_itself() -> None:
    task = sums("")
    solved = [replace(prompt, metadata={"solution": "it is 0"}) for prompt in task.train]
    assert audit_reward(replace(task, train=solved), make_verifier("number"))["gold"].severity == "fail"
    own = replace(task, train=solved, gold=lambda prompt: str(prompt.answer))
    assert audit_reward(own, make_verifier("number"))["gold"].severity == "ok"


def test_programs_are_audited_by_their_solutions_within_the_time_before_a_run() -> None:
    report = audit_reward(programs("```python\nprint(int(input()) + {})\n```"), CodeTests(), prompts=4, seconds=60.0)
    assert faults(report) == [] and report.prompts == 4 and report["other answer"].severity == "ok"
    wrong = audit_reward(programs("```python\nprint('banana {}')\n```"), CodeTests(), seconds=60.0)
    assert wrong["gold"].severity == "fail"
    bare = audit_reward(programs(None), CodeTests(), seconds=60.0)
    assert bare["gold"].severity == "info" and "no right program is known" in bare["gold"].text


def test_a_part_that_no_right_answer_earns_is_a_warning() -> None:
    def tagged(tag: str) -> AuditReport:
        form = as_reward(lambda prompt, completion, answer: float(f"<{tag}>" in completion))
        right = make_verifier("number")
        return audit_reward(sums(""), compose([Part("right", right), Part("form", form, 0.2)]))

    found = tagged("anwser")["parts"]
    assert found.severity == "warn" and found.numbers == {"right": 1.0, "form": 0.0} and "earned form" in found.text
    good = tagged("answer")["parts"]
    assert good.severity == "ok" and 0 < good.numbers["form"] < 1


def test_a_penalty_is_no_part_to_earn() -> None:
    penalty = as_reward(lambda prompt, completion, answer: -1.0 if len(completion) > 100 else 0.0)
    report = audit_reward(sums(""), compose([Part("right", make_verifier("number")), Part("short", penalty)]))
    assert report["parts"].severity == "ok" and "short" not in report["parts"].numbers


def test_the_format_part_of_a_configuration_is_earned_by_the_usual_tags() -> None:
    config = RewardConfig.model_validate(
        {"parts": {"answer": {"verifier": "number"}, "form": {"verifier": "format", "weight": 0.1}}}
    )
    report = audit_reward(sums(""), build_reward(config, sums("")))
    assert report["parts"].severity == "ok"
