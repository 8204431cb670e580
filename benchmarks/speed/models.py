"""The models that are measured, as folders in Hugging Face layout.

=======  ===============================================================================================================
tiny     the embedded model (0.23 million parameters, 99 tokens), warmed up on addition as in the demonstration
small    2.9 million parameters, 512 tokens, random weights; 13 tokens end an answer, so that about one in forty does
smollm2  SmolLM2-135M-Instruct
wide     a narrow model with a vocabulary of 150,000 tokens, for memory
=======  ===============================================================================================================
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

NAMES = ("tiny", "small", "smollm2", "wide")
ENDS = 13


def make(name: str, root: Path) -> Path:
    """The folder of a model, which is made where it is not there yet."""
    if name == "smollm2":
        from surefoot.policy.smollm2 import smollm2_folder

        return smollm2_folder()
    folder = root / name
    if not (folder / "config.json").exists():
        {"tiny": _tiny, "small": _small, "wide": _wide}[name](folder)
    return folder


def _tiny(folder: Path) -> None:
    from surefoot.methods.demo import warm_up_config
    from surefoot.training.sft import sft

    work = folder.with_name(".warm-up")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sft(warm_up_config(work, seed=0)).model, folder)
    shutil.rmtree(work)


def _small(folder: Path) -> None:
    _random(
        folder,
        words=512,
        hidden_size=256,
        intermediate_size=576,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )


def _wide(folder: Path) -> None:
    _random(
        folder,
        words=150_000,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )


def _random(folder: Path, *, words: int, **shape: Any) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=words, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1, **shape)
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = [1, *range(words - ENDS + 1, words)]
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    tokenizer(words).save_pretrained(folder)


def tokenizer(words: int) -> Any:
    """One token a character; the rest of the vocabulary is written as numbers in angle brackets and never read."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    from surefoot.policy.embedded import CHARACTERS, EOS, PAD, UNKNOWN

    names = [PAD, EOS, UNKNOWN, *CHARACTERS]
    names += [f"<{number}>" for number in range(len(names), words)]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token=UNKNOWN))
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
