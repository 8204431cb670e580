"""The page of a run in a browser: it asks for nothing, shows what the files hold, and can be used without a mouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.report.comparison_page import write_comparison_report
from surefoot.report.page import write_report
from tests.report.browser import chromium, needs_browser, opened, renderers, until
from tests.report.comparisons import build_experiment
from tests.report.conftest import HOSTILE, build_run, token_lists, write_lines
from tests.report.large import build_large

pytestmark = [needs_browser, pytest.mark.timeout(600)]

READ = "#reader-sample .sample-title"
Show = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Held-out problems that recur, the second of them newly solved at step 10 and newly lost at step 20."""
    folder = build_run(tmp_path_factory.mktemp("runs") / "demo", steps=20, tokens=4)
    right = {0: [1, 0, 1, 0], 10: [1, 1, 1, 0], 20: [1, 0, 1, 1]}
    for step, pattern in right.items():
        lines = []
        for problem, is_right in enumerate(pattern):
            text = f"step {step}, problem {problem}\nanswer: {problem if is_right else 'none'}"
            lines.append(
                {
                    "step": step,
                    "prompt_id": f"held{problem}",
                    "sample_id": 0,
                    "prompt": f"Problem {problem}",
                    "completion": text,
                    "answer": str(problem),
                    "reward": float(is_right) + 0.1 * problem,
                    "components": {"right": float(is_right), "format": 1.0 if problem == 3 else float(is_right)},
                    "correct": bool(is_right),
                    "status": "ok" if problem != 3 else "no_answer",
                    "finish": "length" if problem == 2 else "stop",
                    "length": 10 + problem,
                    "seed": 1,
                    "version": step,
                    "note": "",
                    "tokens": token_lists(text),
                }
            )
        write_lines(folder / "samples" / f"heldout-{step:06d}.jsonl", lines)
    write_report(folder)
    return folder


@pytest.fixture
def page(browser: Any, run: Path) -> Iterator[Any]:
    with opened(browser, (run / "report.html").as_uri(), offline=True) as found:
        found.wait_for_selector(READ)
        yield found
        assert found.troubles == []


def listed(page: Any) -> list[str]:
    """The tails of the completions in the list, in their order."""
    rows = page.locator("[role=option]").all()
    return [
        row.locator(".option-text").inner_text()
        for row in sorted(rows, key=lambda row: int(row.get_attribute("aria-posinset")))
    ]


def held_out(page: Any, step: str, show: str = "all", sort: str = "order") -> list[str]:
    page.select_option("[name=set]", "heldout")
    page.select_option("[name=step]", step)
    page.select_option("[name=show]", show)
    page.select_option("[name=sort]", sort)
    return listed(page)


def test_it_opens_from_disk_and_asks_for_nothing(page: Any, run: Path) -> None:
    page.locator("#curves").scroll_into_view_if_needed()
    page.wait_for_selector("#figure-heldout .main-svg")
    assert page.asked == [(run / "report.html").as_uri()]


def test_filters_and_sorts_show_what_they_say(page: Any) -> None:
    right, wrong = "answer: {}", "answer: none"
    assert held_out(page, "0") == ["answer: 0", wrong, "answer: 2", wrong]
    assert held_out(page, "0", "right") == ["answer: 0", "answer: 2"]
    assert held_out(page, "0", "wrong") == [wrong, wrong]
    assert held_out(page, "10", "solved") == [right.format(1)]
    assert held_out(page, "20", "solved") == [right.format(3)]
    assert held_out(page, "20", "lost") == [wrong]
    assert held_out(page, "0", "lost") == []
    assert "No sample passes" in page.inner_text("#reader-sample")
    assert held_out(page, "0", "truncated") == ["answer: 2"]
    assert held_out(page, "0", "no_answer") == [wrong]
    assert held_out(page, "0", "disagree") == [wrong]  # wrong, with full marks for its form
    assert held_out(page, "10", "all", "high") == ["answer: 2", "answer: 1", "answer: 0", wrong]
    assert held_out(page, "10", "all", "low") == [wrong, "answer: 0", "answer: 1", "answer: 2"]
    assert held_out(page, "10", "all", "long")[0] == wrong
    assert page.inner_text("#reader-status") == "4 samples, 3 right"


