"""``surefoot cards``: the list, one card, two side by side, in a terminal, in a file and as JSON; and the page that is made."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from surefoot.algorithms import card
from surefoot.algorithms.algorithm import SLOTS
from surefoot.algorithms.config import AlgorithmConfig
from surefoot.algorithms.part import REGISTRY
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS
from surefoot.cli import cards
from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]
DOCS = Path(__file__).parents[2] / "docs"
EVERY = {**PRESETS, **PREFERENCES}


def plain_and_narrow(text: str, width: int = 80) -> bool:
    """No control codes, no line that is too wide, no spaces at the ends of lines."""
    return all(len(line) <= width and line == line.rstrip() and line.isprintable() for line in text.splitlines())


def refused(done: Outcome, *words: str) -> None:
    assert (done.code, done.out) == (2, "") and done.err.count("\n") == 1
    assert all(word in done.err for word in words), done.err


def test_the_list_is_a_tree_that_a_file_can_hold(surefoot: Command) -> None:
    done = surefoot("cards")
    assert (done.code, done.err) == (0, "") and plain_and_narrow(done.out)
    lines = done.out.splitlines()
    for name, objective in EVERY.items():
        at = [line for line in lines if re.search(rf"(─ ){re.escape(name)}(  arXiv|$)", line)]
        assert len(at) == 1, name
        assert all(one in at[0] for one in cards.arxiv(objective))
        flat = re.sub(r"[│\s]+", " ", done.out)
        assert " ".join((objective.changes or objective.paper).split()) in flat

    def column(name: str) -> int:
        return next(line.index(f"─ {name}") for line in lines if re.search(rf"─ {name}(  |$)", line))

    assert column("dapo") == column("grpo_token") + 4 == column("grpo") + 8 == column("rloo") + 12
    assert column("dpo") == column("reinforce") < column("ipo") == column("ppo")


def test_the_list_needs_no_unicode(surefoot: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), width=80)
    monkeypatch.setattr(type(console), "encoding", "ascii")
    assert surefoot("cards").out.isascii()


def test_the_list_for_programs(surefoot: Command) -> None:
    listed = json.loads(surefoot("cards", "--json").out)
    assert [one["name"] for one in listed] == list(EVERY)
    dapo = next(one for one in listed if one["name"] == "dapo")
    preset = PRESETS["dapo"]
    assert dapo == {
        "name": "dapo",
        "family": "policy optimisation",
        "ancestor": "grpo_token",
        "changes": preset.changes,
        "paper": preset.paper,
        "arxiv": ["2503.14476"],
    }
    assert {one["name"] for one in listed if one["family"] == "preference pairs"} == set(PREFERENCES)
    assert {one["name"] for one in listed if not one["ancestor"]} == {"reinforce", "dpo", "orpo"}
    assert next(one for one in listed if one["name"] == "ppo")["arxiv"] == ["1707.06347", "2203.02155"]


@pytest.mark.parametrize("name", ["dapo", "scalerl", "kto"])
def test_one_card_is_markdown_where_no_terminal_is(surefoot: Command, name: str) -> None:
    done = surefoot("cards", name)
    assert (done.code, done.err, done.out) == (0, "", EVERY[name].explain())
    assert surefoot("cards", name, "grpo").out == f"{EVERY[name].explain()}\n{PRESETS['grpo'].explain()}"


def test_the_equation_of_this_configuration(surefoot: Command, workplace: Path) -> None:
    options = ["--algorithm.trust.high", "0.3", "--algorithm.kl=in_loss", "--train.steps", "3"]
    wanted = AlgorithmConfig(preset="dapo", trust={"high": 0.3}, kl="in_loss").build().explain()
    done = surefoot("cards", "dapo", *options)
    assert (done.code, done.out) == (0, wanted) and "1+0.3" in wanted and "0.04 * k3" in wanted
    (workplace / "run.toml").write_text("[algorithm]\npreset = 'dapo'\ntrust.high = 0.3\n[train]\nsteps = 3\n")
    (workplace / "over.toml").write_text("[algorithm]\nkl = 'in_loss'\n")
    assert surefoot("cards", "run.toml", "over.toml").out == wanted
    assert surefoot("cards", "run.toml", "--algorithm.kl", "in_loss").out == wanted
    assert surefoot("cards", "--algorithm.preset", "dapo", *options).out == wanted
    other = AlgorithmConfig(preset="grpo_token", trust={"high": 0.3}).build().explain()
    assert surefoot("cards", "grpo_token", "run.toml").out == other, "a name comes over the files"
    assert surefoot("cards", "tiny.toml").out == PRESETS["grpo"].explain()


def test_the_card_of_a_run_is_that_of_its_configuration(surefoot: Command, workplace: Path) -> None:
    words = ["--train.steps", "1", "--algorithm.preset", "dr_grpo", "--algorithm.trust.low", "0.1", "--quiet"]
    done = surefoot("train", "tiny.toml", *words)
    assert done.code == 0, done.err
    run = workplace / "runs" / "tiny"
    kept = (run / "card.md").read_text(encoding="utf-8")
    section = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["algorithm"]
    assert kept == AlgorithmConfig(**section).build().explain() and "1-0.1, 1+0.2" in kept
    assert surefoot("cards", "runs/tiny/config.toml").out == kept
    assert surefoot("cards", "tiny.toml", *words[:-1]).out == kept


def test_one_card_for_programs(surefoot: Command) -> None:
    one = json.loads(surefoot("cards", "dapo", "--json", "--algorithm.trust.high", "0.3").out)
    assert one["name"] == "dapo (varied)" and one["ancestor"] == "dapo" and one["arxiv"] == ["2503.14476"]
    assert one["lineage"] == ["reinforce", "reinforce_baseline", "rloo", "grpo", "grpo_token", "dapo"]
    assert one["differences"] == [
        {
            "slot": "trust",
            "from": {"kind": "clip", "low": 0.2, "high": 0.28},
            "to": {"kind": "clip", "low": 0.2, "high": 0.3},
        }
    ]
    assert one["parts"]["trust"] == {"kind": "clip", "low": 0.2, "high": 0.3} and len(one["parts"]) == 15
    assert one["equation"][0] == "L = (1/N_tokens) sum_it l_it" and "1+0.3" in one["latex"]
    assert one["note"].startswith("Of dapo: ")
    both = json.loads(surefoot("cards", "dpo", "reinforce", "--json").out)
    assert [(card["name"], card["ancestor"], card["differences"]) for card in both] == [
        ("dpo", "", []),
        ("reinforce", "", []),
    ]
    assert both[0]["parts"]["preference"]["beta"] == 0.1


def test_json_has_no_infinity(surefoot: Command) -> None:
    def strict(name: str) -> None:
        raise AssertionError(name)

    text = surefoot("cards", "decoupled_ppo", "--json").out
    assert json.loads(text, parse_constant=strict)["parts"]["correction"]["cap"] == "inf"


def test_two_side_by_side(surefoot: Command) -> None:
    done = surefoot("cards", "grpo", "dapo", "--diff")
    assert (done.code, done.err) == (0, "") and plain_and_narrow(done.out)
    table, one, other = re.split(r"\n\n(?=grpo\n|dapo\n)", done.out)
    slots = [slot for slot, _, _ in card.compare(PRESETS["grpo"], PRESETS["dapo"])]
    assert re.findall(r"(?m)^(\w+)", table) == ["part", *slots]
    assert re.search(r"(?m)^part +grpo +dapo$", table)
    assert re.search(r"(?m)^trust +clip\(low=0\.2, high=0\.2\) +clip\(low=0\.2, high=0\.28\)$", table)
    for text, name in ((one, "grpo"), (other, "dapo")):
        assert " ".join(text.split()) == " ".join(
            [name, *" ".join(PRESETS[name].explain().split("```")[1].split()[1:]).split()]
        )
    assert "grpo and grpo have the same parts." in surefoot("cards", "grpo", "grpo", "--diff").out
    assert plain_and_narrow(surefoot("cards", "reinforce", "scalerl", "--diff").out)


def test_two_side_by_side_under_a_configuration(surefoot: Command, workplace: Path) -> None:
    (workplace / "run.toml").write_text("[algorithm]\npreset = 'grpo'\ntrust.high = 0.3\n")
    done = surefoot("cards", "grpo", "run.toml", "--diff")
    assert re.search(r"(?m)^trust +clip\(low=0.2, high=0.2\) +clip\(low=0.2, high=0.3\)$", done.out)
    assert re.search(r"(?m)^part +grpo +run\.toml$", done.out)
    varied = surefoot("cards", "grpo", "dapo", "--diff", "--algorithm.kl", "none").out
    assert not re.search(r"(?m)^kl ", varied)


def test_two_side_by_side_for_programs(surefoot: Command) -> None:
    found = json.loads(surefoot("cards", "dpo", "ipo", "--diff", "--json").out)
    assert (found["from"]["name"], found["to"]["name"]) == ("dpo", "ipo")
    (difference,) = found["differences"]
    assert difference["slot"] == "preference"
    assert (difference["from"]["kind"], difference["to"]["kind"]) == ("dpo", "ipo")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gropo"], ["there is no objective 'gropo'. Did you mean 'grpo'?"]),
        (["grpo", "dapp", "--diff"], ["there is no objective 'dapp'. Did you mean 'dapo'?"]),
        (["orop"], ["Did you mean 'orpo'?"]),
        (["nonexist"], ["there is no objective 'nonexist'. List them: surefoot cards"]),
        (["GRPO"], ["Did you mean 'grpo'?"]),
        (["x" * 300], ["there is no objective 'xxx", "List them: surefoot cards"]),
        ([""], ["the name of an objective is expected, got ''", "surefoot cards lists them"]),
        ([" "], ["the name of an objective is expected, got ' '"]),
        (["grpo", "", "--diff"], ["the name of an objective is expected, got ''"]),
        (["."], ["the configuration . is a folder"]),
        (["--diff"], ["two objectives, got 0 (none)", "surefoot cards grpo dapo --diff"]),
        (["grpo", "--diff"], ["two objectives, got 1 (grpo)"]),
        (["grpo", "dapo", "rloo", "--diff"], ["two objectives, got 3 (grpo, dapo, rloo)"]),
        (["grpo", "dpo", "--diff"], ["'grpo' and 'dpo' have no part in common"]),
        (["dpo", "--algorithm.trust.high", "0.3"], ["'dpo' is a loss of preference pairs", "PREFERENCES['dpo']"]),
        (["nowhere.toml"], ["nowhere.toml does not exist"]),
        (["grpo", "--algorithm.trust.hihg", "0.3"], ["Did you mean 'high'?"]),
        (["grpo", "--algoritm.trust", "clip"], ["unknown option --algoritm.trust", "--algorithm.trust"]),
        (["rloo", "--algorithm.trust", "clip"], ["set algorithm.ratio = 'token'"]),
        (["grpo", "--dif"], ["unknown option --dif. Did you mean '--diff'?"]),
        (["grpo", "--algorithm.trust.high"], ["has no value"]),
    ],
)
def test_mistakes_are_one_line(surefoot: Command, words: list[str], says: list[str]) -> None:
    refused(surefoot("cards", *words), *says)


@pytest.mark.parametrize("name", EVERY)
def test_every_card_fits_into_a_terminal(name: str) -> None:
    objective, file = EVERY[name], StringIO()
    cards.show_card(Console(file=file, force_terminal=True, width=80, color_system=None), objective)
    shown, latex = file.getvalue().split("\nLaTeX\n")
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert latex.splitlines() == card.equation(objective, latex=True)
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown).split())
    assert " ".join(objective.paper.split()) in flat and "what runs" in flat
    said = " ".join(" ".join(card.equation(objective)).split())
    assert said in flat
    assert "``" not in shown and "**" not in shown
    table = shown[shown.index("what it does") :].split("Assumptions and limits")[0]
    slots = [slot for slot, part in objective.parts.items() if not card.idle(part)]
    assert [word for word in re.findall(r"(?m)^(\w+) ", table) if word in objective.parts] == slots
    if objective.ancestor:
        assert f"From {objective.ancestor}: " in flat and f"{objective.ancestor} -> {name} " in flat


def test_a_terminal_gets_colours_and_a_panel(surefoot: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = surefoot("cards", "dapo").out
    assert "\x1b[" in shown and "what runs" in shown and not shown.startswith("# dapo")
    compared = surefoot("cards", "grpo", "dapo", "--diff").out
    bold = "".join(re.findall(r"\x1b\[1m([^\x1b]*)", compared))
    assert "L = (1/N_tokens) sum_it l_it" in bold and "x_it = pi" not in bold, "lines of one alone stand out"


@pytest.mark.parametrize("columns", ["0", "1", "6", "39"])
def test_a_terminal_that_is_too_narrow_wraps_by_itself(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    words = [[], ["ppo"], ["grpo", "dapo", "--diff"]]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80" if columns == "0" else "40")  # none at all is not known
    wanted = [surefoot("cards", *given) for given in words]
    monkeypatch.setenv("COLUMNS", columns)
    done = [surefoot("cards", *given) for given in words]
    assert done == wanted and all((one.code, one.err) == (0, "") and one.out.strip() for one in done)


@pytest.mark.parametrize("width", [1, 4, 6, 20])
def test_a_console_of_any_width_takes_a_card(width: int) -> None:
    file = StringIO()
    cards.show_card(Console(file=file, force_terminal=True, width=width, color_system=None), PRESETS["ppo"])
    cards.show_difference(Console(file=file, force_terminal=True, width=width), PRESETS["grpo"], PRESETS["dapo"], "ab")
    assert file.getvalue()


@pytest.mark.parametrize("width", [72, 80, 100])
def test_no_bracket_of_a_part_stands_alone(width: int) -> None:
    file = StringIO()
    for name in ("scalerl", "kimi_k15", "gspo", "dpo"):
        console = Console(file=file, force_terminal=True, width=width, color_system=None)
        cards.show_card(console, EVERY[name])
    shown = file.getvalue()
    assert "no_positive_resampling(" in shown
    assert not re.search(r"(?m)^[\w ]* [()](?= |$)", shown)


def test_a_part_is_broken_at_its_bracket(surefoot: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [line.split() for line in surefoot("cards", "grpo", "dapo", "--diff").out.splitlines()]
    at = rows.index(["shaping", "none()", "soft_overlong"])
    assert rows[at + 1 : at + 5] == [
        ["(share=0.2,"],
        ["tokens=0,"],
        ["factor=1.0)"],
        ["selection", "keep()", "refill("],
    ]


def test_an_equation_is_broken_once(surefoot: Command) -> None:
    """Not first to the width of a card and then to that of the terminal, which leaves short lines between."""
    lines = surefoot("cards", "grpo", "scalerl", "--diff").out.splitlines()
    assert "      time is up. Let me stop thinking and formulate a final answer now." in lines
    file = StringIO()
    cards.show_card(Console(file=file, force_terminal=True, width=80, color_system=None), PRESETS["scalerl"])
    assert "Let me stop thinking and formulate a final answer   │\n" in file.getvalue()


def test_the_page_of_cards_is_the_one_that_the_code_gives() -> None:
    assert (DOCS / "cards.md").read_text(encoding="utf-8") == cards.page(), "run: make docs"


def test_the_page_links_and_holds_every_card() -> None:
    text = cards.page()
    links = re.findall(r"\]\(#(\w+)\)", text)
    assert sorted(links) == sorted(EVERY) == sorted(re.findall(r"(?m)^### (\w+)$", text))
    assert all(f"##{objective.explain()}" in text for objective in EVERY.values())
    assert not re.search(r"(?m)^#{4,} |^# (?!Cards$)", text)


def test_the_guide_names_every_preset_and_every_kind() -> None:
    text = (DOCS / "objectives.md").read_text(encoding="utf-8")
    presets, parts = text.split("## Presets")[1].split("## Variants")[0], text.split("## Parts")[1].split("\n## ")[0]
    named = [name for row in re.findall(r"(?m)^\| (`.*?) \|", presets) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(PRESETS)
    kinds: dict[str, list[str]] = {}
    current = ""
    for slot, last in re.findall(r"(?m)^\| ?(`\w+`)? \| .* \| (.*) \|$", parts):
        current = slot.strip("`") or current
        kinds.setdefault(current, []).extend(re.findall(r"`(\w+)`", last))
    own = {
        slot: [kind.name for kind in REGISTRY[slot].values() if kind.fn.__module__.startswith("surefoot.")]
        for slot in SLOTS
    }
    assert {slot: sorted(names) for slot, names in kinds.items()} == {
        slot: sorted(names) for slot, names in own.items()
    }
    assert list(kinds) == list(SLOTS)


def test_the_guide_shows_the_equation_of_dapo() -> None:
    text = (DOCS / "objectives.md").read_text(encoding="utf-8")
    assert f"```text\n{chr(10).join(card.equation(PRESETS['dapo']))}\n```" in text


def test_a_part_is_described_with_the_options_of_its_numbers(surefoot: Callable[..., Outcome]) -> None:
    done = surefoot("cards", "force_answer")
    assert done.code == 0 and done.out.startswith("# force_answer (interruption)\n")
    assert "| `algorithm.interruption.share` | `0.85` |" in done.out and "Used by: scalerl" in done.out
    both = surefoot("cards", "none")
    assert both.code == 0 and both.out.count("# none (") > 3
