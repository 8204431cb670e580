"""The text of a completion: only what ends or pads it leaves; and the token with which so many characters are complete."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.tasks.config import TaskConfig
from surefoot.tasks.render import Renderer
from surefoot.types import Finish, Origin, Prompt, Sample
from tests.tasks.families import CHATML, FAMILIES, MARKS, TAGS, family


@cache
def renderer(name: str, special: bool = True, stop: tuple[str, ...] = (), **over: Any) -> Renderer:
    return Renderer(family(name, special=special, **over), TaskConfig(), stop=stop)


def sample_of(made: Renderer, text: str, *, end: bool = False, **over: Any) -> Sample:
    ids = made.completion_ids(text) if end else np.array(made.tokens(text), dtype=np.int64)
    return Sample.of(np.array([1]), ids, prompt_id="p", **over)


WORDS = (
    "It is near 3",
    "maybe \\boxed{5}",
    "I do not know.",
    "5",
    " 12 ,",
    "\n\n",
    '{"answer": 5}',
    "naïve café",
    "你好",
    "😀🇩🇪",
)
PIECES = st.lists(st.sampled_from((*WORDS, *TAGS, *MARKS, "<unk>", "<s>")), max_size=12)


@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(pieces=PIECES)
def test_what_a_model_writes_is_the_text_that_is_graded(name: str, special: bool, pieces: list[str]) -> None:
    text = "".join(pieces).lstrip(" ")  # SentencePiece puts a space before the text and takes one away
    made = renderer(name, special)
    if text.endswith("<|im_end|>"):
        text += "."
    assert made.decode(sample_of(made, text, end=True)) == text
    ids = made.tokens(text)
    assert "".join(made.pieces(ids)) == made.pieces.text(ids)


@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("5<|im_end|>", "5"),
        ("5</s>", "5"),
        ("5<|im_end|><pad><pad>", "5"),
        ("5<|im_end|></s>", "5"),
        ("5<pad><pad>", "5"),
        ("<|im_end|>", ""),
        ("", ""),
        # An end that ended nothing, and padding that pads nothing, are what the policy wrote.
        ("3</s>4", "3</s>4"),
        ("3<pad>4", "3<pad>4"),
        ("<pad>4", "<pad>4"),
        ("3<unk>5", "3<unk>5"),
        ("3<s>5", "3<s>5"),
        ("5<unk>", "5<unk>"),
        ("5\n<|im_start|>user\nAnd 6?<|im_end|>", "5\n<|im_start|>user\nAnd 6?"),
        ("<think>It is near 3</think><answer>5</answer><|im_end|>", "<think>It is near 3</think><answer>5</answer>"),
        ("<think>3</think>", "<think>3</think>"),
        ('<tool_call>{"a": 1}</tool_call><|im_end|>', '<tool_call>{"a": 1}</tool_call>'),
        (
            "<|channel|>analysis<|message|>3<|channel|>final<|message|>5</s>",
            "<|channel|>analysis<|message|>3<|channel|>final<|message|>5",
        ),
        ("<|begin_of_box|>5<|end_of_box|></s>", "<|begin_of_box|>5<|end_of_box|>"),
        ("<réponse>5</réponse></s>", "<réponse>5</réponse>"),
    ],
)
def test_only_what_ends_or_pads_a_completion_leaves_the_text(special: bool, written: str, text: str) -> None:
    made = renderer("byte-level", special)
    for finish in (Finish.STOP, Finish.LENGTH):
        assert made.decode(sample_of(made, written, finish=finish)) == text


def test_padding_with_the_end_of_sequence_leaves_the_text() -> None:
    made = renderer("byte-level", pad_token="</s>")
    assert made.decode(sample_of(made, "3</s>5</s></s></s>")) == "3</s>5"


@pytest.mark.parametrize(
    ("stop", "written", "text"),
    [
        ("</answer>", "<think>3</think><answer>5</answer>", "<think>3</think><answer>5</answer>"),
        ("</tool_call>", "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>"),
        ("</answer>", "5</answer>", "5"),  # closes nothing
        ("<|channel|>", "5<|channel|>", "5"),
        ("<|channel|>", "5<|channel|>6", "5<|channel|>6"),
        ("!", "5!", "5!"),  # an ordinary token is text
    ],
)
def test_a_further_stop_leaves_the_text_unless_it_is_a_part_of_it(stop: str, written: str, text: str) -> None:
    made = renderer("byte-level", stop=(stop,))
    assert made.decode(sample_of(made, written)) == text
    assert made.stop_ids == tuple(sorted({made.end, made.single_token(stop)}))


def test_an_added_stop_that_is_no_special_token_is_text() -> None:
    made = renderer("byte-level", special=False, stop=("<|channel|>",))
    assert made.decode(sample_of(made, "5<|channel|>")) == "5<|channel|>"


def test_the_models_ends_leave_and_what_was_forced_ends_nothing() -> None:
    tokenizer = family("bytes", template=None)
    ends = [tokenizer.convert_tokens_to_ids(text) for text in ("<|im_end|>", "<|message|>")]
    made = Renderer(tokenizer, TaskConfig(), stop_ids=ends)
    assert [made.decode(sample_of(made, f"5{end}")) for end in ("<|im_end|>", "<|message|>", "</s>")] == ["5"] * 3
    assert made.stop_ids == tuple(sorted({made.end, *ends}))
    forced = sample_of(made, "ab<|im_end|>", injected=np.array([False, True, True]))
    assert made.decode(forced) == "ab<|im_end|>"


def test_each_turn_ends_before_the_output_of_a_tool() -> None:
    made = renderer("bytes")
    parts = [
        ("?", Origin.PROMPT),
        ("<tool_call>2</tool_call><|im_end|>", Origin.POLICY),
        ("4", Origin.TOOL),
        ("5<|im_end|>", Origin.POLICY),
    ]
    ids = [(token, origin) for text, origin in parts for token in made.tokens(text)]
    zeros = np.zeros(len(ids), dtype=np.float32)
    origin = np.array([int(origin) for _, origin in ids], dtype=np.uint8)
    sample = Sample(
        np.array([t for t, _ in ids]), origin, zeros, zeros.astype(np.int32), zeros, zeros, Finish.STOP, "p"
    )
    assert made.decode(sample) == "<tool_call>2</tool_call>\n5"
    # The policy's tokens: <tool_call> 2 </tool_call> <|im_end|> 5 <|im_end|>
    assert made.tokens_at(sample, [11, 12, 24, 25, 26, 99]) == [0, 1, 2, 4, 4, 4]


def test_words_are_decoded_as_their_family_does() -> None:
    text = "<think>It is near 3</think><answer>5</answer>"
    made = renderer("llama-2")  # puts a space before every stretch of text
    assert made.decode(sample_of(made, text, end=True)) == "<think> It is near 3</think><answer> 5</answer>"
    made = renderer("wordpiece")
    assert made.decode(sample_of(made, text, end=True)) == "<think> It is near 3 </think> <answer> 5 </answer>"


def test_a_thought_is_opened_where_its_tag_is_a_special_token() -> None:
    thinking = CHATML.replace("'<|im_start|>assistant\n' }}", "'<|im_start|>assistant\n<think>\n' }}")
    for made in (
        renderer("byte-level", template=thinking),
        Renderer(family("metaspace"), TaskConfig(think="<think>\n")),
    ):
        assert made.opens_thought
        ids = made.ids(Prompt("p", "1 + 1 ="))
        assert made.tokens("<think>")[0] in ids
        sample = Sample.of(ids, made.completion_ids("<think>\n3</think>5"), prompt_id="p")
        assert made.decode(sample) == "3</think>5"
    assert not renderer("byte-level").opens_thought


def first_beginning(made: Renderer, sample: Sample, end: int) -> int:
    """The last token of the shortest beginning that decodes to the wanted characters."""
    ids = sample.ids[sample.mask]
    decode = made.tokenizer.decode
    wanted = decode(ids, skip_special_tokens=True)[:end]
    return next(n for n in range(1, len(ids) + 1) if decode(ids[:n], skip_special_tokens=True).startswith(wanted)) - 1


LETTERS = st.characters(codec="utf-8", exclude_characters="\ufffd\x00") | st.sampled_from(
    "ab 5.,\n é你好世界😀👩\u200d🇩🇪한Пё"
)


@pytest.mark.parametrize("name", [*FAMILIES, "llama-2", "wordpiece"])
@settings(max_examples=40, deadline=None)
@given(text=st.text(LETTERS, min_size=1, max_size=24) | st.sampled_from(WORDS))
def test_steps_end_at_the_tokens_that_decoding_beginnings_finds(name: str, text: str) -> None:
    made = renderer(name)
    sample = sample_of(made, text)
    if "<unk>" in made.decode(sample) or not sample.length:
        return  # was left out before
    ends = range(len(made.decode(sample)) + 2)
    assert made.tokens_at(sample, ends) == [first_beginning(made, sample, end) for end in ends]


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, 255), min_size=1, max_size=80))
def test_tokens_that_are_no_text_have_pieces_that_make_it(ids: list[int]) -> None:
    made = renderer("bytes")
    assert "".join(made.pieces(ids)) == made.pieces.text(ids)
    sample = Sample.of(np.array([1]), np.array(ids), prompt_id="p")
    at = made.tokens_at(sample, range(len(made.decode(sample)) + 1))
    assert at == sorted(at)


def test_a_long_text_is_decoded_a_few_times_and_not_once_for_each_beginning() -> None:
    tokenizer = family("bytes")
    made = Renderer(tokenizer, TaskConfig())
    sample = sample_of(made, "三加五等于八，" * 300)
    decoded, decode = [], tokenizer.decode
    tokenizer.decode = lambda ids, **how: decoded.append(len(ids)) or decode(ids, **how)
    made.tokens_at(sample, range(0, 2000, 5))
    assert sample.length > 5000
    assert sum(decoded) < 2 * sample.length
