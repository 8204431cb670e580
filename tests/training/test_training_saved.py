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
from surefoot.policy.loading import load_policy, save_policy
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


def model_of(path: Path | str) -> dict[str, Any]:
    """The section; Gemma 2 caps its attention, which only one implementation does, for Transformers alone too."""
    file = Path(path) / "config.json"
    eager = file.exists() and json.loads(file.read_text())["model_type"] == "gemma2"
    return {"path": str(path), "attention": "eager" if eager else "sdpa"}


def warmed_up(base: Path | str, runs: Path, **over: Any) -> Path:
    """The model of a supervised run that learns the words by heart."""
    values: dict[str, Any] = {
        "runs": str(runs),
        "model": model_of(base),
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
        "model": model_of(base),
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


def surefoot_answers(folder: Path | str, accuracy: float = 1.0) -> dict[str, list[int]]:
    """problem -> the ids of the greedy completion, as `surefoot evaluate` makes them."""
    config = {"model": model_of(folder), "rollout": {"max_new_tokens": BUDGET}, "evaluation": {"problems": 3}}
    found = api.evaluate(folder, config, task=task(), reward=right())
    assert found.accuracy >= accuracy and found.truncated == 0.0
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


# One family from here on.


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("llama")
    return warmed_up(base_model(place / "base", "llama tied"), place)


def test_a_model_that_was_saved_and_read_again_is_saved_alike(llama: Path, tmp_path: Path) -> None:
    policy = load_policy(ModelConfig(path=str(llama), device="cpu"))
    assert policy.stop_ids == (1, 2)
    save_policy(policy, tmp_path / "again")
    for file in sorted(llama.iterdir()):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_base_of_a_run_is_not_described_anew(llama: Path, tmp_path: Path) -> None:
    """Saving in the middle of a run changes nothing for what is still to be computed."""
    policy = load_policy(ModelConfig(path=str(llama.parents[1] / "base"), device="cpu"))
    before = policy.model.config.to_dict(), policy.model.generation_config.to_dict()
    save_policy(policy, tmp_path / "saved", (7,))
    assert (policy.model.config.to_dict(), policy.model.generation_config.to_dict()) == before
    assert ends_of(tmp_path / "saved")["generation_config.json"] == [1, 2, 7]


def test_stop_texts_of_the_run_stop_the_saved_model(llama: Path, tmp_path: Path) -> None:
    """A run that stops at a letter: all that was sampled and measured ends there, so that generate() must too."""
    run = trained(llama, tmp_path, rollout={"max_new_tokens": BUDGET, "stop": ["t", "u"]})
    letters = sorted(tokenizer().convert_tokens_to_ids(["t", "u"]))
    assert ends_of(run / "model")["generation_config.json"] == [1, 2, *letters]
    found = plain_answers(run / "model")
    assert [tokenizer().decode(ids) for ids in found.values()] == ["rot", "blau", "lindgru"]
    # Read by Surefoot, with and without the stop texts, it stops at the same places.
    for over in ({}, {"rollout": {"max_new_tokens": BUDGET, "stop": ["t", "u"]}}):
        config = {
            "model": model_of(run / "model"),
            "evaluation": {"problems": 3},
            "rollout": {"max_new_tokens": BUDGET},
        }
        again = api.evaluate(run / "model", {**config, **over}, task=task(), reward=right())
        assert {sample.prompt_id: sample.ids[sample.mask].tolist() for (sample,) in again.samples} == found


def test_adapters_stop_merged_and_alone(llama: Path, tmp_path: Path) -> None:
    run = trained(llama, tmp_path, model={"lora": {"rank": 2}}, optimiser={"lr": 1e-3})
    expected = surefoot_answers(run / "model")
    assert plain_answers(run / "model") == expected
    # The adapter is put on the base that it was trained on, and told how to stop from its own folder.
    with_adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), run / "model" / "adapter")
    settings = GenerationConfig.from_pretrained(run / "model" / "adapter")
    assert sorted(settings.eos_token_id) == [1, 2]
    assert plain_answers(run / "model", with_adapter, generation_config=settings) == expected
    alone = AutoModelForCausalLM.from_pretrained(run / "model" / "adapter")  # by the name of its base
    assert plain_answers(run / "model", alone) == expected


