"""Run states: what was saved comes back bit for bit, whatever parts a run has; what does not fit is refused untouched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from surefoot.errors import RunFolderError
from surefoot.policy.config import ModelConfig
from surefoot.policy.loading import load_policy
from surefoot.rewards.base import Reward
from surefoot.tasks.base import Task
from surefoot.training import resume
from surefoot.training import state as states
from surefoot.training.config import CheckpointConfig
from surefoot.training.state import RunState
from tests.training.tiny import digits_reward

Modules = dict[str, nn.Module]
Optimisers = dict[str, torch.optim.Optimizer]
PLAIN = ["model.safetensors", "optimiser.safetensors", "state.json"]
ALL = ["critic.safetensors", "critic_optimiser.safetensors", *PLAIN[:1], PLAIN[1], "reference.safetensors", PLAIN[2]]
STATE = RunState(
    step=7,
    updates=21,
    cursor=40,
    memory={"baseline": 0.1 + 0.2},
    first_entropy=1 / 3,
    best=0.5,
    best_step=4,
    warned=["truncated"],
    history={"0": [8, 3], "17": [16, 0]},
    reset_step=6,
    exhausted=True,
    reference_step=5,
    resets=2,
    task="t",
    model="m",
    reward="r",
)
COUNTERS = {name: value for name, value in vars(STATE).items() if name not in ("task", "model", "reward", "settings")}


class Tied(nn.Module):
    """A parameter under two names, one that is frozen, and one in half precision."""

    def __init__(self, seed: int, width: int = 5) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.inside = nn.Linear(width, 3, bias=False)
        self.outside = nn.Linear(width, 3)
        self.low = nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random))
        self.outside.weight = self.inside.weight
        self.frozen = nn.Parameter(torch.full((2,), float(seed)), requires_grad=False)


def some_parts(seed: int, *names: str, width: int = 5) -> tuple[Modules, Optimisers]:
    """Modules with weights of the seed; those that learn have taken steps with an AdamW of two groups."""
    modules: Modules = {name: Tied(10 * seed + i, width) for i, name in enumerate(names)}
    optimisers: Optimisers = {name: adamw(modules[name]) for name in names if name != "reference"}
    for name, optimiser in optimisers.items():
        advance(modules[name], optimiser, 2 + seed)
    return modules, optimisers


def adamw(module: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim <= 1]},
    ]
    return torch.optim.AdamW(groups, lr=1e-2, fused=True)


def advance(module: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 0.01 / (step + 3)
        sum((p.float() ** 3).sum() for p in module.parameters() if p.requires_grad).backward()
        optimiser.step()
        optimiser.zero_grad()


def bits(modules: Modules, optimisers: Optimisers) -> dict[str, Any]:
    """Everything in them, as it can be compared."""
    found: dict[str, Any] = {}
    for name, module in modules.items():
        for key, parameter in module.named_parameters():
            found[f"{name}.{key}"] = parameter.detach().clone().view(torch.uint8).tolist()
    for name, optimiser in optimisers.items():
        values = optimiser.state_dict()
        found[f"{name}: groups"] = json.loads(json.dumps(values["param_groups"]))  # betas may be a list or a tuple
        for index, moments in values["state"].items():
            found |= {f"{name}: {index}.{key}": torch.as_tensor(v).tolist() for key, v in moments.items()}
    return found


def saved(folder: Path, *names: str, seed: int = 1, step: int = 7, width: int = 5) -> Path:
    states.save(folder, RunState(**{**vars(STATE), "step": step}), *some_parts(seed, *names, width=width))
    return folder / f"step-{step:06d}"


@pytest.mark.parametrize(
    "names",
    [("model",), ("model", "critic"), ("model", "reference"), ("model", "critic", "reference")],
)
def test_what_was_saved_comes_back_bit_for_bit(names: tuple[str, ...], tmp_path: Path) -> None:
    written, read = some_parts(1, *names), some_parts(2, *names)
    states.save(tmp_path, STATE, *written)
    assert bits(*read) != bits(*written)
    state, held = states.load(tmp_path / "step-000007", *read)
    assert state == STATE and held == set(names)
    assert bits(*read) == bits(*written)
    for modules, optimisers in (written, read):  # and they go on alike
        for name, optimiser in optimisers.items():
            advance(modules[name], optimiser, 3)
    assert bits(*read) == bits(*written)


def test_an_optimiser_that_has_not_stepped_comes_back_empty(tmp_path: Path) -> None:
    module = Tied(1)
    states.save(tmp_path, STATE, {"model": module}, {"model": adamw(module)})
    modules, optimisers = some_parts(2, "model")
    states.load(tmp_path / "step-000007", modules, optimisers)
    assert optimisers["model"].state_dict()["state"] == {}


def test_files_by_the_parts_that_a_run_has(tmp_path: Path) -> None:
    plain = saved(tmp_path, "model")
    assert sorted(file.name for file in plain.iterdir()) == PLAIN
    everything = saved(tmp_path, "model", "critic", "reference", step=8)
    assert sorted(file.name for file in everything.iterdir()) == ALL
    assert set(load_file(plain / "model.safetensors")) == {
        "inside.weight",
        "outside.bias",
        "low",
        "frozen",
    }  # tied once
    values = json.loads((everything / "state.json").read_text())
    assert values["format"] == states.FORMAT == 3
    assert sorted(values["files"]) == sorted(set(ALL) - {"state.json"})


def test_a_reference_that_the_state_lacks_stays_what_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path, "model", "critic")
    modules, optimisers = some_parts(2, "model", "critic", "reference")
    before = bits({"reference": modules["reference"]}, {})
    _, held = states.load(path, modules, optimisers)
    assert held == {"model", "critic"}
    assert bits({"reference": modules["reference"]}, {}) == before


# Damage


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


@pytest.mark.parametrize("damage", [flip_a_bit, cut_short, Path.unlink])
@pytest.mark.parametrize("file", ALL)
def test_damage_of_any_file_is_found_and_the_state_before_it_used(
    file: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    names = ("model", "critic", "reference")
    good, bad = saved(tmp_path, *names, step=6), saved(tmp_path, *names, step=7)
    assert states.newest(tmp_path) == bad
    damage(bad / file)
    with pytest.warns(UserWarning, match="is damaged"):
        assert states.newest(tmp_path) == good
    assert not bad.exists()
    read = some_parts(2, *names)
    state, held = states.load(good, *read)
    assert state.step == 6 and held == set(names)
    assert bits(*read) == bits(*some_parts(1, *names))


def test_where_all_states_are_damaged_none_is_removed(tmp_path: Path) -> None:
    paths = [saved(tmp_path, "model", step=step) for step in (6, 7)]
    for path in paths:
        cut_short(path / "model.safetensors")
    with pytest.raises(RunFolderError, match=r"all states in .* are damaged \(step-000007: .*; step-000006: .*\)"):
        states.newest(tmp_path)
    assert all(path.is_dir() for path in paths)
    assert states.newest(tmp_path / "nothing") is None


# What does not fit


def refused(path: Path, parts: tuple[Modules, Optimisers]) -> str:
    """The message of the refusal, which must leave everything as it was."""
    before = bits(*parts)
    with pytest.raises(RunFolderError) as caught:
        states.load(path, *parts)
    assert bits(*parts) == before
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


def test_a_state_without_a_critic_is_refused_by_a_run_that_has_one(tmp_path: Path) -> None:
    message = refused(saved(tmp_path, "model"), some_parts(2, "model", "critic"))
    assert "holds no critic (critic.safetensors), which this run needs" in message and "configuration" in message


@pytest.mark.parametrize("name", ["critic", "reference"])
def test_a_state_with_a_part_that_the_run_does_not_have_is_refused(name: str, tmp_path: Path) -> None:
    message = refused(saved(tmp_path, "model", name), some_parts(2, "model"))
    assert f"holds a {name}, which this run does not have" in message


def test_moments_and_optimisers_must_match(tmp_path: Path) -> None:
    modules, optimisers = some_parts(1, "model", "critic")
    states.save(tmp_path, STATE, modules, {"model": optimisers["model"]})
    assert "does not train" in refused(tmp_path / "step-000007", some_parts(2, "model", "critic"))


@pytest.mark.parametrize("file", sorted(set(ALL) - {"state.json"}))
def test_a_file_that_is_gone_is_named(file: str, tmp_path: Path) -> None:
    names = ("model", "critic", "reference")
    path = saved(tmp_path, *names)
    (path / file).unlink()
    assert f"lacks its file {file}" in refused(path, some_parts(2, *names))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model", r"another model than model.path names"),
        ("critic", r"another critic than critic.kind, critic.path and model.path name"),
        ("reference", r"another model than model.path names"),
    ],
)
def test_weights_of_another_shape_are_refused(name: str, says: str, tmp_path: Path) -> None:
    names = ("model", "critic", "reference")
    path = saved(tmp_path, *names)
    modules, optimisers = some_parts(2, *names)
    modules[name] = Tied(3, width=6)
    if name in optimisers:
        optimisers[name] = adamw(modules[name])
    assert says in refused(path, (modules, optimisers))


def test_weights_of_other_names_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "model")
    stored = load_file(path / "model.safetensors")
    save_file({**stored, "more": torch.zeros(1)}, path / "model.safetensors")
    assert "another model" in refused(path, some_parts(2, "model"))


def test_states_of_an_older_format_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "model")
    values = json.loads((path / "state.json").read_text())
    new = ("history", "reset_step", "reference_step", "exhausted", "resets", "modules", "digest")
    old = {key: value for key, value in values.items() if key not in new}
    old |= {"format": 1, "groups": values["groups"]["model"]}
    (path / "state.json").write_text(json.dumps({**old, "digest": states._digest_of(old)}))
    assert states.newest(tmp_path) == path  # it is whole, only not ours: nothing is removed
    message = refused(path, some_parts(2, "model"))
    assert "has format 1, and this version of Surefoot reads 3: go on with the version that wrote it" in message


# Through a run folder


class Folder:
    """As much of a run folder as storing and restoring touch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trimmed: list[int | None] = []
        self.settings = {"seed": 0}
        self.steps: list[int] = []

    def trim(self, step: int | None) -> None:
        self.trimmed.append(step)

    def read(self, log: str) -> list[dict[str, Any]]:
        return [{"step": step} for step in self.steps]

    def log(self, log: str, record: dict[str, Any]) -> None:
        assert log == "states"
        self.steps = list(range(1, record["step"] + 1))  # of all logs: the run has come so far