def test_search_looks_into_every_text(page: Any) -> None:
    held_out(page, "")
    page.fill("[name=text]", "STEP 10, problem 2")
    until(page, "document.getElementById('reader-status').textContent.startsWith('1 of 12')")
    assert listed(page) == ["answer: 2"]
    assert page.locator("#reader-sample mark").first.inner_text() == "step 10, problem 2"


def test_tokens_take_the_colour_of_a_quantity_and_say_it_on_hover(page: Any) -> None:
    held_out(page, "10")
    page.select_option("[name=colour]", "entropy")
    tokens = page.locator(".tokens .tk")
    lists = token_lists("step 10, problem 0\nanswer: 0")
    assert tokens.all_text_contents() == lists["text"]
    edges = (0.05, 0.25, 0.5, 1, 2)
    classes = [one.split()[1] for one in tokens.evaluate_all("all => all.map((one) => one.className)")]
    assert classes == [f"s{sum(value >= edge for edge in edges)}" for value in lists["entropy"]]
    colours = page.evaluate(
        "[...document.querySelectorAll('.tokens .tk')].map((t) => getComputedStyle(t).backgroundColor)"
    )
    assert len(set(colours)) == len(set(classes))
    tokens.nth(3).hover()
    tip = page.inner_text("#token-tip")
    assert "Token 4 of" in tip and f"{lists['entropy'][3]:.2f} nats" in tip and f"{lists['ratio'][3]:.3f}" in tip
    page.select_option("[name=colour]", "bounds")
    ruled = page.evaluate("[...document.querySelectorAll('.tk.ruled')].map((t) => Number(t.dataset.i))")
    assert ruled == lists["bounds"]["clip_high"]
    assert page.locator(".legend li").count() == 3