SETTINGS: dict[str, dict[str, Any]] = {
    "a temperature without sampling": {"temperature": 0.6, "top_p": 0.9},  # which Transformers refuses to write
    "a penalty": {"repetition_penalty": 5.0},
    "suppressed letters": {"suppress_tokens": [tokenizer().convert_tokens_to_ids("r")]},
    "a forced end": {"forced_eos_token_id": 1, "min_new_tokens": 11},
    "stop strings": {"stop_strings": ["o"]},  # which generate() does not take without a tokenizer
    "beams": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
    "no n-gram twice": {"no_repeat_ngram_size": 1, "bad_words_ids": [[40]]},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_the_base_that_the_run_did_not_have_are_not_passed_on(
    settings: str, llama: Path, tmp_path: Path
) -> None:
    policy = load_policy(ModelConfig(path=str(llama), device="cpu"))
    policy.model.generation_config = GenerationConfig(eos_token_id=1, **SETTINGS[settings])
    save_policy(policy, tmp_path / "saved")
    assert plain_answers(tmp_path / "saved") == surefoot_answers(llama)


def test_how_a_base_is_sampled_stays(llama: Path, tmp_path: Path) -> None:
    """Where its authors say that it is sampled, and how: a user who asks for greedy answers gets those of Surefoot."""
    policy = load_policy(ModelConfig(path=str(llama), device="cpu"))
    recommended = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    policy.model.generation_config = GenerationConfig(eos_token_id=[2, 1], bos_token_id=5, max_length=48, **recommended)
    save_policy(policy, tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    written.pop("transformers_version")
    assert written == {"eos_token_id": [2, 1], "bos_token_id": 5, "pad_token_id": 0, "max_length": 48, **recommended}
    assert plain_answers(tmp_path / "saved", do_sample=False) == surefoot_answers(llama)


def test_a_head_that_is_not_tied_is_not_tied_by_the_saved_config(llama: Path, tmp_path: Path) -> None:
    """Files with two matrices under a config that ties them, as a merge with PEFT leaves them."""
    base = tmp_path / "base"
    save_policy(load_policy(ModelConfig(path=str(llama), device="cpu")), base)
    weights = load_file(base / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    save_file({**weights, "lm_head.weight": 1.5 * embedding}, base / "model.safetensors", {"format": "pt"})
    assert json.loads((base / "config.json").read_text())["tie_word_embeddings"] is True
    policy = load_policy(ModelConfig(path=str(base), device="cpu"))
    assert policy.model.get_output_embeddings().weight is not policy.model.get_input_embeddings().weight
    save_policy(policy, tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["tie_word_embeddings"] is False
    kept = load_file(tmp_path / "saved" / "model.safetensors")
    assert torch.equal(kept["lm_head.weight"], 1.5 * embedding)
    assert load_policy(ModelConfig(path=str(tmp_path / "saved"), device="cpu")).checksum() == policy.checksum()
    assert plain_answers(tmp_path / "saved") == surefoot_answers(tmp_path / "saved")


def test_a_tied_head_stays_tied(llama: Path) -> None:
    assert json.loads((llama / "config.json").read_text())["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(llama / "model.safetensors")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_saved_config_names_the_type_of_the_weights(dtype: str, llama: Path, tmp_path: Path) -> None:
    save_policy(load_policy(ModelConfig(path=str(llama), dtype=dtype, device="cpu")), tmp_path / "saved")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").dtype == getattr(torch, dtype)


def test_a_tokenizer_without_a_template_ends_with_its_own_end(tmp_path: Path) -> None:
    base = base_model(tmp_path / "base", "llama")
    words = AutoTokenizer.from_pretrained(base)
    words.chat_template = None
    (base / "chat_template.jinja").unlink(missing_ok=True)
    words.save_pretrained(base)
    model = warmed_up(base, tmp_path)
    assert ends_of(model) == {"generation_config.json": [1], "config.json": [1]}
    assert plain_answers(model) == surefoot_answers(model, accuracy=1 / 3)  # an unknown mark right before the answer


def test_an_end_that_the_template_writes_behind_other_words_stops_too(tmp_path: Path) -> None:
    """The end that demonstrations are given is the first special token behind the assistant's words."""
    base = base_model(tmp_path / "base", "llama")
    words = AutoTokenizer.from_pretrained(base)
    words.chat_template = TEMPLATE.replace("'<|end|>'", "' .<|end|>'")
    words.save_pretrained(base)
    model = warmed_up(base, tmp_path)
    assert ends_of(model)["generation_config.json"] == [1, 2]
    assert plain_answers(model) == surefoot_answers(model)


def test_the_embedded_model(tmp_path: Path) -> None:
    model = warmed_up("embedded", tmp_path, optimiser={"lr": 3e-3})
    assert ends_of(model) == {"generation_config.json": [1], "config.json": [1]}
    assert plain_answers(model) == surefoot_answers(model)


def test_the_folder_of_a_critic_loads(llama: Path, tmp_path: Path) -> None:
    run = trained(llama, tmp_path, algorithm={"preset": "ppo"}, critic={"kind": "model"})
    assert plain_answers(run / "model") == surefoot_answers(run / "model")
    assert transformers.AutoModel.from_pretrained(run / "critic").config.vocab_size == len(tokenizer())
