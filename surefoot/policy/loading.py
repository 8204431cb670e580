"""Load a policy from a folder or by name, and save it in Hugging Face layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.errors import ModelError, RunFolderError, SurefootError
from surefoot.files import write_folder_atomic
from surefoot.policy import smollm2
from surefoot.policy.config import ModelConfig
from surefoot.policy.embedded import fresh_model
from surefoot.policy.policy import Policy
from surefoot.policy.quiet import quiet

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")

__all__ = ["Policy", "load_policy", "save_policy"]


def load_policy(config: ModelConfig) -> Policy:
    """Load the model and the tokenizer that the configuration names.

    The model is in evaluation mode and has no dropout, so that a log-probability computed twice is the same number;
    gradients flow all the same.

    Raises:
        ModelError: a folder or name that is not there, malformed files, no tokenizer, a device that is not there.
        MissingExtraError: ``model.path`` names a model whose package is not installed.
    """
    device = find_device(config.device)
    with quiet(), told(f"model.path = '{config.path}'"):
        model, tokenizer = fresh(config) if config.path == "embedded" else read(config)
        model.to(device=device, dtype=getattr(torch, config.dtype))
        remove_dropout(model)
        policy = Policy(model, tokenizer, config, device)
        rows = model.get_input_embeddings().weight.shape[0]
        if len(tokenizer) > rows:
            raise ModelError(
                f"model.path = '{config.path}': the tokenizer has {len(tokenizer)} tokens and the model's embedding "
                f"{rows}: they belong to different models"
            )
        _ = policy.head  # proved here, so that a model that cannot run fails while it is loaded
    return policy


def save_policy(policy: Policy, folder: Path) -> None:
    """Write model and tokenizer in Hugging Face layout (safetensors), whole or not at all.

    An older model in the folder is replaced.

    Raises:
        RunFolderError: a full disk, no permission, or a folder that holds something other than a model.
    """
    if folder.exists() and not (folder / "config.json").exists() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} holds something that is not a model and would be removed: name another folder")

    def fill(target: Path) -> None:
        try:
            policy.model.save_pretrained(target)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), str(error)) from error
        policy.tokenizer.save_pretrained(target)

    with quiet():
        write_folder_atomic(folder, fill)


def find_device(name: str) -> torch.device:
    """The device of a configuration; ``"auto"`` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"model.device = '{name}' cannot be used here ({one_line(error)}): set it to 'cpu' or 'auto'"
        ) from error
    return device


def fresh(config: ModelConfig) -> tuple[Any, Any]:
    model, tokenizer = fresh_model(config.seed)
    model.set_attn_implementation(config.attention)
    return model, tokenizer


def read(config: ModelConfig) -> tuple[Any, Any]:
    """Model and tokenizer from a folder or from the hub (or its cache on this machine)."""
    source: str | Path = config.path
    folder = smollm2.smollm2_folder() if config.path == smollm2.NAME else Path(config.path).expanduser()
    if folder.exists() or looks_local(config.path):
        check_folder(config.path, folder)
        source = folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except OSError as error:
        if source is folder:
            raise
        raise ModelError(
            f"model.path = '{config.path}' is neither a folder nor a model of the Hugging Face hub that can be reached "
            f"from here ({one_line(error)})"
        ) from error
    except (ValueError, KeyError) as error:
        raise ModelError(f"model.path = '{config.path}': its tokenizer cannot be read ({one_line(error)})") from error
    return read_model(source, config), tokenizer


def read_model(source: str | Path, config: ModelConfig) -> Any:
    """The model, every weight of which is in the files (Transformers would make up those that are not)."""
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, config.dtype),
            attn_implementation=config.attention,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, which names them
        )
    except ValueError as error:
        if "attention implementation" not in str(error):
            raise
        raise ModelError(
            f"model.attention = '{config.attention}' is not supported by the model '{config.path}': set it to 'eager'"
        ) from error
    model, report = loaded
    for key, trouble in (("missing_keys", "missing"), ("mismatched_keys", "of another shape")):
        names = sorted(str(name[0] if isinstance(name, tuple) else name) for name in report[key])
        if names:
            raise ModelError(
                f"model.path = '{config.path}': the weights do not fit config.json: {len(names)} are {trouble}, "
                f"the first is {names[0]}"
            )
    return model


def looks_local(path: str) -> bool:
    """Whether a path that does not exist was meant as a folder, not as ``name`` or ``owner/name`` of the hub."""
    parts = Path(path).parts
    return path.startswith((".", "/", "~")) or path.endswith("/") or len(parts) > 2 or Path(parts[0]).is_dir()


def check_folder(path: str, folder: Path) -> None:
    """What Transformers would say less clearly, or only after a long search."""
    if not folder.exists():
        raise ModelError(f"model.path = '{path}' does not exist: give a folder in Hugging Face layout or a hub name")
    if not folder.is_dir():
        raise ModelError(f"model.path = '{path}' is a file: give the folder that holds config.json and the weights")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model.path = '{path}' has no config.json: give a folder in Hugging Face layout")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(f"model.path = '{path}' has no tokenizer: save one into it (tokenizer.save_pretrained)")


def remove_dropout(model: torch.nn.Module) -> None:
    """Dropout makes the ratio of a policy to itself differ from 1. Modules forget theirs; ``config.json`` keeps it."""
    for module in model.eval().modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


@contextmanager
def told(subject: str) -> Iterator[None]:
    """One line for whatever Transformers raises about files that it did not write."""
    try:
        yield
    except SurefootError:
        raise
    except Exception as error:
        raise ModelError(f"{subject} cannot be loaded: {type(error).__name__}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The first sentences of a message, on one line of at most 240 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 240 else text[:237] + "..."
