"""The longest prompt: a longer one is refused, left out and counted, or loses the beginning of its problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import DataError
from surefoot.tasks.base import Task
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.render import Renderer
from surefoot.types import Prompt
from tests.tasks.test_tasks_render import CHAT, tokenizer, tokens

LENGTHS = (5, 9, 10, 11, 40)
TRAIN = tuple(Prompt(f"t{n}", "abcdefghij"[:n] if n < 11 else "x" * (n - 3) + "end") for n in LENGTHS)
HELDOUT = (Prompt("h5", "hello"), Prompt("h20", "y" * 17 + "end"))
TASK = Task("mine", TRAIN, HELDOUT)


def renderer(**over: Any) -> Renderer:
    return Renderer(tokenizer(), TaskConfig(**{"template": "plain", **over}))


def test_without_a_budget_nothing_changes() -> None:
    assert renderer().fit(TASK) is TASK
    assert renderer(max_prompt_tokens=40).fit(TASK) == TASK


def test_a_longer_prompt_is_refused_with_its_length() -> None:
    with pytest.raises(
        DataError, match=r"2 training prompts are longer than task.max_prompt_tokens = 10 \(first: t11, .*, 11"
    ):
        renderer(max_prompt_tokens=10).fit(TASK)
    with pytest.raises(DataError, match="1 held-out prompts are longer"):
        renderer(max_prompt_tokens=10).fit(replace(TASK, train=TRAIN[:3]))


def test_longer_prompts_are_left_out_and_counted() -> None:
    task = renderer(max_prompt_tokens=10, overlong="drop").fit(TASK)
    assert task.train == TRAIN[:3] and task.heldout == HELDOUT[:1]
    assert task.notes == (
        "2 of 5 training prompts are longer than 10 tokens and were left out",
        "1 of 2 held-out prompts are longer than 10 tokens and were left out",
    )
    with pytest.raises(DataError, match=r"no training prompt fits into task.max_prompt_tokens = 4"):
        renderer(max_prompt_tokens=4, overlong="drop").fit(TASK)


def test_a_longer_problem_loses_its_beginning() -> None:
    short = renderer(max_prompt_tokens=10, overlong="truncate")
    task = short.fit(TASK)
    assert task.train == TRAIN and task.heldout == HELDOUT and len(task.notes) == 2
    for prompt in (*TRAIN, *HELDOUT):
        text = tokens(short.tokenizer, short.ids(prompt))
        assert len(text) == min(10, len(prompt.text)) and prompt.text.endswith(text)


@settings(max_examples=50, deadline=None)
@given(st.text("abc é€", min_size=1, max_size=60), st.integers(60, 120))
def test_what_stands_around_the_problem_stays_whole(problem: str, limit: int) -> None:
    shots = ((Prompt("s", "1?"), "2"),)
    made = Renderer(
        tokenizer(),
        TaskConfig(system="Go.", prompt="Q {prompt} A", max_prompt_tokens=limit, overlong="truncate"),
        shots,
    )
    unlimited = Renderer(tokenizer(), TaskConfig(system="Go.", prompt="Q {prompt} A"), shots)
    whole, empty = (tokens(made.tokenizer, unlimited.ids(Prompt("p", text))) for text in (problem, ""))
    if len(unlimited.ids(Prompt("p", ""))) >= limit and len(unlimited.ids(Prompt("p", problem))) > limit:
        with pytest.raises(DataError, match=r"does not fit into task.max_prompt_tokens"):
            made.ids(Prompt("p", problem))
        return
    ids = made.ids(Prompt("p", problem))
    text = tokens(made.tokenizer, ids)
    before, after = empty.split("Q  A", 1)
    assert len(ids) <= limit
    assert text.startswith(before + "Q ") and text.endswith(" A" + after)
    kept = text[len(before) + 2 : len(text) - len(after) - 2]
    assert whole.endswith(kept + " A" + after)


def test_earlier_turns_of_a_chat_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = replace(CHAT, content=(*CHAT.content[:-1], {"role": "user", "content": "z" * 50 + "end"}))
    whole = Renderer(tokenizer(), TaskConfig()).ids(chat)
    made = Renderer(tokenizer(), TaskConfig(max_prompt_tokens=len(whole) - 40, overlong="truncate"))
    text = tokens(made.tokenizer, made.ids(chat))
    assert "user\nHello<" in text and "assistant\nHi<" in text and f"user\n{'z' * 10}end<" in text
