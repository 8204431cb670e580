"""Tokens one by one in samples/*.jsonl: complete, true to what the update computed, and without influence on it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.policy.embedded import fresh_model
from surefoot.tasks.pieces import Pieces
from surefoot.training.loop import train
from tests.training.tiny import digits_reward, tiny


class Bytes:
    """A tokenizer with a token for each byte, the worst case of characters in several tokens."""

    def decode(self, ids: list[int], **_: Any) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def records(run: Path, kind: str = "step") -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted((run / "samples").glob(f"{kind}-*")) for line in file.open()]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12))
def test_pieces_of_bytes_make_the_text_and_never_half_a_character(text: str) -> None:
    ids = list(text.encode())
    pieces = Pieces(Bytes())(ids)
    assert len(pieces) == len(ids) and "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=16))
def test_bytes_that_are_no_text_still_get_a_piece_each(ids: list[int]) -> None:
    pieces = Pieces(Bytes())(ids)
    assert len(pieces) == len(ids)
    readable = [chr(token) for token in ids if token < 128]
    assert [character for character in "".join(pieces) if ord(character) < 128] == readable


@pytest.mark.parametrize("preset", ["grpo_token", "gspo", "ppo", "cispo", "kimi_k15"])
def test_records_hold_the_tokens_of_the_update(preset: str, tmp_path: Path) -> None:
    config = tiny(
        tmp_path,
        algorithm={"preset": preset},
        train={"steps": 2, "epochs": 2, "updates_per_step": 2},
        optimiser={"lr": 2e-2},
        track={"token_details": 5},
    )
    found = records(train(config, reward=digits_reward()).folder)
    per_step = config.train.prompts_per_step * config.train.group_size
    for number, record in enumerate(found):
        assert ("tokens" in record) == (number % per_step < 5)
    with_tokens = [record["tokens"] for record in found if "tokens" in record]
    for record, tokens in zip((r for r in found if "tokens" in r), with_tokens, strict=True):
        length = len(tokens["text"])
        assert length == record["length"]
        assert re.sub("(<eos>|<pad>)*$", "", "".join(tokens["text"])) == record["completion"]
        assert all(len(tokens[name]) == length for name in tokens.keys() - {"bounds"})
        assert all(value <= 0 for value in tokens["logp"])
    updated = [tokens for tokens in with_tokens if "entropy" in tokens]
    assert updated
    for tokens in updated:
        # Engine and trainer have the same weights at the start of an update.
        assert np.allclose(tokens["logp"], tokens["logp_start"], atol=2e-3)
        assert all(0 <= value <= math.log(200) for value in tokens["entropy"])
    if preset == "kimi_k15":
        assert not any("ratio" in tokens for tokens in updated)
        return
    assert any(value != 1.0 for tokens in updated for value in tokens["ratio"])
    if preset == "gspo":
        assert all(len(set(tokens["ratio"])) == 1 for tokens in updated)
    if preset == "ppo":
        assert any(isinstance(tokens.get("advantage"), list) for tokens in updated)


def test_bounds_are_those_of_the_clip(tmp_path: Path) -> None:
    over = {"train": {"steps": 2, "epochs": 3}, "optimiser": {"lr": 5e-2}, "track": {"token_details": 12}}
    run = train(tiny(tmp_path, **over), reward=digits_reward()).folder
    bounded = 0
    for record in records(run):
        tokens = record["tokens"]
        if "ratio" not in tokens:
            assert record["advantage"] == 0 and "bounds" not in tokens  # without a gradient it skips the update
            continue
        sign, ratio = record["advantage"], np.array(tokens["ratio"])
        expected = {
            "clip_high": np.flatnonzero((ratio > 1.2) & (sign > 0)),
            "clip_low": np.flatnonzero((ratio < 0.8) & (sign < 0)),
        }
        assert tokens["bounds"] == {name: at.tolist() for name, at in expected.items() if len(at)}
        bounded += sum(map(len, tokens["bounds"].values()))
    assert bounded


def test_ratio_against_the_engine_is_left_out_where_only_the_engine_was_asked(tmp_path: Path) -> None:
    config = tiny(tmp_path, train={"steps": 1, "updates_per_step": 2, "old": "behaviour"})
    tokens = [
        record["tokens"] for record in records(train(config, reward=digits_reward()).folder) if "tokens" in record
    ]
    assert tokens and all("logp_start" not in one for one in tokens) and any("ratio" in one for one in tokens)


def test_details_change_nothing_of_the_run(tmp_path: Path) -> None:
    runs = [
        train(
            tiny(tmp_path / str(number), train={"updates_per_step": 2}, track={"token_details": number}),
            reward=digits_reward(),
        ).folder
        for number in (0, 8)
    ]
    assert (runs[0] / "metrics.jsonl").read_text() == (runs[1] / "metrics.jsonl").read_text()
    assert (runs[0] / "model" / "model.safetensors").read_bytes() == (
        runs[1] / "model" / "model.safetensors"
    ).read_bytes()


def test_forced_tokens_are_named_and_have_no_values(tmp_path: Path) -> None:
    forced = {"kind": "force_answer", "share": 0.3, "phrase": "=", "close": ""}
    config = tiny(tmp_path, algorithm={"preset": "grpo_token", "interruption": forced}, train={"steps": 1})
    tokens = [
        record["tokens"] for record in records(train(config, reward=digits_reward()).folder) if "tokens" in record
    ]
    injected = [one for one in tokens if "origin" in one]
    assert injected
    for one in injected:
        at = one["origin"].index("injected")
        assert one["text"][at] == "=" and one["logp"][at] is None and one["logp"][at - 1] is not None


def test_held_out_samples_have_the_engines_numbers_only(tmp_path: Path) -> None:
    found = records(train(tiny(tmp_path, train={"steps": 1}), reward=digits_reward()).folder, "heldout")
    assert found and all(set(record["tokens"]) == {"text", "logp"} for record in found[:4])


def test_pieces_of_the_embedded_tokenizer_are_what_it_decodes() -> None:
    _, tokenizer = fresh_model(0)
    ids = torch.arange(len(tokenizer)).tolist()
    assert "".join(Pieces(tokenizer)(ids)) == tokenizer.decode(ids, clean_up_tokenization_spaces=False)
