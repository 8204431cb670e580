"""The audit of a reward: every check finds a fault that was planted, and honest verifiers pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.config import validate
from surefoot.rewards.audit import audit_reward, judged_by_task
from surefoot.rewards.audit_data import answers_in_prompts, copies
from surefoot.rewards.audit_findings import AuditReport
from surefoot.rewards.base import Completion
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import as_reward
from surefoot.rewards.verifiers import VERIFIERS, make_verifier
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt, Score

NUMBERS = [12, 47, 1034, 25, 68, 301, 7, 5600, 93, 88, 140, 16]


def sums(count: int = 12) -> Task:
    prompts = [Prompt(f"p{n}", f"Ada has {n - 3} coins and finds 3. How many?", str(n)) for n in NUMBERS[:count]]
    return Task("coins", prompts[:8], prompts[8:])


def named(answers: Sequence[Any], **metadata: Any) -> Task:
    prompts = [Prompt(f"p{k}", f"Question {k}?", answer, metadata) for k, answer in enumerate(answers)]
    return Task("questions", prompts, ())


def look(reward: Any, task: Task | None = None, **options: Any) -> AuditReport:
    return audit_reward(task or sums(), as_reward(reward), **options)


def failures(report: AuditReport) -> set[str]:
    return {finding.check for finding in report.of("fail")}


WORDS = ["Paris", "the cat", "red", "Mount Fuji", "seven", "salt", "a boat", "Rome"]
SHAPE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
SMALL = {"train_size": 30, "heldout_size": 6}
KINDS: dict[str, tuple[Task, dict[str, Any]]] = {
    "exact": (named(WORDS), {}),
    "number": (sums(), {}),
    "boxed": (named(WORDS), {}),
    "tag": (named(WORDS), {}),
    "math": (named([r"\frac{1}{2}", "x+1", "12", "[0, 5)", "1500", r"\sqrt{3}", "-7", "2, 3"]), {}),
    "choice": (named(["A", "B", "C", "D"] * 2, options=["Paris", "Rome", "Madrid", "Oslo"]), {}),
    "regex": (named(["cat", "dog", "bird", "fish"]), {}),
    "json": (named([{"age": n} for n in NUMBERS]), {"schema": SHAPE, "equal": True}),
    "steps": (sums(), {}),
    "format": (sums(), {}),
    "length": (sums(), {}),
    "repetition": (sums(), {}),
    "language": (sums(), {}),
}


def test_every_verifier_has_a_task_of_its_kind_here():
    assert set(KINDS) == set(VERIFIERS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_verifiers_pass_on_a_task_of_their_kind(name: str):
    task, options = KINDS[name]
    report = audit_reward(task, make_verifier(name, options))
    assert [(f.check, f.text, f.examples[:1]) for f in report.findings if f.severity in ("fail", "warn")] == []
    says = name not in ("format", "length", "repetition", "language")
    assert report["gold"].severity == ("ok" if says else "info")


@pytest.mark.parametrize(
    "task",
    [
        {"name": "addition"},
        {"name": "chain_mod"},
        {"name": "gym:chain_sum"},
        {"name": "mixture", "parts": [{"name": "addition", **SMALL}, {"name": "chain_mod", **SMALL}]},
    ],
    ids=lambda task: task["name"],
)
def test_built_in_tasks_pass_with_their_own_verifier(task: dict[str, Any]):
    made = build_task(validate(TaskConfig, {"train_size": 40, "heldout_size": 8, **task}))
    config = RewardConfig()
    report = audit_reward(made, build_reward(config, made), own=judged_by_task(config), prompts=16)
    assert [(f.check, f.text) for f in report.findings if f.severity in ("fail", "warn")] == []
    assert report["gold"].severity == "ok" and report["paraphrases"].numbers["graded"] >= 16


def anywhere(prompt: str, completion: str, answer: str) -> bool:
    return answer in completion


def in_a_list(prompt: str, completion: str, answer: str) -> bool:
    return answer in completion.replace(",", " ").split()


def first_word(completion: str) -> str:
    return (completion.split() or [""])[-1]


FAULTS: dict[str, tuple[Callable[[str, str, str], Any], set[str]]] = {
    "the answer anywhere": (anywhere, {"listing", "repeated", "many", "denied", "inside"}),
    "the answer in a list": (in_a_list, {"listing", "many", "repeated"}),
    "an empty completion": (
        lambda prompt, completion, answer: not completion.strip() or completion == answer,
        {"empty"},
    ),
    "words like between": (
        lambda prompt, completion, answer: completion == answer or "between" in completion,
        {"range"},
    ),
    "any tag": (lambda prompt, completion, answer: completion == answer or "<answer>" in completion, {"tags"}),
    "long texts": (lambda prompt, completion, answer: completion == answer or len(completion) > 9999, {"long"}),
    "counting": (lambda prompt, completion, answer: completion == answer or "98 99" in completion, {"counting"}),
    "any number": (lambda prompt, completion, answer: completion.strip().isdigit(), {"other answer"}),
    "a beginning": (
        lambda prompt, completion, answer: completion in (f"The answer is {answer}.", "The answer is "),
        {"truncated"},
    ),
    "everything": (lambda prompt, completion, answer: True, {"empty", "range", "tags", "other answer", "listing"}),
    "nothing": (lambda prompt, completion, answer: False, {"gold"}),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault_is_found(name: str):
    function, expected = FAULTS[name]
    report = look(function)
    assert report.failed and expected <= failures(report)
    for check in expected:
        assert report[check].examples and report[check].numbers


def test_all_choices_at_once_are_found():
    def any_letter(prompt: str, completion: str, answer: str) -> bool:
        return answer in completion.replace(",", " ").split()

    report = look(any_letter, named(list("ABCD") * 2, options=["Paris", "Rome", "Madrid", "Oslo"]))
    assert report["all choices"].severity == "fail"


def test_a_repeated_prompt_and_an_answer_in_a_thought_are_warnings():
    report = look(lambda prompt, completion, answer: completion in (answer, prompt) or "<think>" in completion)
    assert report["echo"].severity == "warn" and report["in thought"].severity == "warn"
    assert not failures(report) & {"echo", "in thought"}


def test_gold_answers_that_cannot_be_right_are_listed_with_what_was_found():
    task = sums()
    broken = [replace(task.train[0], answer="twelve"), *task.train[1:]]
    report = audit_reward(replace(task, train=broken), make_verifier("number"))
    (example,) = report["gold"].examples
    assert (example.prompt_id, example.gold) == ("p12", "twelve")
    assert report["gold"].severity == "fail" and report["gold"].numbers["refused"] == 1
    assert example.status == "no_answer"


def test_the_form_of_the_task_and_worked_solutions_count_as_right_forms():
    prompts = [Prompt(f"p{n}", f"{n}?", str(n)) for n in NUMBERS]
    strange: Callable[[str, str, str], bool] = lambda prompt, completion, answer: completion == f"<<{answer}>>"  # noqa: E731
    assert look(strange, Task("t", prompts, ())).failed
    ways = ({"gold": lambda p: f"<<{p.answer}>>"}, {"demonstrate": lambda p, seed, rate: f"<<{p.answer}>>"})
    for way in ways:
        assert look(strange, Task("t", prompts, (), **way))["gold"].severity == "ok"


def test_the_texts_of_the_task_are_tried_where_they_are_about_the_reward():
    prompts = [Prompt(f"p{n}", f"{n}?", str(n)) for n in NUMBERS]
    task = Task("t", prompts, (), paraphrases=lambda p: [f"it's {p.answer}"], wrong=lambda p: [f"not {p.answer}"])
    report = look(lambda prompt, completion, answer: completion in (answer, f"not {answer}"), task, own=True)
    assert {"task's wrong", "paraphrases"} <= failures(report) | {f.check for f in report.of("warn")}
    assert report["task's wrong"].severity == "fail"
    with pytest.raises(KeyError):
        look(anywhere, task)["task's wrong"]


def test_a_verifier_that_breaks_its_promise_fails_and_a_strict_function_is_a_warning():
    class Number:
        name = "number"

        def score(self, completions: Sequence[Completion]) -> list[Score]:
            return [Score(float(c.text == c.prompt.answer), correct=c.text == c.prompt.answer) for c in completions]

    assert look(Number())["paraphrases"].severity == "fail"
    strict = look(lambda prompt, completion, answer: completion == answer)["paraphrases"]
    assert strict.severity == "warn" and "white space" in strict.numbers["refused"]


class Counts:
    """Gives what depends on how often it was called."""

    name = "counts"

    def __init__(self, verdict: Callable[[Completion, int, int], Score]) -> None:
        self.verdict, self.calls = verdict, 0

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        self.calls += 1
        return [self.verdict(c, self.calls, len(completions)) for c in completions]


def test_scores_that_change_are_found():
    def moody(completion: Completion, call: int, size: int) -> Score:
        right = completion.text == completion.prompt.answer and call % 2 == 1
        return Score(float(right), correct=right)

    def jittery(completion: Completion, call: int, size: int) -> Score:
        return Score(
            call / 1000 + (completion.text == completion.prompt.answer),
            correct=completion.text == completion.prompt.answer,
        )

    def relative(completion: Completion, call: int, size: int) -> Score:
        right = completion.text == completion.prompt.answer
        return Score(right / size, correct=right)

    assert look(Counts(moody))["repeatable"].severity == "fail"
    assert look(Counts(jittery))["repeatable"].severity == "warn"
    report = look(Counts(relative))["repeatable"]
    assert report.severity == "warn" and "graded with them" in report.text
    assert look(make_verifier("number"))["repeatable"].severity == "ok"


def test_texts_that_make_a_reward_raise_are_listed():
    report = look(lambda prompt, completion, answer: first_word(completion) == answer and completion.split()[0] != "")
    assert report["grading"].severity == "ok"
    raises = look(lambda prompt, completion, answer: completion.split()[-1] == answer)
    assert raises["grading"].severity == "warn" and raises["grading"].numbers["error"] >= 12
    assert "IndexError" in raises["grading"].examples[0].found

    def broken(prompt: str, completion: str, answer: str) -> bool:
        raise RuntimeError("no")

    report = look(broken)
    assert "grading" in failures(report) and "RuntimeError: no" in report["grading"].text


def test_the_start_of_a_reward_is_not_counted_before_a_run():
    class Starts(Counts):
        def score(self, completions: Sequence[Completion]) -> list[Score]:
            if self.calls == 0:
                time.sleep(1.0)
            return super().score(completions)

    reward = Starts(lambda c, call, size: Score(float(c.text == c.prompt.answer), correct=c.text == c.prompt.answer))
    assert audit_reward(sums(), reward, seconds=0.9).prompts > 0


def test_a_report_is_printed_as_a_table_and_shown_in_one_line():
    report = look(anywhere)
    text = str(report)
    assert text.splitlines()[0] == "task coins, reward anywhere, 12 prompts" and "fail  listing" in text
    assert text.endswith(report.verdict) and len(text) < 5000
    assert "\n" not in repr(report) and "faults" in repr(report)


def test_a_judge_that_does_not_say_what_is_right_is_told_the_option():
    class Judges(Counts):
        asks_model = True

    for verdict in (
        lambda c, call, size: Score(0.5),
        lambda c, call, size: Score(0.9 if c.prompt.answer in c.text else 0.1),
    ):
        assert "right_at_least" in look(Judges(verdict))["gold"].text


def test_a_reward_without_a_notion_of_right_is_not_judged():
    report = look(lambda prompt, completion, answer: sum(c.isdigit() for c in completion) / max(1, len(completion)))
    assert not report.failed and report["gold"].severity == "info" and "does not look at gold" in report["gold"].text
    near = look(lambda prompt, completion, answer: -abs(len(completion) - len(answer)) / 9 - 1)
    assert not near.failed and near["gold"].severity == "info"


def test_numbers_are_judged_where_they_depend_on_the_gold_answer():
    report = look(lambda prompt, completion, answer: float(answer in completion))
    assert {"listing", "inside"} <= failures(report)


def test_the_same_for_everything_is_a_warning():
    assert look(lambda prompt, completion, answer: 0.0)["constant"].severity == "warn"


def test_wrong_answers_that_earn_more_are_a_warning():
    def upside_down(prompt: Prompt, text: str) -> Score:
        right = text == prompt.answer
        return Score(float(not right), correct=right)

    report = look(upside_down)
    assert report["order"].severity == "warn" and report["order"].numbers["right"] == 0.0
    assert look(make_verifier("number"))["order"].severity == "ok"


def test_a_slow_reward_and_one_that_asks_a_model_are_left_out_of_a_quick_look():
    def slow(prompt: str, completion: str, answer: str) -> bool:
        time.sleep(0.05)
        return completion == answer

    report = look(slow, seconds=1.0)
    assert report.prompts == 0 and not report.failed and "too long" in report["time"].text
    assert report["time"].severity == "warn" and "nothing was tried: one grading takes" in report.verdict

    class Asks(Counts):
        asks_model = True

    judge = Asks(lambda completion, call, size: Score(1.0))
    report = audit_reward(sums(), judge, seconds=1.0)
    assert judge.calls == 0 and "asks a model" in report["time"].text and "without --quick" in report["time"].text
    assert report["time"].severity == "warn" and "No faults" not in report.verdict
    assert audit_reward(sums(), judge).prompts == 12 and judge.calls > 0


def test_times_are_measured():
    report = look(lambda prompt, completion, answer: completion == answer)
    assert 0 < report["time"].numbers["median"] <= report["time"].numbers["p99"] <= report["time"].numbers["slowest"]


def test_gold_answers_in_prompts():
    open_ = [Prompt(f"p{n}", f"The answer is {n}. What is it?", str(n)) for n in NUMBERS]
    finding = answers_in_prompts(open_)
    assert finding.severity == "warn" and finding.numbers == {"prompts": 12, "own": 12, "other": 0}
    assert answers_in_prompts(sums().train).severity == "ok"
    digits = [Prompt(f"p{n}", "1 2 3 4 5 6 7 8 9", str(n)) for n in range(1, 9)]
    assert answers_in_prompts(digits).severity == "info"
    read = answers_in_prompts(sums().train, [f"Hint: {p.answer}" for p in sums().train])
    assert read.severity == "warn"


def test_copies():
    a, b = Prompt("a", "What is 1 + 2?", "3"), Prompt("b", "what is 1+2", "3")
    assert copies(Task("t", [a], [b])).severity == "fail"
    assert copies(Task("t", [a, b], [])).severity == "info"
    assert copies(Task("t", [a, replace(b, answer="4")], [])).severity == "warn"
    assert copies(sums()).severity == "ok"


def test_an_audit_draws_no_random_numbers():
    states = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
    look(anywhere)
    assert random.getstate() == states[0] and np.random.get_state()[1].tobytes() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_a_sum_of_parts_and_weights_pass_with_the_task_that_they_judge():
    task = build_task(TaskConfig(train_size=40, heldout_size=8))
    parts = {"answer": {"verifier": "auto"}, "short": {"verifier": "length", "weight": 0.1, "options": {"budget": 30}}}
    config = validate(RewardConfig, {"parts": parts})
    assert judged_by_task(config) and not judged_by_task(RewardConfig(verifier="number"))
    assert not audit_reward(task, build_reward(config, task), own=True, prompts=12).failed
