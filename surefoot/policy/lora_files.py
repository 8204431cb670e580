"""Adapters in files, in the format of PEFT: ``adapter_config.json`` and ``adapter_model.safetensors``.

What is written here, ``peft.PeftModel.from_pretrained`` reads, and the other way round. PEFT knows many variants of an
adapter; one that computes something else than W x + s B A x is refused by the key that asks for it.

An adapter means nothing without its base, and PEFT keeps only the base's name. A third file, ``base.json``, which PEFT does not
read, holds a hash of the base's weights, so that another base does not go unnoticed.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from surefoot.errors import ModelError
from surefoot.policy.lora import LoraSpec, adapt, adapters, base_parameters, linear_layers, sizes
from surefoot.policy.policy import digest_of

CONFIG, WEIGHTS, BASE = "adapter_config.json", "adapter_model.safetensors", "base.json"
NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<factor>[AB])\.weight")
# Keys that do not change what a finished adapter computes, or that are read here. Any other must be unset.
UNDERSTOOD = frozenset(
    {
        "peft_type",
        "task_type",
        "auto_mapping",
        "peft_version",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "r",
        "lora_alpha",
        "use_rslora",
        "lora_dropout",
        "fan_in_fan_out",
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "init_lora_weights",
        "bias",
        "runtime_config",
        "megatron_core",
        "qalora_group_size",
        "ensure_weight_tying",
    }
)
# Starts that leave the base as it is; the others (PiSSA, OLoRA, LoftQ ...) take something away from it.
STARTS = (True, False, "gaussian", "eva", "orthogonal")


def save_adapter(model: Any, folder: Path, base: str) -> None:
    """Write the adapters of a model into a folder that is there.

    Args:
        model: a model with adapters.
        folder: where the files go.
        base: what the adapters belong to: a folder or a hub name.
    """
    layers = adapters(model)
    spec = next(iter(layers.values())).spec
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": spec.rank,
        "lora_alpha": int(spec.alpha) if spec.alpha == int(spec.alpha) else spec.alpha,
        "use_rslora": spec.rslora,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(layer.transposed for layer in layers.values()),
        "target_modules": targets(model),
    }
    (folder / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
    weights = {
        f"base_model.model.{name}.lora_{letter}.weight": factor.detach().contiguous()
        for name, layer in layers.items()
        for letter, factor in zip("AB", layer.factors, strict=True)
    }
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    kept = {id(parameter) for parameter in base_parameters(model)}
    found = [(name, parameter) for name, parameter in model.named_parameters() if id(parameter) in kept]
    (folder / BASE).write_text(json.dumps(describe_base(found, base), indent=2) + "\n")


def describe_base(parameters: Sequence[tuple[str, Tensor]], name: str) -> dict[str, str]:
    """What ``base.json`` holds: the model's name, the type of its weights and their hash, which depends on that type."""
    return {"model": name, "dtype": str(parameters[0][1].dtype), "weights": digest_of(parameters)}


def targets(model: Any) -> list[str]:
    """What names the adapted layers and no others: the last parts of their names, or where these say too much, the whole."""
    adapted = adapters(model)
    last = {name.rsplit(".", 1)[-1] for name in adapted}
    others = [name for name, _ in model.named_modules() if name not in adapted]
    ambiguous = any(name.rsplit(".", 1)[-1] in last for name in others)
    return list(adapted) if ambiguous else sorted(last)


def load_adapter(model: Any, path: str, base: str = "") -> None:
    """Give a model the adapters of a folder.

    Args:
        model: without adapters.
        path: the folder.
        base: what the model is called (``model.path``); a warning says where the adapters were trained on another one.

    Raises:
        ModelError: files that are missing or malformed, a variant of LoRA that is not understood, layers that the model
            does not have or has in another size.
    """
    folder, where = Path(path).expanduser(), f"model.lora.path = '{path}'"
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise ModelError(f"{where} has no {file}: give a folder that holds an adapter in PEFT's format")
    spec = read_spec(folder, where)
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ModelError(f"{where}: {WEIGHTS} cannot be read ({error})") from error
    factors = read_factors(weights, where)
    linear = linear_layers(model)
    for name, pair in factors.items():
        check_layer(name, pair, linear.get(name), spec, where, type(model).__name__)
    if trained_on := other_base(model, folder, base):
        warnings.warn(
            f"{where} was trained on {trained_on}, and model.path = '{base}' is not that model: its product is added to weights "
            "that it was not made for (to those of a merged model a second time): name its own base as model.path",
            UserWarning,
            stacklevel=2,
        )
    # In the order of the model, as new adapters are: what a run state holds does not depend on the order in a file.
    for name, layer in adapt(model, spec, [name for name in linear if name in factors]).items():
        with torch.no_grad():
            for letter, factor in zip("AB", layer.factors, strict=True):
                factor.copy_(factors[name][letter])