@pytest.mark.parametrize("reference_step", [0, 5])
@pytest.mark.parametrize("has_critic", [False, True])
def test_a_reference_is_stored_once_it_was_reset_and_comes_back(
    reference_step: int, has_critic: bool, tmp_path: Path
) -> None:
    policy, reward = load_policy(ModelConfig(device="cpu")), digits_reward()
    task = Task("mine", (), (), fingerprint="f")
    names = ["model", "reference", *(["critic"] if has_critic else [])]

    def learner(seed: int) -> SimpleNamespace:
        modules, optimisers = some_parts(seed, *names)
        return SimpleNamespace(policy=policy, modules=lambda: dict(modules), optimisers=lambda: dict(optimisers))

    def bits_of(one: SimpleNamespace) -> dict[str, Any]:
        return bits(one.modules(), one.optimisers())

    folder: Any = Folder(tmp_path)
    writer: Any = learner(1)
    fresh = restore(folder, learner(3), task, reward)
    assert fresh == RunState(task="f", model=resume.fingerprint(policy), reward=reward.name, settings={"seed": 0})
    state = RunState(**{**vars(fresh), **COUNTERS})
    state.reference_step = reference_step
    resume.store(folder, writer, state, CheckpointConfig())
    assert ("reference.safetensors" in [file.name for file in (tmp_path / "state" / "step-000007").iterdir()]) == bool(
        reference_step
    )
    reader: Any = learner(2)
    initial = bits({"reference": reader.modules()["reference"]}, {})
    assert restore(folder, reader, task, reward) == state
    assert bits_of(reader) == bits_of(writer) | ({} if reference_step else initial)
    assert folder.trimmed == [None, 7]


def restore(folder: Any, learner: Any, task: Task, reward: Reward) -> RunState:
    return resume.restore(folder, learner, task, reward, steps=9)
