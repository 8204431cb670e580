"""Low-rank adapters: a projection W x becomes W x + s B A x, and only A and B learn.

"LoRA: Low-Rank Adaptation of Large Language Models" (arXiv 2106.09685). A is [r, in] and starts at random, B is [out, r]
and starts at zero, so that the policy starts as the model that it was loaded from. The factor s is alpha / r, or
alpha / sqrt(r), which keeps the size of the update the same at every rank ("A Rank Stabilization Scaling Factor for
Fine-Tuning with LoRA", arXiv 2312.03732). There is no dropout: with it, a policy's ratio to itself would not be 1.

The base is frozen and never written to, so a reference policy or a critic shares it and has nothing but adapters of its
own (:func:`copy_of`), and the weights that others read are made beside it (:func:`merged`), never in its place.

The output embedding takes no adapter: log-probabilities are computed in chunks from its weight itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from surefoot.config import nearest
from surefoot.errors import ModelError
from surefoot.seeds import derive

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraSpec:
    """What all adapters of a model have in common.

    Attributes:
        rank: r, columns of B and rows of A.
        alpha: numerator of the factor s.
        rslora: whether s is ``alpha / sqrt(rank)`` instead of ``alpha / rank``.
    """

    rank: int
    alpha: float
    rslora: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


class Adapted(nn.Module):
    """A linear layer with an adapter, in the layer's place and with its parameters under their names.

    A and B are float32 whatever the layer's dtype: steps of a small learning rate would be lost in bfloat16. They are
    turned into the dtype of the activations where they are multiplied.

    Args:
        base: an ``nn.Linear``, or the ``Conv1D`` of Transformers (GPT-2), which keeps its weight as [in, out].
        spec: rank and factor.
    """

    def __init__(self, base: nn.Linear | Conv1D, spec: LoraSpec) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self.transposed, self.spec = isinstance(base, Conv1D), spec
        inner, outer = sizes(base)
        where: dict[str, Any] = {"bias": False, "device": base.weight.device, "dtype": torch.float32}
        self.lora_A = nn.utils.skip_init(nn.Linear, inner, spec.rank, **where)
        self.lora_B = nn.utils.skip_init(nn.Linear, spec.rank, outer, **where)
        nn.init.zeros_(self.lora_B.weight)

    @property
    def factors(self) -> tuple[nn.Parameter, nn.Parameter]:
        """A [r, in] and B [out, r]."""
        return self.lora_A.weight, self.lora_B.weight

    def forward(self, x: Tensor) -> Tensor:
        made = functional.linear(x, self.weight.t() if self.transposed else self.weight, self.bias)
        down, up = self.factors
        low = functional.linear(x, down.to(x.dtype)) * self.spec.scale
        return made + functional.linear(low, up.to(low.dtype))

    @torch.no_grad()
    def merged(self) -> nn.Linear | Conv1D:
        """A layer of the base's kind with the weight W + s B A, computed in float32; it shares the bias."""
        down, up = (factor.detach() for factor in self.factors)
        wide = self.weight.detach().to(torch.promote_types(self.weight.dtype, torch.float32), copy=True)
        (wide.t() if self.transposed else wide).addmm_(up.to(wide.dtype), down.to(wide.dtype), alpha=self.spec.scale)
        outer, inner = len(up), down.shape[1]
        with torch.device("meta"):
            made = Conv1D(outer, inner) if self.transposed else nn.Linear(inner, outer)
        made.weight, made.bias = nn.Parameter(wide.to(self.weight.dtype), requires_grad=False), self.bias
        return made


def sizes(layer: nn.Linear | Conv1D) -> tuple[int, int]:
    """Features that go in, and that come out."""
    first, second = layer.weight.shape
    return (first, second) if isinstance(layer, Conv1D) else (second, first)


def attach(model: Any, spec: LoraSpec, targets: Sequence[str], seed: int) -> None:
    """Freeze a model and give the named linear layers adapters, B at zero.

    Args:
        model: a Transformers model without adapters.
        spec: rank and factor.
        targets: last parts of the layers' names (``q_proj``) or whole names, or ``("all-linear",)``: every linear layer
            but the output embedding.
        seed: of A, drawn layer by layer; the global random state is left as it was.

    Raises:
        ModelError: a target that no linear layer is called, that is the output embedding, or whose weight the model reads
            without calling it.
    """
    for name, layer in adapt(model, spec, chosen(model, targets)).items():
        down, _ = layer.factors
        draw = torch.Generator().manual_seed(derive(seed, "adapter", name))
        bound = down.shape[1] ** -0.5
        with torch.no_grad():
            down.copy_(torch.empty(down.shape).uniform_(-bound, bound, generator=draw))


