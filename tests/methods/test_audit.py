"""The whole audit: another process, samples of a model, the command and the Python interface."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import surefoot
from surefoot.cli.main import run
from surefoot.errors import ConfigError
from surefoot.methods.audit_samples import Graded, components, doubtful, endings, no_signal, sampled, solve_rates
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.audit_process import elsewhere
from surefoot.rewards.base import Reward
from surefoot.rewards.config import RewardConfig
from surefoot.tasks.base import Task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Finish, Prompt, Sample, Score, Status
from tests.methods.strange_reward import ByHash, Steady

PROMPTS = [Prompt(f"p{n}", f"Say {n + 1} less one.", str(n)) for n in (12, 47, 25, 68, 301, 93, 88, 140)]
TASK = Task("less one", PROMPTS, ())


def seen(reward: Reward) -> Grader:
    grader = Grader(reward)
    grader.grade([Case(p, text) for p in PROMPTS for text in (p.answer, "", f"no {p.answer}", p.text)])
    return grader


def test_scores_that_differ_between_processes_are_found():
    finding = elsewhere(ByHash(), seen(ByHash()).seen, None)
    assert finding.severity == "fail" and finding.numbers["different"] > 0 and finding.examples
    assert elsewhere(Steady(), seen(Steady()).seen, None).severity == "ok"


def test_a_reward_of_a_configuration_is_built_again_and_a_function_is_left_out():
    class Local(Steady):
        """Cannot be pickled."""

    assert elsewhere(Local(), seen(Local()).seen, None).severity == "info"
    recipe = (RewardConfig(verifier="exact"), TaskConfig(train_size=8, heldout_size=0))
    from surefoot.rewards.verifiers import make_verifier

    class Exact(Steady):
        """Like the verifier that the recipe makes."""

        score = staticmethod(make_verifier("exact").score)  # type: ignore[assignment]

    assert elsewhere(Exact(), seen(Exact()).seen, recipe).severity == "ok"


def made(answers: list[list[str]], lengths: list[int] | None = None) -> Graded:
    """Prompts with the gold answer "1", and samples with these answers ("" for none, "cut" for a cut one)."""
    graded: Graded = []
    for k, group in enumerate(answers):
        samples, scores = [], []
        for i, answer in enumerate(group):
            size = lengths[i] if lengths else 3
            finish = Finish.LENGTH if answer == "cut" else Finish.STOP
            samples.append(Sample.of(np.arange(2), np.arange(size), prompt_id=f"p{k}", finish=finish))
            status = Status.NO_ANSWER if answer in ("", "cut") else Status.OK
            right = float(answer == "1")
            scores.append(Score(right, {"accuracy": right}, bool(right), status, (), answer))
        graded.append((Prompt(f"p{k}", "?", "1"), tuple(samples), tuple(scores)))
    return graded


def test_solve_rates_and_prompts_without_signal():
    graded = made([["1"] * 4, ["2", "3", "4", "5"], ["1", "2", "1", "2"]])
    assert solve_rates(graded).numbers["histogram"] == [1, 0, 1, 0, 1]
    assert no_signal(graded).numbers["no_signal"] == 2 and no_signal(graded).severity == "info"
    assert no_signal(made([["1"] * 4, ["2"] * 4])).severity == "warn"


def test_samples_that_end_without_an_answer():
    finding = endings(made([["1", "", "cut", "cut"]]))
    assert finding.severity == "warn" and finding.numbers == {"no_answer": 0.75, "truncated": 0.5, "ungraded": 0}


def test_rewards_that_go_with_the_length_are_a_warning():
    finding = components(made([["2", "2", "1", "1"]], [3, 4, 30, 31]))
    assert finding.severity == "warn" and finding.numbers["total"]["with_length"] > 0.9
    even = components(made([["2", "1", "2", "1"]], [3, 3, 30, 30]))
    assert even.severity == "info" and even.numbers["accuracy"]["std"] == 0.5


def test_gold_answers_that_samples_agree_against_are_in_doubt():
    finding = doubtful(made([["7", "7", "7", "1"], ["1", "1", "2", "2"], ["", "", "", ""]]))
    (example,) = finding.examples
    assert (example.prompt_id, example.gold, example.found, example.status) == ("p0", "1", "7", "3/4")
    assert doubtful(made([["7", "7"]])).severity == "ok"


def test_a_model_is_sampled_and_the_prompt_that_it_reads_is_searched():
    report = surefoot.audit(
        {
            "name": "addition",
            "options": {"digits": 1},
            "train_size": 30,
            "heldout_size": 4,
            "prompt": "Not 5: {prompt}",
        },
        {"rollout": {"max_new_tokens": 3}},
        model="embedded",
        samples=2,
        prompts=6,
        reward=lambda prompt, completion, answer: completion == f">{answer}",
    )
    rates = report["solve rates"].numbers
    assert sum(rates["histogram"]) == 6 and rates["samples"] == 2
    assert report["other process"].severity == "info" and report["rewards"].numbers["total"]["mean"] is not None
    assert json.loads(json.dumps(report.record()))["failed"] == report.failed
    with pytest.raises(ConfigError, match="at least one sample"):
        sampled(None, [], 0, 0)  # type: ignore[arg-type]


def test_the_python_interface_finds_a_leak_and_passes_an_honest_function():
    def contains(prompt: str, completion: str, answer: str) -> bool:
        return answer in completion

    def last_word(prompt: str, completion: str, answer: str) -> bool:
        return completion.strip().split(" ")[-1] == answer

    assert surefoot.audit(TASK, reward=contains).failed
    assert not surefoot.audit(TASK, reward=last_word, quick=True, audit__seconds=600).failed
    assert surefoot.audit(TASK, prompts=3, quick=True, audit__seconds=600).prompts == 3


def write_quiz(folder: Path) -> Path:
    rows = [{"prompt": p.text, "answer": p.answer} for p in PROMPTS]
    file = folder / "quiz.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_the_command_says_what_it_found_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    quiz, config = write_quiz(tmp_path), tmp_path / "run.toml"
    config.write_text('[reward]\nverifier = "regex"\noptions = {pattern = ".+"}\n[task]\nheldout_share = 0.3\n')
    assert run(["audit", str(config), "--task", str(quiz), "--quick", "--audit.seconds", "600"]) == 1
    out = capsys.readouterr().out
    assert "fail  listing" in out and max(map(len, out.splitlines())) <= 80
    assert "11 faults" in out and "\n  " in out
    assert (
        run(
            [
                "audit",
                str(quiz),
                "--task.heldout_share",
                "0.3",
                "--prompts",
                "4",
                "--json",
                "--quick",
                "--audit.seconds",
                "600",
            ]
        )
        == 0
    )
    record = json.loads(capsys.readouterr().out)
    assert record["failed"] is False and record["prompts"] == 4 and record["reward"] == "number"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit"], "nothing to audit"),
        (["audit", "addition", "chain_mod"], "one task"),
        (["audit", "adition"], "addition"),
    ],
)
def test_the_command_refuses_what_it_cannot_audit(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert run(words) == 2
    assert message in capsys.readouterr().err