def other_base(model: Any, folder: Path, base: str) -> str:
    """What the adapter of a folder was trained on, where that is not this model; else nothing.

    Weights decide where the folder has their hash, in the type that they have here; otherwise the last part of the names
    does, since the same model lies in many places.
    """
    try:
        held = json.loads((folder / BASE).read_text(encoding="utf-8"))
        name, dtype, weights = (str(held[key]) for key in ("model", "dtype", "weights"))
    except (OSError, ValueError, KeyError, TypeError):
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        name, dtype, weights = str(settings.get("base_model_name_or_path") or ""), "", ""
    here = list(model.named_parameters())
    if here[0][1].dtype == getattr(torch, dtype.removeprefix("torch."), None):
        if digest_of(here) == weights:
            return ""
        return f"other weights of '{name}'" if name == base else f"'{name}'"
    return f"'{name}'" if name and base and Path(name).name != Path(base).name else ""


def read_spec(folder: Path, where: str) -> LoraSpec:
    """Rank and factor, where the rest of the settings asks for nothing else."""
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kind, rank, alpha = settings["peft_type"], settings["r"], settings["lora_alpha"]
        spec = LoraSpec(int(rank), float(alpha), bool(settings.get("use_rslora", False)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{where}: {CONFIG} is malformed ({type(error).__name__}: {error})") from error
    asked = [name for name, value in settings.items() if value and name not in UNDERSTOOD]
    asked += ["bias"] * (settings.get("bias", "none") != "none")
    asked += ["init_lora_weights"] * (settings.get("init_lora_weights", True) not in STARTS)
    if kind != "LORA" or asked or spec.rank < 1:
        what = f"{asked[0]} = {settings[asked[0]]!r}" if asked else f"peft_type = '{kind}' with r = {rank}"
        raise ModelError(
            f"{where}: {CONFIG} says {what}: expected plain LoRA, adapters of one rank on linear layers and nothing beside "
            f"them; merge the adapter into its base with PEFT and give that as model.path"
        )
    return spec


def read_factors(weights: dict[str, Tensor], where: str) -> dict[str, dict[str, Tensor]]:
    """For each layer its A and B, by these letters."""
    factors: dict[str, dict[str, Tensor]] = {}
    for key, value in weights.items():
        parts = NAME.fullmatch(key)
        if parts is None:
            raise ModelError(
                f"{where}: {WEIGHTS} holds {key}: expected nothing but base_model.model.*.lora_A and lora_B"
            )
        factors.setdefault(parts["layer"], {})[parts["factor"]] = value
    if not factors:
        raise ModelError(f"{where}: {WEIGHTS} is empty")
    return factors


def check_layer(name: str, pair: dict[str, Tensor], layer: Any, spec: LoraSpec, where: str, model: str) -> None:
    if layer is None:
        raise ModelError(
            f"{where} has an adapter for {name}, which is not a linear layer of {model} or is its output embedding: name the "
            f"model that the adapter belongs to as model.path"
        )
    inner, outer = sizes(layer)
    found = {letter: tuple(value.shape) for letter, value in pair.items()}
    if found != {"A": (spec.rank, inner), "B": (outer, spec.rank)}:
        raise ModelError(
            f"{where}: the adapter of {name} has the shapes {found}, expected A ({spec.rank}, {inner}) and B ({outer}, "
            f"{spec.rank}): name the model that the adapter belongs to as model.path"
        )
