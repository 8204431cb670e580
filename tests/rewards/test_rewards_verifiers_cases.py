"""Every verifier against its table of right answers, near misses, exploits, and completions without an answer."""

from __future__ import annotations

from collections import Counter

import pytest

from surefoot.rewards.base import Completion
from surefoot.rewards.verifiers import make_verifier
from surefoot.types import Prompt
from tests.rewards.case_tables import DATA, load, verdict

SMALL = ["choice", "exact", "format", "json", "number", "regex"]


@pytest.mark.parametrize("name", SMALL)
def test_the_table_of_a_verifier(name: str):
    wrong = []
    for row in load(name):
        verifier = make_verifier(name, row.get("options", {}))
        prompt = Prompt("p", "What is it?", row["gold"], row.get("metadata", {}))
        if row["gold"] is not None:
            verifier.check([prompt])
        if (found := verdict(verifier(prompt, row["completion"]))) != row["verdict"]:
            wrong.append((row["completion"][:80], row["gold"], found))
    assert wrong == []


def test_the_table_of_mathematics():
    rows = load("mathematics")
    verifier = make_verifier("math")
    prompts = [Prompt(str(k), "What is it?", row["gold"]) for k, row in enumerate(rows)]
    verifier.check(prompts)
    scores = verifier.score([Completion(p, row["completion"]) for p, row in zip(prompts, rows, strict=True)])
    wrong = [
        (row["kind"], row["gold"], row["completion"][:80], verdict(score))
        for row, score in zip(rows, scores, strict=True)
        if verdict(score) != row["verdict"]
    ]
    assert wrong == []


def test_the_tables_hold_what_they_promise():
    counts = {path.stem: Counter(row["verdict"] for row in load(path.stem)) for path in DATA.glob("*.jsonl")}
    assert set(counts) == {*SMALL, "mathematics", "programs"}
    assert counts["mathematics"]["right"] >= 60 and counts["mathematics"]["wrong"] >= 60
    assert counts["choice"]["right"] >= 20 and counts["choice"]["wrong"] >= 30
    adversarial = [row for row in load("mathematics") if row["kind"] in ("bomb", "listing", "code")]
    assert len(adversarial) >= 30 and all(row["verdict"] == "wrong" for row in adversarial)


def test_every_gold_answer_of_mathematics_is_right_in_a_box():
    golds = sorted(
        {row["gold"] for row in load("mathematics") if "####" not in row["gold"] and "boxed" not in row["gold"]}
    )
    completions = [Completion(Prompt(gold, "?", gold), rf"\boxed{{{gold}}}") for gold in golds]
    assert [
        gold for gold, score in zip(golds, make_verifier("math").score(completions), strict=True) if not score.correct
    ] == []