def adapt(model: Any, spec: LoraSpec, names: Collection[str]) -> dict[str, Adapted]:
    """Freeze a model and put adapters into the layers of these names; A is left for the caller to fill.

    Raises:
        ModelError: a layer that the model does not call.
    """
    model.requires_grad_(False)
    made = {}
    for name in names:
        made[name] = Adapted(model.get_submodule(name), spec)
        model.set_submodule(name, made[name])
    refuse_unused(model, made)
    return made


def refuse_unused(model: Any, layers: Mapping[str, Adapted]) -> None:
    """A model that reads a layer's weight instead of calling it (Mamba's ``dt_proj``) would pass the adapter by."""
    called: set[nn.Module] = set()
    hooks = [layer.register_forward_pre_hook(lambda module, _: called.add(module)) for layer in layers.values()]
    embedding = model.get_input_embeddings().weight
    ids = torch.linspace(0, embedding.shape[0] - 1, 8, device=embedding.device).long()[None]
    try:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    passed = sorted({name.rsplit(".", 1)[-1] for name, layer in layers.items() if layer not in called})
    if passed:
        used = sorted({name.rsplit(".", 1)[-1] for name, layer in layers.items() if layer in called})
        raise ModelError(
            f"{type(model).__name__} does not call its layers {', '.join(passed)} on every token, so that adapters in them "
            f"would do nothing or little: set model.lora.target_modules to others ({', '.join(used)})"
        )


def chosen(model: Any, targets: Sequence[str]) -> list[str]:
    """The names of the layers that the targets mean, in the order of the model."""
    linear = linear_layers(model)
    if ALL_LINEAR in targets:
        return list(linear)
    head = model.get_output_embeddings()
    every = dict(model.named_modules())
    for target in targets:
        found = [name for name in every if fits(name, target)]
        if any(every[name] is head for name in found):
            raise ModelError(
                f"model.lora.target_modules names '{target}', the output embedding, whose weight log-probabilities are "
                f"computed from in chunks: leave it out"
            )
        if not any(name in linear for name in found):
            known = {name.rsplit(".", 1)[-1] for name in linear}
            raise ModelError(
                f"model.lora.target_modules names '{target}', which no linear layer of {type(model).__name__} is "
                f"called.{nearest(target, known)}"
            )
    return [name for name in linear if any(fits(name, target) for target in targets)]


def fits(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def linear_layers(model: Any) -> dict[str, nn.Linear | Conv1D]:
    """The layers that can take an adapter, by name. Subclasses may do something else with their weight."""
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) in (nn.Linear, Conv1D) and module is not head
    }


def adapters(model: nn.Module) -> dict[str, Adapted]:
    """The layers with an adapter, by name; empty for a model without."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Adapted)}


def base_parameters(module: nn.Module) -> list[nn.Parameter]:
    """What adapters leave as it is: the parameters of every Transformers model with adapters, but for the adapters."""
    kept = []
    for model in module.modules():
        if isinstance(model, PreTrainedModel) and (layers := adapters(model)):
            own = {id(factor) for layer in layers.values() for factor in layer.factors}
            kept += [parameter for parameter in model.parameters() if id(parameter) not in own]
    return kept


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters by name, tied ones once, without the base under adapters: what a run changes and its state holds."""
    base = {id(parameter) for parameter in base_parameters(module)}
    return {name: parameter for name, parameter in module.named_parameters() if id(parameter) not in base}


def copy_of(model: Any) -> Any:
    """A deep copy of a model; of one with adapters these alone are copied, and the base is shared."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in base_parameters(model)})


def merged(model: Any) -> Any:
    """The model with its adapters in its weights: the same class, sharing all but the adapted layers.

    A model without adapters is returned as it is.
    """
    return _merged(model) if adapters(model) else model


def _merged(module: nn.Module) -> nn.Module:
    if isinstance(module, Adapted):
        return module.merged()
    made = copy.copy(module)
    made._modules = {name: None if part is None else _merged(part) for name, part in module._modules.items()}
    return made
