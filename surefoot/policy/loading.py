"""Load a policy from a folder or by name, and save it in Hugging Face layout."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from surefoot.errors import ModelError, RunFolderError, SurefootError
from surefoot.files import write_folder_atomic
from surefoot.policy import smollm2
from surefoot.policy.autocast import check_autocast
from surefoot.policy.checkpointing import set_checkpointing
from surefoot.policy.compile import set_compile
from surefoot.policy.config import ModelConfig
from surefoot.policy.embedded import fresh_model
from surefoot.policy.export import described
from surefoot.policy.lora import LoraSpec, adapters, attach, merged
from surefoot.policy.lora_files import CONFIG as ADAPTER
from surefoot.policy.lora_files import load_adapter, save_adapter
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
        name_end(model, tokenizer)
        model.to(device=device, dtype=getattr(torch, config.dtype))
        remove_dropout(model)
        if config.checkpointing:
            set_checkpointing(model, config.path)
        add_adapters(model, config)
        if config.compile:
            set_compile(model, config.path, device)
        check_autocast(config.autocast, model.dtype, device)
        policy = Policy(model, tokenizer, config, device)
        rows = model.get_input_embeddings().weight.shape[0]
        if len(tokenizer) > rows:
            raise ModelError(
                f"model.path = '{config.path}': the tokenizer has {len(tokenizer)} tokens and the model's embedding "
                f"{rows}: they belong to different models"
            )
        # Found here, so that a model that cannot run or stop fails while it is loaded.
        _ = policy.head, policy.stop_ids
    return policy


def save_policy(policy: Policy, folder: Path, stop_ids: Collection[int] = ()) -> None:
    """Write model and tokenizer in Hugging Face layout (safetensors), whole or not at all.

    An older model in the folder is replaced. Of a policy with adapters the merged weights are written, and the adapters
    alone, in PEFT's format, into the folder ``adapter`` within. The configuration files say what ends a completion, see
    :mod:`surefoot.policy.export`.

    Args:
        policy: what is saved.
        folder: is made.
        stop_ids: tokens that ended completions beside those that the policy knows of.

    Raises:
        RunFolderError: a full disk, no permission, or a folder that holds something other than a model.
    """
    if folder.exists() and not (folder / "config.json").exists() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} holds something that is not a model and would be removed: name another folder")

    def fill(target: Path) -> None:
        model = described(merged(policy.model), policy.tokenizer, {*policy.stop_ids, *stop_ids})
        model.save_pretrained(target)
        policy.tokenizer.save_pretrained(target)
        if adapters(policy.model):
            (target / "adapter").mkdir()
            save_adapter(policy.model, target / "adapter", policy.config.path)
            model.generation_config.save_pretrained(target / "adapter")

    with quiet():
        write_folder_atomic(folder, fill)


def add_adapters(model: Any, config: ModelConfig) -> None:
    """The adapters that the configuration asks for, read from a folder or new; the model's own weights are then frozen."""
    lora = config.lora
    if lora.path is not None:
        load_adapter(model, lora.path, config.path)
    elif lora.rank:
        attach(model, LoraSpec(lora.rank, lora.alpha, lora.rslora), lora.target_modules, config.seed)


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
    source = find_source(config)
    tokenizer = read_tokenizer(source, config)
    return read_model(source, config), tokenizer


def find_source(config: ModelConfig) -> str | Path:
    """The folder of a model that is one, else its name."""
    folder = smollm2.smollm2_folder() if config.path == smollm2.NAME else Path(config.path).expanduser()
    if folder.exists() or looks_local(config.path):
        check_folder(config.path, folder)
        return folder
    return config.path


def load_tokenizer(config: ModelConfig) -> Any:
    """The tokenizer alone of a model that is a folder or a name.

    Raises:
        ModelError: as for :func:`load_policy`.
    """
    with quiet(), told(f"model.path = '{config.path}'"):
        return read_tokenizer(find_source(config), config)


def read_tokenizer(source: str | Path, config: ModelConfig) -> Any:
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except OSError as error:
        if isinstance(source, Path):
            raise
        raise ModelError(
            f"model.path = '{config.path}' is neither a folder nor a model of the Hugging Face hub that can be reached "
            f"from here ({one_line(error)})"
        ) from error
    except (ValueError, KeyError) as error:
        raise ModelError(f"model.path = '{config.path}': its tokenizer cannot be read ({one_line(error)})") from error


def read_model(source: str | Path, config: ModelConfig) -> Any:
    """The model, with every weight that is in the files and no other.

    Transformers would make up those that are missing, and leave out those that it does not need.
    """
    try:
        if isinstance(source, Path):
            check_size(source, config)
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
    for key, trouble in (
        ("missing_keys", "missing"),
        ("mismatched_keys", "of another shape"),
        ("unexpected_keys", "not part of its model"),
    ):
        refuse_weights(config, trouble, [str(name[0] if isinstance(name, tuple) else name) for name in report[key]])
    return model


def refuse_weights(config: ModelConfig, trouble: str, names: Sequence[str]) -> None:
    if names:
        raise ModelError(
            f"model.path = '{config.path}': the weights do not fit config.json: {len(names)} are {trouble}, "
            f"the first is {min(names)}"
        )


def check_size(folder: Path, config: ModelConfig) -> None:
    """Compare the model that config.json describes with the headers of the weights, before any memory is taken.

    Names may differ between files and model (Transformers renames some), so that only weights of one name are compared
    by shape, and all together by their number.

    Raises:
        ModelError: a weight of another shape, or a model of more than twice the size of the weights.
    """
    described = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    layers = getattr(described.get_text_config(), "num_hidden_layers", None)
    if isinstance(layers, int) and layers < 1:
        raise ModelError(
            f"model.path = '{config.path}': config.json says num_hidden_layers = {layers}: expected 1 or more"
        )
    held: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            held |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    if not held:
        return
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            described, attn_implementation=config.attention, trust_remote_code=False
        )
    needed = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    size, there = (sum(math.prod(shape) for shape in shapes.values()) for shapes in (needed, held))
    prefix = f"{model.base_model_prefix}."  # which files of a model without its head lack
    held |= {prefix + name: shape for name, shape in held.items() if prefix + name in needed}
    refuse_weights(
        config, "of another shape", [name for name, shape in needed.items() if held.get(name, shape) != shape]
    )
    if size > 2 * there and getattr(described, "quantization_config", None) is None:
        raise ModelError(
            f"model.path = '{config.path}': the weights do not fit config.json: it describes a model of {size:,} "
            f"parameters, and the files hold {there:,}"
        )


def name_end(model: Any, tokenizer: Any) -> None:
    """A tokenizer without an end-of-sequence token takes the one that the model's own configuration names."""
    if tokenizer.eos_token_id is not None:
        return
    for settings in (getattr(model, "generation_config", None), model.config.get_text_config()):
        named = getattr(settings, "eos_token_id", None)
        first = named[0] if isinstance(named, (list, tuple)) and named else named
        if isinstance(first, int) and 0 <= first < len(tokenizer):
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(first)
            return


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
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        raise ModelError(f"model.path = '{path}' is an adapter: give it as model.lora.path, and its base as model.path")
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
