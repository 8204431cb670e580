"""report.html: self-contained, safe whatever a model wrote, and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import RunFolderError
from surefoot.report.markup import render_markdown
from surefoot.report.page import SCRIPTS, grouped_warnings, write_report
from surefoot.report.render import TEMPLATES, embed_json

MakeRun = Callable[..., Path]
VOID = {"meta", "link", "input", "br", "hr"}


class Page(HTMLParser):
    """The page as a browser's parser sees it: elements with their attributes, scripts apart, the visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.source = path.read_bytes().decode()
        self.feed(self.source)
        self.close()
        assert self.open == [], "an element was not closed"
        self.text = "".join(self.texts).replace("\u00a0", " ")  # sentences tie numbers to their units

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.elements if tag == name]

    def data(self, name: str) -> dict:
        return next(json.loads(text) for attrs, text in self.scripts if attrs.get("id") == name)

    def samples(self) -> list[dict]:
        table = self.data("sample-data")
        rows = [dict(zip(table["fields"], row, strict=True)) for row in table["rows"]]
        packs = [self.pack(number) for number in range(sum(attrs.get("class") == "pack" for attrs, _ in self.scripts))]
        names = ("prompt", "completion", "answer", "note")
        return [
            {
                **row,
                **dict(zip(names, packs[row["text"][0]][row["text"][1]], strict=True)),
                "tokens": row["tokens"] and packs[row["tokens"][0]][row["tokens"][1]],
            }
            for row in rows
        ]

    def pack(self, number: int) -> list:
        text = next(text for attrs, text in self.scripts if attrs.get("id") == f"pack-{number}")
        return json.loads(zlib.decompress(base64.b64decode(text)))


def executed(page: Page) -> list[str]:
    return [text for attrs, text in page.scripts if attrs.get("type") is None]


def test_page_asks_the_network_for_nothing(make_run: MakeRun) -> None:
    page = Page(write_report(make_run()))
    for tag, attrs in page.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:,")), f"<{tag} {name}={value}>"
    styles = re.findall(r"<style>(.*?)</style>", page.source, re.DOTALL)
    assert len(styles) == 1 and "url(" not in styles[0] and "@import" not in styles[0]
    assert sum("plotly.js v" in text for text in executed(page)) == 1


def test_policy_allows_exactly_the_scripts_of_the_page(make_run: MakeRun) -> None:
    page = Page(write_report(make_run()))
    policy = next(a["content"] for a in page.tags("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in executed(page)]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)


def test_hostile_text_stays_text(make_run: MakeRun, hostile: str) -> None:
    plain = Page(write_report(make_run("plain", steps=2)))
    page = Page(write_report(make_run("hostile", steps=2, text=hostile)))
    assert len(executed(page)) == len(executed(plain)) == 1 + len(SCRIPTS)
    assert len(page.scripts) == len(plain.scripts)
    assert "img" not in {tag for tag, _ in page.elements}
    shown = hostile.replace("\ud800", "\ufffd").replace("\0", "\ufffd")
    for sample in page.samples():
        assert sample["completion"].endswith(shown)
        assert sample["prompt"].endswith(shown)
    assert shown in page.text  # the warning and the command, as they are
    assert "{{ 7 * 7 }}" in page.text and "49" not in page.text.split("right to left")[1][:40]


def test_page_scripts_never_make_markup_of_text() -> None:
    for file in TEMPLATES.glob("*.js"):
        script = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
        assert "</" not in script and "<!--" not in script and "\r" not in script


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_embedded_json_reads_back_and_cannot_end_its_element(value: object) -> None:
    text = embed_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_embedded_json_refuses_what_json_lacks() -> None:
    with pytest.raises(ValueError):
        embed_json([float("nan")])


@pytest.mark.parametrize(
    "name",
    [
        "metrics.jsonl",
        "timings.jsonl",
        "evaluations.jsonl",
        "card.md",
        "config.toml",
        "result.json",
        "environment.json",
    ],
)
def test_a_missing_file_is_said_and_the_rest_is_shown(make_run: MakeRun, name: str) -> None:
    run = make_run(steps=3)
    (run / name).unlink()
    page = Page(write_report(run))
    assert f"{name} is not there" in page.text
    assert "demo" in page.text and len(page.samples()) == 3 * 16 + 2 * 16


def test_a_finished_whole_run_has_no_gaps(make_run: MakeRun) -> None:
    page = Page(write_report(make_run()))
    assert "Not on this page" not in page.text
    assert "Not recorded" not in page.text


def test_damaged_files_lose_only_the_damaged_lines(make_run: MakeRun) -> None:
    run = make_run(steps=12)
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-40])
    lines = (run / "evaluations.jsonl").read_bytes().split(b"\n")
    (run / "evaluations.jsonl").write_bytes(b"\n".join([lines[0], b"\xff\xfe{", b"[1, 2]", b"[" * 5000, *lines[1:]]))
    (run / "result.json").write_text('{"before": {"accuracy"', encoding="utf-8")
    (run / "config.toml").write_text("name = [", encoding="utf-8")
    (run / "samples" / "step-000001.jsonl").write_bytes(b'{"step": 1, "completion": "half a li')
    page = Page(write_report(run))
    assert "The last line of metrics.jsonl is torn" in page.text
    assert "3 of 6 lines of evaluations.jsonl cannot be read" in page.text
    assert "result.json is not a JSON object" in page.text
    assert "config.toml is not valid TOML" in page.text and "name = [" in page.text
    assert "The last line of step-000001.jsonl is torn" in page.text
    reward = page.data("figure-data")["figures"]["entropy"]["data"][0]
    assert reward["x"] == list(range(1, 12))


