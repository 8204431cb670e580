"""What two of the bases are made of: a file of additions with idle characters, and a small mixture-of-experts model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from surefoot.files import write_atomic, write_folder_atomic
from surefoot.policy.embedded import CONTEXT, character_tokenizer
from surefoot.policy.quiet import quiet
from surefoot.seeds import derive, generator
from surefoot.tasks.build import build_task
from surefoot.tasks.config import TaskConfig
from surefoot.types import Prompt

IDLE = "."
MOST_IDLE = 12
MISTAKES = 0.1
FILLER_BUDGET = (
    32  # a worked solution has 20 to 22 characters and the end, so 10 idle ones are the last that always fit
)


def filler_files(folder: Path) -> tuple[Path, Path]:
    """Two-digit additions worked out after 0 to 12 idle characters, a tenth of them with a mistake; training and held-out.

    How many idle characters there are is drawn apart from everything else, so it says nothing about the answer.
    """
    train, heldout = folder / "filler-train.jsonl", folder / "filler-heldout.jsonl"
    if not (train.exists() and heldout.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        task = build_task(TaskConfig(name="addition", options={"digits": 2}, train_size=4000, heldout_size=192))
        for path, prompts in ((heldout, task.heldout), (train, task.train)):
            lines = [json.dumps(_row(prompt, task.demonstrate)) for prompt in prompts]
            write_atomic(path, "\n".join(lines) + "\n")
    return train, heldout


def _row(prompt: Prompt, demonstrate: Any) -> dict[str, str]:
    idle = int(generator("filler", prompt.prompt_id).integers(MOST_IDLE + 1))
    worked = demonstrate(prompt, 0, MISTAKES)
    return {"prompt": prompt.text, "answer": prompt.answer, "completion": IDLE * idle + worked}


def experts_config(**changes: Any) -> Qwen3MoeConfig:
    """Two layers of width 64 with eight experts each, two of them for a token (Qwen3-MoE, without shared experts)."""
    tokenizer = character_tokenizer()
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "max_position_embeddings": CONTEXT,
        "initializer_range": 64**-0.5,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return Qwen3MoeConfig(**values | changes)


def experts_model(folder: Path, seed: int = 0) -> Path:
    """A mixture-of-experts model from random weights with the character tokenizer, in Hugging Face layout."""
    path = folder / f"experts-{seed}"

    def fill(where: Path) -> None:
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "experts"))
            Qwen3MoeForCausalLM(experts_config()).save_pretrained(where)
        character_tokenizer().save_pretrained(where)

    if not (path / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_folder_atomic(path, fill)
    return path
