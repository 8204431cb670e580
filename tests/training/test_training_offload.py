"""An AdamW whose state lies on the host takes the steps of one that has it beside the weights.

Device and host are the same memory here, which proves the arithmetic and the state, not the transfers; those are checked
by ``benchmarks/gpu.sh`` on a GPU.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from surefoot.training.config import OptimiserConfig
from surefoot.training.loop import train
from surefoot.training.offload import OffloadedAdamW
from surefoot.training.optimiser import make_optimiser, take_step
from tests.training.tiny import digits_reward, tiny


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))


def groups(model: nn.Module) -> list[dict[str, Any]]:
    matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) == wide] for wide in (True, False))
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


OPTIONS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "fused": True}


def steps(model: nn.Module, optimiser: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        data = torch.randn(5, 4, generator=torch.Generator().manual_seed(number))
        part = model[0](data) if number == 1 else model(data)  # at one step most weights have no gradient
        part.square().sum().backward()
        take_step(optimiser, model, lr=1e-2 / (1 + number), max_grad_norm=0.5)


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def equal(have: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(have, want, strict=True))


def test_steps_are_those_of_adamw_bit_for_bit() -> None:
    plain, moved = network(), network()
    steps(plain, torch.optim.AdamW(groups(plain), **OPTIONS), range(5))
    optimiser = OffloadedAdamW(groups(moved), **OPTIONS)
    steps(moved, optimiser, range(5))
    assert equal(weights(moved), weights(plain))
    assert not equal(weights(moved), weights(network()))
    mine = {id(parameter) for parameter in moved.parameters()}
    assert not mine & {id(parameter) for parameter in optimiser.state}
    assert all(parameter.grad is None for parameter in moved.parameters())


@pytest.mark.parametrize("to", ["offloaded", "plain"])
@pytest.mark.parametrize("source", ["offloaded", "plain"])
def test_the_state_goes_on_with_or_without_it(source: str, to: str) -> None:
    def made(kind: str, model: nn.Module) -> torch.optim.Optimizer:
        return (OffloadedAdamW if kind == "offloaded" else torch.optim.AdamW)(groups(model), **OPTIONS)

    whole = network()
    steps(whole, torch.optim.AdamW(groups(whole), **OPTIONS), range(6))
    first = network()
    optimiser = made(source, first)
    steps(first, optimiser, range(3))
    second = network()
    other = made(to, second)
    second.load_state_dict(first.state_dict())  # after the optimiser was made: its copies are older
    other.load_state_dict(optimiser.state_dict())
    steps(second, other, range(3, 6))
    assert equal(weights(second), weights(whole))


def test_weights_that_somebody_else_changed_are_the_ones_that_move() -> None:
    model = network()
    optimiser = OffloadedAdamW(groups(model), **OPTIONS)
    steps(model, optimiser, range(2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    steps(model, optimiser, range(2, 3))
    assert all(float((parameter - 7).abs().max()) < 0.1 for parameter in model.parameters())


def test_bfloat16_weights_keep_their_format() -> None:
    plain, moved = network().bfloat16(), network().bfloat16()
    for model, kind in ((plain, torch.optim.AdamW), (moved, OffloadedAdamW)):
        optimiser = kind(groups(model), **OPTIONS)
        for number in range(3):
            data = torch.randn(5, 4, generator=torch.Generator().manual_seed(number)).bfloat16()
            model(data).float().square().sum().backward()
            take_step(optimiser, model, lr=1e-2, max_grad_norm=0.5)
    assert equal(weights(moved), weights(plain))


def test_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="no closure"):
        OffloadedAdamW(groups(network()), **OPTIONS).step(lambda: 0.0)


def test_a_model_on_the_cpu_keeps_the_plain_one_and_is_told() -> None:
    with pytest.warns(UserWarning, match=r"optimiser\.offload = true changes nothing"):
        made = make_optimiser(network(), OptimiserConfig(offload=True))
    assert type(made) is torch.optim.AdamW
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_optimiser(network(), OptimiserConfig())


def test_a_run_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offloaded(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return OffloadedAdamW([{"params": parameters, "weight_decay": 0.0}], **OPTIONS)

    from surefoot.training import loop as loop_module

    plain = train(tiny(tmp_path / "plain"), reward=digits_reward())
    monkeypatch.setattr(loop_module, "make_optimiser", offloaded)
    whole = train(tiny(tmp_path / "whole"), reward=digits_reward())
    train(tiny(tmp_path / "cut", train={"steps": 2}), reward=digits_reward())
    resumed = train(tiny(tmp_path / "cut"), reward=digits_reward(), resume=True)
    read = [(result.model / "model.safetensors").read_bytes() for result in (whole, resumed)]
    assert read[0] == read[1]
    assert plain.summary["updates"] == whole.summary["updates"]