def test_values_of_the_wrong_kind_are_survived(make_run: MakeRun) -> None:
    run = make_run(steps=2)
    odd = [
        {"step": 1, "reward/mean": "high", "policy/entropy": None, "x/y": {"a": 1}},
        {"step": "two"},
        {"step": 2, "reward/mean": float("inf"), "policy/entropy": float("nan"), "policy/grad_norm": 10**400},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in odd), encoding="utf-8")
    (run / "result.json").write_text(json.dumps({"before": 3, "after": {"accuracy": True}, "seconds": [1]}))
    (run / "environment.json").write_text("[]", encoding="utf-8")
    sample = {"step": 1, "prompt": [{"role": "user", "content": "2 + 2?"}], "completion": 7, "answer": {"n": 4}}
    sample |= {"reward": float("nan"), "components": [], "correct": "yes", "seed": 2**63 - 1}
    (run / "samples" / "step-000001.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    page = Page(write_report(run))
    shown = next(one for one in page.samples() if one["set"] == "train" and one["step"] == 1)
    assert shown["prompt"] == "[user]\n2 + 2?" and shown["completion"] == "7" and shown["answer"] == '{"n": 4}'
    assert shown["reward"] is None and shown["correct"] is None and shown["components"] == {}
    assert shown["seed"] == "9223372036854775807"  # JavaScript's numbers would round it
    assert "entropy" not in page.data("figure-data")["figures"]


def test_no_evaluations_and_no_samples(make_run: MakeRun) -> None:
    run = make_run(steps=1, finished=False)
    (run / "evaluations.jsonl").write_text("", encoding="utf-8")
    for file in (run / "samples").iterdir():
        file.unlink()
    page = Page(write_report(run))
    assert "No held-out evaluation was recorded." in page.text
    assert "Not recorded in this run: Held-out accuracy." in page.text
    assert "This run kept no samples." in page.text
    assert "heldout" not in page.data("figure-data")["figures"]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="does not exist"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="holds no files of a run"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_page_is_the_same_for_the_same_run(make_run: MakeRun) -> None:
    run = make_run(steps=3)
    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_structure_is_usable_without_seeing_it(make_run: MakeRun) -> None:
    page = Page(write_report(make_run()))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    made_by_script = {"reader-sample-title"}
    for _, attrs in page.elements:
        for name in ("aria-labelledby", "aria-controls"):
            assert attrs.get(name) is None or attrs[name] in {*ids, *made_by_script}
        if (attrs.get("href") or "").startswith("#"):
            assert (attrs["href"] or "")[1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert {"header", "nav", "main", "section", "figure", "article"} <= {tag for tag, _ in page.elements}
    assert page.tags("html")[0]["lang"] == "en"
    for plot in page.tags("div"):
        if "data-figure" in plot:
            assert plot["role"] == "img" and re.search(r"at step|of the time", plot["aria-label"] or "")


def test_summary_shows_before_after_speed_and_time(make_run: MakeRun) -> None:
    run = make_run(steps=20)
    result = json.loads((run / "result.json").read_text())
    result["before"] |= {"accuracy": 0.25, "low": 0.2, "high": 0.3}
    result["after"] |= {"accuracy": 0.75, "low": 0.7, "high": 0.8}
    result |= {"seconds": {"generate": 30.0, "train": 10.0}, "tokens_generated": 60000, "tokens_trained": 50000}
    (run / "result.json").write_text(json.dumps(result), encoding="utf-8")
    text = Page(write_report(run)).text
    for shown in ("25.0 %", "75.0 %", "+50.0 points", "20.0 to 30.0 %", "2,000 tokens/s", "5,000 tokens/s", "75.0 %"):
        assert shown in text
    assert "lies wholly above" in text


def test_warnings_are_grouped_with_their_steps() -> None:
    records = [{"step": s, "name": "truncated", "text": f"cut at {s}"} for s in (3, 7)]
    first, second = grouped_warnings([{"name": "entropy", "text": "low"}, *records])
    assert first == {"name": "truncated", "text": "cut at 7", "times": 2, "first": 3, "last": 7}
    assert second["name"] == "entropy" and second["first"] is None


def test_markdown_runs_nothing_and_fetches_nothing() -> None:
    page = render_markdown(
        "# a <script>alert(1)</script>\n\n![x](http://example.org/x.png) [y](javascript:alert(1))\n\n"
        "<iframe src=x>\n\n$$\nx < y\n$$\n"
    )
    assert not re.search(r"<(script|img|iframe)|href=\"javascript", page)
    assert page.startswith("<h3>") and "x &lt; y" in page


def test_large_runs_are_quick(make_run: MakeRun) -> None:
    path = write_report(make_run(steps=200))
    page = Page(path)
    assert len(page.samples()) == 16 * (200 + 21)
    assert path.stat().st_size < 12e6
