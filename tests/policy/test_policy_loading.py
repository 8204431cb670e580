"""Loading and saving: bit-equal round trips, and one line for everything that can be wrong with a folder."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from policy_models import GEMMA2, build, packed_of, some_samples
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.errors import ModelError, RunFolderError
from surefoot.policy.config import ModelConfig
from surefoot.policy.embedded import character_tokenizer
from surefoot.policy.loading import Policy, load_policy, save_policy
from surefoot.policy.logprob import token_logprobs


def loaded(path: Path | str, **options: Any) -> Policy:
    return load_policy(ModelConfig(path=str(path), device="cpu", **options))


def values(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.model.state_dict().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_policy(load_policy(ModelConfig()), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2-window"])
def test_round_trip_is_bit_equal(name: str, tmp_path: Path) -> None:
    model, tokenizer = build(name), character_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    attention = "eager" if name.startswith("gemma2") else "sdpa"
    policy = Policy(model, tokenizer, ModelConfig(attention=attention), torch.device("cpu"))
    save_policy(policy, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    again = loaded(tmp_path / "model", attention=attention)
    assert again.checksum() == policy.checksum()
    before, after = values(policy), values(again)
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    tied = again.model.get_output_embeddings().weight is again.model.get_input_embeddings().weight
    assert tied == (policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight)
    with torch.no_grad():
        packed = packed_of(some_samples())
        assert torch.equal(token_logprobs(again, packed).logp, token_logprobs(policy, packed).logp)
    text = "12 + 30 =\n 42"
    assert again.tokenizer.encode(text) == tokenizer.encode(text)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert all(torch.equal(value, before[key]) for key, value in plain.state_dict().items())
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template == tokenizer.chat_template


def test_saving_replaces_a_model_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    other = load_policy(ModelConfig(seed=1))
    save_policy(other, folder)
    assert loaded(folder).checksum() == other.checksum()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="holds something that is not a model"):
        save_policy(other, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "thesis"]


def test_a_write_that_fails_leaves_the_old_model(folder: Path) -> None:
    """A limit on the size of files stands in for a full disk: safetensors reports both as an error of its own."""
    before = loaded(folder).checksum()
    other = load_policy(ModelConfig(seed=1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))  # Python ignores the signal that goes with it
    try:
        with pytest.raises(RunFolderError, match=r"cannot write .*File too large"):
            save_policy(other, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert loaded(folder).checksum() == before


def test_errors_of_the_system_become_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = load_policy(ModelConfig())

    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(policy.model, "save_pretrained", full)
    with pytest.raises(RunFolderError, match="no space left while writing"):
        save_policy(policy, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


Damage = Callable[[Path], Any]


def rewrite(name: str, **changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | changes))

    return damage


BROKEN: dict[str, tuple[Damage, str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "config is not JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded.*config.json"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "cannot be loaded"),
    "unknown architecture": (rewrite("config.json", model_type="zzz"), "cannot be loaded.*zzz"),
    "not a causal model": (rewrite("config.json", model_type="t5"), "cannot be loaded.*T5Config"),
    "a number that is text": (rewrite("config.json", hidden_size="wide"), "cannot be loaded.*hidden_size"),
    "another width": (rewrite("config.json", hidden_size=64), "weights do not fit config.json.*of another shape"),
    "a layer too many": (rewrite("config.json", num_hidden_layers=3), "weights do not fit config.json.*missing"),
    "a layer too few": (rewrite("config.json", num_hidden_layers=1), "weights do not fit config.json.*not part of its"),
    "far too many layers": (rewrite("config.json", num_hidden_layers=40), "describes a model of .* the files hold"),
    "layers below none": (rewrite("config.json", num_hidden_layers=-1), "num_hidden_layers = -1: expected 1 or more"),
    "an end that is text": (rewrite("generation_config.json", eos_token_id="x"), "eos_token_id = 'x': expected"),
    "an end among others": (rewrite("generation_config.json", eos_token_id=[1, "x"]), "eos_token_id = .*: expected"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded.*model.safetensors"),
    "weights cut short": (lambda folder: os.truncate(folder / "model.safetensors", 5000), "cannot be loaded"),
    "weights that are text": (lambda folder: (folder / "model.safetensors").write_text("hello"), "cannot be loaded"),
    "no tokenizer": (
        lambda folder: [(folder / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")],
        "has no tokenizer",
    ),
    "tokenizer is not JSON": (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer cannot be read"),
    "tokenizer without its file": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_line(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damage, message = BROKEN[name]
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        loaded(folder)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 500 and f"'{folder}'" in line
    assert capfd.readouterr() == ("", "")  # no report or progress bar of Transformers beside the one line


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("./nowhere", r"'\./nowhere' does not exist: give a folder in Hugging Face layout or a hub name"),
        ("/no/where/at/all", "does not exist"),
        ("~nobody/model", "does not exist"),
        ("surefoot/nothing", "is neither a folder nor a model of the Hugging Face hub that can be reached"),
        ("nothing-of-this-name", "is neither a folder nor a model of the Hugging Face hub that can be reached"),
        ("not a name!", "is neither a folder nor a model of the Hugging Face hub"),
        ("", "has no config.json"),
    ],
)
def test_a_path_that_leads_nowhere(path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=message) as caught:
        loaded(path)
    assert "\n" not in str(caught.value)


def test_a_file_and_a_missing_sibling_of_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="is a file: give the folder"):
        loaded(folder / "config.json")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ModelError, match="'model/best' does not exist"):
        loaded("model/best")


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<one more>"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match="the tokenizer has 100 tokens and the model's embedding 99"):
        loaded(folder)


def test_device_dtype_seed_and_attention_are_obeyed(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.device = 'abacus' cannot be used here .*set it to 'cpu' or 'auto'"):
        load_policy(ModelConfig(device="abacus"))
    with pytest.raises(ModelError, match=r"model\.device = 'cuda:99' cannot be used here"):
        load_policy(ModelConfig(device="cuda:99"))
    assert load_policy(ModelConfig(device="cpu")).device == torch.device("cpu")
    for path in ("embedded", str(folder)):
        half = load_policy(ModelConfig(path=path, dtype="bfloat16", attention="eager", device="cpu"))
        assert half.model.dtype == torch.bfloat16 and half.model.config._attn_implementation == "eager"
        assert load_policy(ModelConfig(path=path)).model.config._attn_implementation == "sdpa"
    assert load_policy(ModelConfig(seed=1)).checksum() != load_policy(ModelConfig(seed=2)).checksum()


def test_attention_that_a_model_does_not_have(tmp_path: Path) -> None:
    model, tokenizer = build("gemma2-window"), character_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    save_policy(Policy(model, tokenizer, ModelConfig(), torch.device("cpu")), tmp_path / "model")
    with pytest.raises(ModelError, match=r"model\.attention = 'sdpa' is not supported .*set it to 'eager'"):
        loaded(tmp_path / "model")
    assert loaded(tmp_path / "model", attention="eager").head.softcap == GEMMA2["final_logit_softcapping"]


def test_dropout_is_gone_even_in_training_mode(tmp_path: Path) -> None:
    tokenizer = character_tokenizer()
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.5, resid_pdrop=0.5,
        embd_pdrop=0.5, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = loaded(tmp_path)
    assert not policy.model.training
    packed = packed_of(some_samples())
    before = token_logprobs(policy, packed).logp
    policy.model.train()
    assert torch.equal(token_logprobs(policy, packed).logp, before)
    before.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())
    save_policy(policy, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["resid_pdrop"] == 0.5


def test_stop_ids_come_from_three_places(folder: Path) -> None:
    assert loaded(folder).stop_ids == (1,)
    rewrite("generation_config.json", eos_token_id=[1, 7])(folder)
    assert loaded(folder).stop_ids == (1, 7)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}"
        "{% if m['role'] == 'assistant' %}\n<turn>\n{% endif %}{% endfor %}"
    )
    policy = loaded(folder)
    assert Policy(policy.model, tokenizer, policy.config, policy.device).stop_ids == (1, 7, 99)
    tokenizer.chat_template = "{{ raise_exception('only for robots') }}"
    assert Policy(policy.model, tokenizer, policy.config, policy.device).stop_ids == (1, 7)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }} over.{% endfor %}"  # ends turns with plain words
    )
    assert Policy(policy.model, tokenizer, policy.config, policy.device).stop_ids == (1, 7)


def test_a_model_of_another_size_is_refused_before_it_takes_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was allocated")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    seven_billion = transformers.LlamaConfig().to_dict()
    for changes in (seven_billion, seven_billion | {"vocab_size": 99, "hidden_size": 96, "intermediate_size": 256}):
        rewrite("config.json", **changes)(folder)
        with pytest.raises(ModelError, match=r"the weights do not fit config\.json"):
            loaded(folder)


def test_a_tokenizer_without_an_end_takes_the_end_that_the_model_names(folder: Path) -> None:
    rewrite("tokenizer_config.json", eos_token=None)(folder)
    assert AutoTokenizer.from_pretrained(folder).eos_token_id is None
    policy = loaded(folder)
    assert (policy.tokenizer.eos_token_id, policy.tokenizer.eos_token) == (1, "<eos>")
    (folder / "generation_config.json").unlink()
    assert loaded(folder).tokenizer.eos_token_id == 1


def test_context(folder: Path) -> None:
    assert load_policy(ModelConfig()).context == loaded(folder).context == 256
    assert Policy(build("gpt2"), character_tokenizer(), ModelConfig(), torch.device("cpu")).context == 64
    mamba = Policy(build("mamba"), character_tokenizer(), ModelConfig(), torch.device("cpu"))
    assert mamba.context == 256  # config.json knows no limit, the tokenizer does
    mamba.tokenizer.model_max_length = 10**30
    with pytest.raises(ModelError, match="no max_position_embeddings"):
        _ = mamba.context


def test_a_copy_is_frozen_and_stays_as_it_was() -> None:
    policy = load_policy(ModelConfig())
    reference = policy.copy()
    assert reference.checksum() == policy.checksum()
    packed = packed_of(some_samples())
    before = token_logprobs(reference, packed).logp
    assert not before.requires_grad
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.5)
    assert reference.head is not None and reference.head.weight is reference.model.lm_head.weight
    assert torch.equal(token_logprobs(reference, packed).logp, before)
    assert not torch.equal(token_logprobs(policy, packed).logp.detach(), before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_checksum_sees_every_single_value(dtype: str) -> None:
    policy = load_policy(ModelConfig(dtype=dtype))
    seen = {policy.checksum()}
    parameters = list(policy.model.parameters())
    for parameter in parameters:
        flat = parameter.data.view(-1)
        flat[len(flat) // 2] = torch.nextafter(flat[len(flat) // 2], torch.tensor(9.0, dtype=flat.dtype))
        seen.add(policy.checksum())
    assert len(seen) == len(parameters) + 1
    assert policy.checksum() == policy.checksum()
