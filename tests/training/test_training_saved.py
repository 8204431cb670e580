"""What a run saves, plain Transformers runs as Surefoot does: the same greedy answers, token for token, and the same end.

Users of other trainers met saved models that never stop: their files named the base model's end of text, and the completions
of the training had ended with the chat template's end of turn (huggingface/open-r1 pull request 663, hiyouga/LlamaFactory
issues 7454 and 9338); and saved models whose untied head was tied again (huggingface/transformers issue 45127).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from surefoot import api
from surefoot.policy.config import ModelConfig
from surefoot.policy.embedded import CHARACTERS
from surefoot.policy.loading import load_policy
from surefoot.rewards.base import Reward
from surefoot.rewards.functions import as_reward
from surefoot.tasks.base import Task
from surefoot.types import Prompt

END, TEXT_END, PAD = "<|end|>", "<|endoftext|>", "<|pad|>"
BUDGET = 12
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
}
FAMILIES: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, SIZES),
    "llama tied": (transformers.LlamaConfig, {**SIZES, "tie_word_embeddings": True}),
    "mistral": (transformers.MistralConfig, {**SIZES, "sliding_window": 8}),
    "qwen2": (transformers.Qwen2Config, {**SIZES, "tie_word_embeddings": True}),
    "qwen3": (transformers.Qwen3Config, SIZES),
    "gemma": (transformers.GemmaConfig, SIZES),
    "gemma2": (transformers.Gemma2Config, SIZES),
    "gemma3": (transformers.Gemma3TextConfig, SIZES),
    "granite": (transformers.GraniteConfig, SIZES),
    "cohere": (transformers.CohereConfig, SIZES),
    "gpt2": (
        transformers.GPT2Config,
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.15},
    ),
}
WORDS = {"red": "rot", "blue": "blau", "green": "lindgruen"}


def tokenizer() -> PreTrainedTokenizerFast:
    """Characters, a token that ends a turn, and another that ends a text, which is the tokenizer's end."""
    special = [PAD, TEXT_END, END, "<|user|>", "<|assistant|>"]
    vocabulary = {token: index for index, token in enumerate((*special, "<|unk|>", *CHARACTERS))}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<|unk|>"))
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=PAD,
        eos_token=TEXT_END,
        unk_token="<|unk|>",
        additional_special_tokens=special[2:],
        model_max_length=64,
        chat_template=TEMPLATE,
    )


def base_model(folder: Path, family: str, **settings: Any) -> Path:
    """A base model with random weights, whose files name the end of text and nothing else."""
    words, (config, sizes) = tokenizer(), FAMILIES[family]
    ids = {"bos_token_id": None, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config(vocab_size=len(words), **ids, **sizes))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    if settings:  # as they are found in the files of models, not as Transformers would write them today
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": words.eos_token_id, **settings}))
    return folder


def task() -> Task:
    """Words to translate, the held-out ones with another mark behind them."""

    def prompts(*shapes: str) -> tuple[Prompt, ...]:
        shaped = [(shape.format(word), translation) for shape in shapes for word, translation in WORDS.items()]
        return tuple(Prompt(text, text, translation) for text, translation in shaped)

    return Task(
        "words", prompts("{}", "{}.", "{}!"), prompts("{}?"), demonstrate=lambda prompt, seed, rate: str(prompt.answer)
    )


def right() -> Reward:
    return as_reward(lambda prompt, completion, answer: float(completion.strip() == str(answer).strip()))


def warmed_up(base: Path | str, runs: Path, **over: Any) -> Path:
    """The model of a supervised run that learns the words by heart."""
    values: dict[str, Any] = {
        "runs": str(runs),
        "model": {"path": str(base)},
        "rollout": {"max_new_tokens": BUDGET},
        "optimiser": {"lr": 1e-2, "max_grad_norm": 1.0},
        "evaluation": {"problems": 3},
        "steps": 150,
        "batch": 9,
        "check_every": 10,
    }
    for section, changes in over.items():
        values[section] = {**values.get(section, {}), **changes}
    return api.sft(values, task=task(), reward=right()).model


def trained(base: Path, runs: Path, **over: Any) -> Path:
    """The folder of a run of two steps, small enough that nothing is forgotten."""
    values: dict[str, Any] = {
        "runs": str(runs),
        "model": {"path": str(base)},
        "rollout": {"max_new_tokens": BUDGET},
        "train": {"steps": 2, "prompts_per_step": 3, "group_size": 4},
        "optimiser": {"lr": 1e-4},
        "evaluation": {"every": 1, "problems": 3},
        "health": {"truncated_above": 1.0},
        "audit": {"before": "off"},
    }
    for section, changes in over.items():
        values[section] = {**values.get(section, {}), **changes}
    return api.train(values, task=task(), reward=right()).folder


def surefoot_answers(folder: Path | str, **over: Any) -> dict[str, list[int]]:
    """word -> the ids of the greedy completion, as `surefoot evaluate` makes them."""
    config = {"rollout": {"max_new_tokens": BUDGET}, "evaluation": {"problems": 3}, **over}
    found = api.evaluate(folder, config, task=task(), reward=right())
    assert found.accuracy == 1.0 and found.truncated == 0.0
    return {sample.prompt_id: sample.ids[sample.mask].tolist() for (sample,) in found.samples}


def plain_answers(folder: Path, model: Any = None, **options: Any) -> dict[str, list[int]]:
    """The same with Transformers alone: all words in one batch, the padding after an end taken off."""
    words = AutoTokenizer.from_pretrained(folder)
    words.padding_side = "left"
    model = model or AutoModelForCausalLM.from_pretrained(folder)
    problems = [prompt.text for prompt in task().heldout]
    chats = [[{"role": "user", "content": problem}] for problem in problems]
    if words.chat_template is None:
        given = words(problems, return_tensors="pt", padding=True)
    else:
        given = words.apply_chat_template(
            chats, add_generation_prompt=True, return_tensors="pt", padding=True, return_dict=True
        )
    made = model.generate(**given, max_new_tokens=BUDGET, **options)[:, given["input_ids"].shape[1] :].tolist()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return dict(zip(problems, (cut(ids, ends) for ids in made), strict=True))


def cut(ids: list[int], ends: list[int]) -> list[int]:
    """Up to the first end, which is part of it."""
    return next((ids[: place + 1] for place, token in enumerate(ids) if token in ends), ids)


def ends_of(folder: Path) -> dict[str, list[int]]:
    """file -> the ids that it names as ends, sorted."""
    found = {}
    for file in ("generation_config.json", "config.json"):
        named = json.loads((folder / file).read_text())["eos_token_id"]
        found[file] = sorted(named) if isinstance(named, list) else [named]
    return found


@pytest.fixture(scope="module", params=FAMILIES)
def warm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The warmed-up model of each family in turn."""
    place = tmp_path_factory.mktemp("warm")
    yield warmed_up(base_model(place / "base", request.param), place)


def test_the_saved_models_stop_where_surefoot_does(warm: Path, tmp_path: Path) -> None:
    run = trained(warm, tmp_path)
    for folder in (warm, run / "model", run / "best"):
        expected = surefoot_answers(folder)
        assert all(ids[-1] == 2 for ids in expected.values())  # <|end|>
        assert plain_answers(folder) == expected, folder.name
        assert ends_of(folder) == {"generation_config.json": [1, 2], "config.json": [1, 2]}
