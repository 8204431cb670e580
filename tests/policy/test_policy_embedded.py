"""The embedded model: small, reproducible, lossless in its text, at home in Transformers."""

from __future__ import annotations

import string

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.policy.embedded import CONTEXT, character_tokenizer, fresh_model

TOKENIZER = character_tokenizer()
TEXT = st.text(alphabet=string.digits + string.ascii_letters + string.punctuation + " \n", max_size=80)


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_decoding_gives_back_every_character(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(ids, skip_special_tokens=True) == text


def test_special_tokens_are_three_and_differ() -> None:
    assert len({TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, TOKENIZER.unk_token_id}) == 3
    assert len(TOKENIZER) == 3 + 95 + 1
    assert TOKENIZER.encode("\té") == [TOKENIZER.unk_token_id] * 2
    assert TOKENIZER.decode([5, TOKENIZER.eos_token_id, 6], skip_special_tokens=True) == TOKENIZER.decode([5, 6])


def test_chat_template_ends_where_generation_begins() -> None:
    question = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+2="}]
    prompt = TOKENIZER.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    assert prompt == "Add.\n1+2="
    turn = TOKENIZER.apply_chat_template([*question, {"role": "assistant", "content": "3"}], tokenize=False)
    assert turn == prompt + "3<eos>"


def test_size_and_reproducibility() -> None:
    before = torch.get_rng_state()
    model, _ = fresh_model(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert 200_000 < sum(parameter.numel() for parameter in model.parameters()) < 250_000
    assert model.dtype == torch.float32 and not model.training and model.config.max_position_embeddings == CONTEXT
    same, other = fresh_model(3)[0], fresh_model(4)[0]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    assert not torch.equal(model.lm_head.weight, other.lm_head.weight)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_loads_with_transformers_alone(tmp_path) -> None:
    model, tokenizer = fresh_model(0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, words = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = torch.tensor([words.encode(" two  words\n")])
    assert words.decode(ids[0]) == " two  words\n" and words.chat_template == tokenizer.chat_template
    assert (words.pad_token_id, words.eos_token_id, words.unk_token_id) == (0, 1, 2)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert (loaded.generation_config.eos_token_id, loaded.generation_config.pad_token_id) == (1, 0)
