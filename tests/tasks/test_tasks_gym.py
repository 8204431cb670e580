"""reasoning-gym: its own problems and scorers, which see only the final answer and none of its traps."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import reasoning_gym

from surefoot.errors import DataError
from surefoot.tasks.base import Task
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt, Score, Status

# One of each way to score: as text, as a number, by evaluation, by a solver of its own.
DATASETS = [
    "basic_arithmetic",
    "binary_matrix",
    "calendar_arithmetic",
    "chain_sum",
    "complex_arithmetic",
    "fraction_simplification",
    "gcd",
    "gsm_symbolic",
    "knights_knaves",
    "letter_counting",
    "n_queens",
    "number_sorting",
    "simple_equations",
    "simple_integration",
    "spell_backward",
    "tower_of_hanoi",
]


def gym(name: str, **over: object) -> Task:
    return build_task(TaskConfig(**{"name": f"gym:{name}", "train_size": 12, "heldout_size": 4, **over}))


def verdict(task: Task, text: str, prompt: Prompt | None = None) -> Score:
    assert task.verify is not None
    return task.verify(prompt or task.train[0], text)


@pytest.mark.parametrize("name", DATASETS)
def test_gold_answers_are_right_in_every_wording_and_meaningless_ones_are_not(name: str):
    task = gym(name)
    for prompt in (*task.train, *task.heldout):
        for wording in ("{}", "I count 12.\n<answer>{}</answer>", "I count 12.\n\nThe answer is: {}"):
            score = verdict(task, wording.format(prompt.answer), prompt)
            assert score.total == 1.0 and score.correct, (prompt, score)
        for text in (
            "",
            "no idea",
            "<answer>zzz</answer>",
            "1e999999",
            "nan",
            "<answer>nan</answer>",
            "<answer></answer>",
        ):
            score = verdict(task, text, prompt)
            assert score.total == 0.0 and not score.correct, (prompt, text, score)


@pytest.fixture(scope="module")
def sums() -> Task:
    return gym("chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2})


def test_problems_are_those_of_reasoning_gym(sums: Task):
    dataset = reasoning_gym.create_dataset(
        "chain_sum", seed=0, size=500, min_terms=2, max_terms=2, min_digits=2, max_digits=2
    )
    own = {entry["question"]: entry["answer"] for entry in (dataset[i] for i in range(60))}
    assert all(own[prompt.content] == prompt.answer for prompt in (*sums.train, *sums.heldout))


def test_a_completion_that_only_holds_the_gold_answer_earns_nothing(sums: Task):
    prompt = sums.train[0]
    dataset = reasoning_gym.create_dataset("chain_sum", seed=0, size=1)
    entry = {"question": prompt.text, "answer": prompt.answer, "metadata": dict(prompt.metadata)}
    assert dataset.score_answer(f"{prompt.answer} or {prompt.answer}", entry) > 0  # the trap
    for text in (
        f"{prompt.answer} or 77777",
        f"{prompt.answer}77777",
        f"77777{prompt.answer}",
        f"<answer>{prompt.answer} or 7</answer>",
    ):
        score = verdict(sums, text, prompt)
        assert score.total == 0.0 and score.correct is False, text
    partial = verdict(sums, f"<answer>{prompt.answer} or 7</answer>", prompt)
    assert 0 < partial.components["partial"] < 1  # shown, and not paid
    assert partial.components["accuracy"] == 0.0


@pytest.mark.parametrize("text", ["", "   ", "I give up", "<answer></answer>", r"\boxed{", "<think>5</think>"])
def test_no_answer_is_said_so(sums: Task, text: str):
    score = verdict(sums, text)
    assert score.status is Status.NO_ANSWER and score.total == 0.0 and score.valid


def test_repeating_the_problem_is_no_answer(sums: Task):
    for prompt in sums.train:
        assert verdict(sums, prompt.text, prompt).status is Status.NO_ANSWER


def test_thousands_and_signs_do_not_matter():
    task = gym("chain_sum", options={"min_digits": 4, "max_digits": 4})
    for prompt in task.train:
        assert verdict(task, f"That is {int(prompt.answer):+,}.", prompt).correct


def test_options_reach_the_generator(sums: Task):
    assert all(prompt.metadata["num_terms"] == 2 for prompt in sums.train)
    assert any(prompt.metadata["num_terms"] > 2 for prompt in gym("chain_sum").train)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chain_sums", {}, "unknown data set of reasoning-gym 'chain_sums'. Did you mean 'chain_sum'?"),
        ("", {}, "unknown data set of reasoning-gym ''"),
        (
            "chain_sum",
            {"max_term": 3},
            "unknown option 'max_term' of the task 'gym:chain_sum'. Did you mean 'max_terms'?",
        ),
        ("chain_sum", {"seed": 3}, "set task.seed instead"),
        ("chain_sum", {"size": 3}, "set task.train_size and task.heldout_size instead"),
        ("chain_sum", {"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
        ("chain_sum", {"min_terms": "five"}, "reasoning-gym refuses task.options"),
        ("composite", {}, "Must specify at least one dataset"),
        ("game_of_life_halting", {}, "calls the answer 'zzz' right for 12 of 12"),
        ("coin_flip", {}, "calls the answer '0' right for"),
    ],
)
def test_mistakes_are_one_clear_line(name: str, options: dict[str, object], words: str):
    with pytest.raises(DataError) as error:
        gym(name, options=options)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_problems_that_differ_from_process_to_process_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(DataError, match="PYTHONHASHSEED=0"):
        gym("ransom_note")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert gym("ransom_note").train


def test_problems_do_not_depend_on_the_process():
    code = (
        "from surefoot.tasks.build import build_task; from surefoot.tasks.config import TaskConfig;"
        "print(build_task(TaskConfig(name='gym:chain_sum', train_size=50, heldout_size=5)).fingerprint)"
    )
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == gym("chain_sum", train_size=50, heldout_size=5).fingerprint


def test_an_answer_that_would_be_evaluated_is_not(tmp_path):
    task = gym("n_queens")
    mark = tmp_path / "mark"
    for text in (
        f"open({str(mark)!r}, 'w')",
        f"[open({str(mark)!r}, 'w')]",
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
    ):
        score = verdict(task, f"<answer>{text}</answer>")
        assert not score.correct and "not a plain value" in score.text
    task = gym("simple_integration")
    score = verdict(task, f"<answer>open({str(mark)!r}, 'w')</answer>")
    assert not score.correct and "not a plain formula" in score.text
    assert not mark.exists()


def test_an_answer_that_would_take_for_ever_does_not():
    task = gym("countdown", train_size=4, heldout_size=0)
    begin = time.perf_counter()
    for text in ("1e999999", "9**9**9**9", "99999999!", "9" * 100_000):
        assert not verdict(task, f"<answer>{text}</answer>").correct
    assert time.perf_counter() - begin < 1.0


def test_the_problem_itself_is_no_solution_of_an_integral():
    task = gym("simple_integration")
    for prompt in task.train:
        assert not verdict(task, f"<answer>Integral({prompt.metadata['integrand']}, x)</answer>", prompt).correct


def test_numbers_that_are_not_finite_earn_nothing():
    task = gym("complex_arithmetic")
    for prompt in task.train:
        for text in ("nan", "nan+nanj", "nani", "3+nanj", "inf"):
            assert not verdict(task, f"<answer>{text}</answer>", prompt).correct


def test_an_answer_that_breaks_the_scorer_is_wrong_and_says_why():
    score = verdict(gym("game_of_life"), "<answer>{}</answer>")
    assert score.total == 0.0 and score.status is Status.OK and "KeyError" in score.text


def test_hexadecimal_answers_are_no_huge_numbers():
    task = gym("bitwise_arithmetic")
    prompt = Prompt("p", "q", "0x1e23456", task.train[0].metadata)
    assert "exponent" not in verdict(task, "0x1e23456", prompt).text


@pytest.mark.parametrize("name", DATASETS)
def test_the_texts_for_the_audit_are_right_and_wrong(name: str):
    task = gym(name)
    assert task.verify is not None and task.wrong is not None
    for prompt in task.train[:6]:
        right = [] if task.gold is None or task.paraphrases is None else [task.gold(prompt), *task.paraphrases(prompt)]
        for text in right:
            assert task.verify(prompt, text).correct, text
        for text in task.wrong(prompt):
            assert not task.verify(prompt, text).correct, text