def test_everything_is_reached_with_the_keyboard(page: Any) -> None:
    held_out(page, "10")
    page.focus("#reader-list")
    page.keyboard.press("ArrowDown")
    until(page, "document.querySelector('.sample-where').textContent.includes('held1')")
    active = page.get_attribute("#reader-list", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.keyboard.press("End")
    until(page, "document.querySelector('.sample-where').textContent.includes('held3')")
    page.focus("pre.tokens")
    assert "Token 1 of" in page.inner_text("#token-tip")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "Token 3 of" in page.inner_text("#token-tip")
    page.keyboard.press("Escape")
    assert page.is_hidden("#token-tip")


def test_the_same_prompt_stands_side_by_side(page: Any) -> None:
    held_out(page, "10")
    columns = page.locator(".column")
    until(page, "[...document.querySelectorAll('.column pre')].every((pre) => pre.textContent !== '…')")
    assert [text.split(",")[0] for text in columns.locator("pre").all_inner_texts()] == ["step 0", "step 10", "step 20"]
    columns.nth(2).locator("button").click()
    until(page, "document.querySelector('.sample-where').textContent.includes('step 20')")


def test_the_command_makes_this_sample(page: Any, run: Path) -> None:
    held_out(page, "10")
    said = f"surefoot sample {run} --step 10 --prompt held0 --sample 0 --heldout"
    assert page.inner_text(".command") == said
    assert "were not kept" in page.inner_text(".again")


def test_whatever_a_model_wrote_is_text(browser: Any, tmp_path: Path) -> None:
    run = build_run(tmp_path / "hostile", steps=2, text=HOSTILE, tokens=2)
    for file in (run / "samples").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line["tokens"] = token_lists(line["completion"])
        write_lines(file, lines)
    with opened(browser, write_report(run).as_uri(), offline=True) as page:
        page.wait_for_selector(READ)
        shown = HOSTILE.replace("\ud800", "\ufffd").replace("\0", "\ufffd")
        assert page.text_content(".completion").endswith(shown)
        page.select_option("[name=colour]", "entropy")
        page.locator(".tokens .tk").nth(5).hover()
        assert page.evaluate("window.hacked") is None
        assert page.locator("#reader-sample script, #reader-sample img").count() == 0
        assert page.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_and_both_schemes(browser: Any, run: Path, scheme: str) -> None:
    size = {"width": 360, "height": 720}
    with opened(browser, (run / "report.html").as_uri(), viewport=size, color_scheme=scheme) as page:
        page.wait_for_selector(READ)
        held_out(page, "10")
        page.select_option("[name=colour]", "start")
        page.focus("pre.tokens")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        paper, ink = (page.evaluate(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color"))
        light = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (paper, ink)]
        assert (light[0] > light[1]) == (scheme == "light")


def test_every_control_has_a_name_for_a_screen_reader(page: Any) -> None:
    held_out(page, "10")
    client = page.context.new_cdp_session(page)
    nodes = client.send("Accessibility.getFullAXTree")["nodes"]
    wanted = {"button", "combobox", "searchbox", "listbox", "link", "radio", "option", "figure"}
    roles = [
        (node.get("role", {}).get("value"), node.get("name", {}).get("value"))
        for node in nodes
        if not node.get("ignored")
    ]
    assert {role for role, _ in roles} >= {"button", "combobox", "searchbox", "listbox", "option", "main", "navigation"}
    assert [role for role, name in roles if role in wanted and not name] == []


def test_a_long_list_is_a_few_elements(browser: Any, tmp_path: Path) -> None:
    run = build_run(tmp_path / "long", steps=50, samples=32)
    with opened(browser, write_report(run).as_uri()) as page:
        page.wait_for_selector(READ)
        page.select_option("[name=step]", "")
        until(page, "document.getElementById('reader-status').textContent.startsWith('1,600 samples')")
        assert page.locator("[role=option]").count() < 60
        page.focus("#reader-list")
        page.keyboard.press("End")
        until(page, "document.querySelector('[aria-selected=true]').getAttribute('aria-posinset') === '1600'")
        assert page.locator("[role=option]").count() < 60


@pytest.mark.slow
def test_five_thousand_long_samples_are_opened_and_searched_in_little_memory(browser: Any, tmp_path: Path) -> None:
    report = write_report(build_large(tmp_path / "large", 5000, 2000))
    with opened(browser, report.as_uri(), offline=True) as page:
        page.wait_for_selector(READ)
        page.select_option("[name=step]", "")
        until(page, "document.getElementById('reader-status').textContent.startsWith('5,000 samples')")
        page.focus("#reader-list")
        page.keyboard.press("End")
        until(page, "document.querySelector('[aria-selected=true]').getAttribute('aria-posinset') === '5000'")
        until(page, "document.querySelectorAll('.tokens .tk').length === 2000")
        page.fill("[name=text]", "therefore answer carry")
        until(page, "document.getElementById('reader-status').textContent.includes(' of 5,000')")
        assert max(memory for _, memory in renderers(browser)) < 500
        assert page.asked == [report.as_uri()] and page.troubles == []


@pytest.mark.parametrize("width", [1280, 360])
def test_a_comparison_is_drawn_over_what_is_chosen(browser: Any, tmp_path: Path, width: int) -> None:
    report = write_comparison_report(build_experiment(tmp_path / "x"))
    with opened(browser, report.as_uri(), viewport={"width": width, "height": 900}, offline=True) as page:
        drawn = "document.getElementById('learning-plot-1').layout?.xaxis.title.text"
        page.locator("#learning-plot-1").scroll_into_view_if_needed()
        until(page, f"{drawn} === 'steps'")
        page.get_by_role("radio", name="tokens").focus()
        page.keyboard.press("Space")
        until(page, f"{drawn} === 'generated tokens'")
        checked = (
            "[...document.querySelectorAll('[data-switch] input:checked')].map((one) => one.parentElement.innerText)"
        )
        assert page.evaluate(checked) == ["tokens"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("[id='figure-forest addition']").scroll_into_view_if_needed()
        until(page, "document.querySelectorAll(\"[id='figure-forest addition'] .main-svg\").length > 0")
        assert page.asked == [report.as_uri()] and page.troubles == []
