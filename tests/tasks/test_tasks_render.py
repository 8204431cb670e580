"""From problems to token ids and back: templates, the beginning token, the end of a turn, and what does not fit."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from surefoot.errors import DataError
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.render import Renderer
from surefoot.types import Finish, Origin, Prompt, Sample

CHARACTERS = sorted(set(string.printable) - set("\r\x0b\x0c"))
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}"
    "{% else %}{{ raise_exception('only user and assistant') }}{% endif %}{% endfor %}"
)
THINKING = CHATML.replace("'<|im_start|>assistant\n' }}", "'<|im_start|>assistant\n<think>\n' }}")
QUESTION = Prompt("q", "1 + 1 =", "2")
CHAT = Prompt(
    "c",
    (
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "1 + 1 ="},
    ),
    "2",
)


def tokenizer(template: str | None = CHATML, *, bos: bool = False, eos: str | None = "</s>") -> Any:
    """A tokenizer of single characters and four special tokens; with ``bos`` it puts ``<s>`` before every text."""
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*SPECIAL, *CHARACTERS])}, merges=[]))
    inner.decoder = decoders.Fuse()
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token=eos,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def tokens(made: Any, ids: np.ndarray) -> str:
    return made.decode(ids.tolist(), skip_special_tokens=False)


def test_a_chat_template_is_used_where_there_is_one():
    made = tokenizer()
    renderer = Renderer(made, TaskConfig(system="Be brief."))
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1 =<|im_end|>\n<|im_start|>assistant\n"
    assert renderer.chat
    assert renderer.text(QUESTION) == text
    ids = renderer.ids(QUESTION)
    assert ids.dtype == np.int64 and ids.ndim == 1
    assert tokens(made, ids) == text
    reference = made.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 ="}],
        add_generation_prompt=True,
        return_dict=True,
    )
    assert ids.tolist() == reference["input_ids"]


def test_plain_text_where_there_is_none_or_it_is_asked_for():
    for made, template in ((tokenizer(None), "auto"), (tokenizer(None), "plain"), (tokenizer(), "plain")):
        renderer = Renderer(made, TaskConfig(template=template))
        assert not renderer.chat
        assert tokens(made, renderer.ids(QUESTION)) == "1 + 1 ="


def test_the_wording_goes_around_the_problem_and_braces_stay():
    config = TaskConfig(prompt="Solve {prompt} in {x}, {prompt}!", template="plain")
    made = tokenizer()
    assert Renderer(made, config).text(Prompt("p", "{1}")) == "Solve {1} in {x}, {1}!"
    text = Renderer(made, TaskConfig(prompt="Q: {prompt}")).text(CHAT)
    assert "user\nHello<" in text and "user\nQ: 1 + 1 =<" in text and "assistant\nHi<" in text


def test_a_row_that_brings_its_system_message_keeps_it():
    made = tokenizer()
    own = Prompt("p", ({"role": "system", "content": "own"}, {"role": "user", "content": "x"}))
    text = Renderer(made, TaskConfig(system="general")).text(own)
    assert "own" in text and "general" not in text
    assert Renderer(made, TaskConfig(system="general")).text(CHAT).startswith("<|im_start|>system\ngeneral<|im_end|>")


@pytest.mark.parametrize("template", [None, CHATML, LLAMA])
@pytest.mark.parametrize("bos", [False, True])
def test_the_beginning_token_stands_once_or_never(template: str | None, bos: bool):
    renderer = Renderer(tokenizer(template, bos=bos), TaskConfig())
    ids = renderer.ids(QUESTION).tolist()
    expected = {None: bos, CHATML: False, LLAMA: True}[template]  # the template says, or else the tokenizer
    assert ids.count(0) == expected
    assert (ids[0] == 0) == expected
    assert 1 not in ids  # no end of sequence before the answer
    assert 0 not in renderer.completion_ids("2").tolist()


def test_a_wording_with_the_beginning_token_does_not_double_it():
    renderer = Renderer(tokenizer(None, bos=True), TaskConfig(prompt="<s>{prompt}"))
    assert renderer.ids(QUESTION).tolist().count(0) == 1


@pytest.mark.parametrize(
    ("template", "mode", "end"),
    [(CHATML, "auto", "<|im_end|>"), (LLAMA, "auto", "</s>"), (CHATML, "plain", "</s>"), (None, "auto", "</s>")],
)
def test_a_demonstration_ends_in_the_token_that_ends_a_turn(template: str | None, mode: str, end: str):
    made = tokenizer(template, bos=True)
    ids = Renderer(made, TaskConfig(template=mode)).completion_ids("It is 2.")
    assert ids.dtype == np.int64
    assert tokens(made, ids) == "It is 2." + end


@pytest.mark.parametrize("template", [CHATML, LLAMA, THINKING])
def test_prompt_and_demonstration_make_the_chat_that_the_template_writes(template: str):
    made = tokenizer(template)
    renderer = Renderer(made, TaskConfig())
    joined = tokens(made, renderer.ids(QUESTION)) + tokens(made, renderer.completion_ids("2"))
    whole = made.apply_chat_template(
        [{"role": "user", "content": "1 + 1 ="}, {"role": "assistant", "content": "2"}], tokenize=False
    )
    bare = joined.replace("<think>\n", "")
    assert "".join(bare.split()) == "".join(whole.split())


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (CHATML.split("{% if add")[0], "does not end where the assistant begins"),  # leaves the assistant out
        (CHATML.replace("assistant\n' }}{% endif", "user\n' }}{% endif"), "does not end where the assistant begins"),
        (CHATML.replace("m['content']", "'x'"), "does not end where the assistant begins"),  # leaves the answer out
        ("{{ messages[0]['nothing']['at all'] }}", "refuses the messages (user)"),
        ("{% if %}", "refuses the messages (user)"),
    ],
)
def test_a_template_that_does_not_hand_over_to_the_assistant_is_refused(template: str, words: str):
    with pytest.raises(DataError) as error:
        Renderer(tokenizer(template), TaskConfig())
    assert words in str(error.value)


def test_options_that_do_not_fit_the_tokenizer():
    with pytest.raises(DataError, match=r"has no chat template: set task\.template = 'plain'"):
        Renderer(tokenizer(None), TaskConfig(template="chat"))
    for made, template in ((tokenizer(None), "auto"), (tokenizer(), "plain")):
        with pytest.raises(DataError, match=r"task\.system is given"):
            Renderer(made, TaskConfig(template=template, system="Be brief."))
    with pytest.raises(DataError, match=r"refuses the messages \(system, user\)"):
        Renderer(tokenizer(LLAMA), TaskConfig(system="Be brief."))
    with pytest.raises(DataError, match="no end-of-sequence token"):
        Renderer(tokenizer(None, eos=None), TaskConfig())


@pytest.mark.parametrize(
    ("template", "mode", "words"),
    [(None, "auto", "the tokenizer has no chat template"), (CHATML, "plain", "set it to 'chat'")],
)
def test_messages_need_a_chat_template(template: str | None, mode: str, words: str):
    renderer = Renderer(tokenizer(template), TaskConfig(template=mode))
    assert len(renderer.ids(QUESTION))
    with pytest.raises(DataError, match=words):
        renderer.ids(CHAT)


def test_an_empty_prompt_is_refused():
    with pytest.raises(DataError, match="is empty"):
        Renderer(tokenizer(None), TaskConfig()).ids(Prompt("p", ""))


def test_what_stood_around_the_output_of_a_tool_is_set_apart():
    made = tokenizer()
    renderer = Renderer(made, TaskConfig())
    ids = np.array(made("prompt abtool cd<|im_end|>", add_special_tokens=False)["input_ids"])
    origin = np.array(
        [Origin.PROMPT] * 7 + [Origin.POLICY] * 2 + [Origin.TOOL] * 5 + [Origin.POLICY] * 3, dtype=np.uint8
    )
    zeros = np.zeros(len(ids), dtype=np.float32)
    sample = Sample(ids, origin, zeros, zeros.astype(np.int32), zeros, zeros, Finish.STOP, "p")
    assert renderer.decode(sample) == "ab\ncd"  # "3+4=1", a tool, "7" is not "3+4=17"
    assert renderer.tokens_at(sample, (0, 1, 2, 3, 4, 5, 99)) == [0, 0, 1, 2, 2, 3, 3]
    assert renderer.decode(Sample.of(ids, np.array([], dtype=np.int64), prompt_id="p")) == ""


def test_what_was_forced_on_the_policy_is_in_the_text_and_a_step_ends_with_the_policys_own_token():
    renderer = Renderer(tokenizer(), TaskConfig())
    ids = renderer.tokens("3+4=1so:7")
    injected = np.array([character in "so:" for character in "3+4=1so:7"])
    sample = Sample.of(renderer.ids(QUESTION), np.array(ids), prompt_id="p", injected=injected)
    assert renderer.decode(sample) == "3+4=1so:7"
    assert renderer.tokens_at(sample, (5, 6, 8, 9)) == [4, 4, 4, 5]


def test_a_character_of_several_tokens_is_complete_with_its_last():
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(bytes_to_unicode().values()))}, merges=[]))
    inner.decoder, inner.pre_tokenizer = decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="a", clean_up_tokenization_spaces=False)
    renderer = Renderer(made, TaskConfig(template="plain"))
    sample = Sample.of(np.array([1, 2]), np.array(renderer.tokens("x\U0001f600y")), prompt_id="p")
    assert len(sample) == 2 + 1 + 4 + 1 and renderer.decode(sample) == "x\U0001f600y"
    assert renderer.tokens_at(sample, (1, 2, 3)) == [0, 4, 5]


def bytes_to_unicode() -> dict[int, str]:
    """The printable characters that byte-level tokenizers write bytes as."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for number, byte in enumerate(byte for byte in range(256) if byte not in table):
        table[byte] = chr(256 + number)
    return table


@given(st.text(alphabet=CHARACTERS, max_size=30))
def test_a_demonstration_is_decoded_to_itself(text: str):
    renderer = RENDERER
    sample = Sample.of(renderer.ids(QUESTION), renderer.completion_ids(text), prompt_id="p")
    assert renderer.decode(sample) == text


RENDERER = Renderer(tokenizer(), TaskConfig())


def test_prompts_that_do_not_fit_are_named():
    renderer = Renderer(tokenizer(None), TaskConfig())
    prompts = [Prompt("short", "12"), Prompt("long", "1234567"), Prompt("longer", "123456789")]
    renderer.check_length(prompts, context=15, max_new_tokens=6)
    renderer.check_length([], context=1, max_new_tokens=6)
    with pytest.raises(DataError) as error:
        renderer.check_length(prompts, context=12, max_new_tokens=6)
    text = str(error.value)
    assert "prompt long ('1234567') has 7 tokens" in text and "longer" not in text
    assert "rollout.max_new_tokens = 6" in text and "13" in text and "context of 12" in text


def test_stop_texts_are_single_tokens():
    made = tokenizer()
    renderer = Renderer(made, TaskConfig())
    assert renderer.single_token("\n") == made.convert_tokens_to_ids("\n")
    assert renderer.single_token("<|im_start|>") == 2
    for text in ("ab", ""):
        with pytest.raises(DataError, match=r"rollout\.stop takes texts of one token"):
            renderer.single_token(text)


def test_a_demonstration_that_is_no_unicode_is_refused():
    with pytest.raises(DataError, match=r"demonstration.*surrogate"):
        RENDERER.completion_ids("a\ud800b")
