"""Making one sample of a run again, from its seed and the weights that it was made with.

Every random number of a sample follows from its seed, and its seed from the run's seed, the step, the prompt and its
number. So a sample can be made again alone, as long as the weights of its version are kept: those at the start, those of
the run states that were kept, and those of ``model/`` and ``best/``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from surefoot.config import validate
from surefoot.errors import RunFolderError
from surefoot.files import read_lines
from surefoot.policy.loading import Policy
from surefoot.rollout.engine import Request, Sampling
from surefoot.seeds import derive
from surefoot.tasks.build import build_task
from surefoot.training.assemble import Parts, assemble
from surefoot.training.config import RunConfig
from surefoot.training.kept import can_be_made, kept_models, kept_states
from surefoot.training.places import instead
from surefoot.training.state import WEIGHTS, damage, trainable
from surefoot.training.threads import recorded, set_threads
from surefoot.types import Prompt, Sample


@dataclass(frozen=True)
class Regenerated:
    """A sample that was made again.

    Attributes:
        sample: its tokens.
        text: its completion.
        same: whether the text is the one that the run wrote down; None where it wrote none down.
        weights: where its weights came from.
    """

    sample: Sample
    text: str
    same: bool | None
    weights: Path | None

    @property
    def says(self) -> str:
        found = {True: "the same text as in samples/", False: "not the text in samples/", None: "not in samples/"}[
            self.same
        ]
        where = "the model at the start" if self.weights is None else str(self.weights)
        return f"{self.sample.length} tokens with the weights of {where}: {found}"

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {
            "prompt_id": self.sample.prompt_id,
            "sample_id": self.sample.sample_id,
            "seed": self.sample.seed,
            "finish": str(self.sample.finish),
            "completion": self.text,
            "ids": self.sample.ids[self.sample.prompt_length :].tolist(),
            "same": self.same,
            "weights": None if self.weights is None else str(self.weights),
        }


def regenerate(run: Path, step: int, prompt_id: str, number: int, *, heldout: bool = False) -> Regenerated:
    """Make a sample again.

    Args:
        run: the run folder.
        step: at which it was sampled; for an evaluation, the step that it followed (0: before the first).
        prompt_id: of its prompt.
        number: its ``sample_id``.
        heldout: whether it is of an evaluation.

    Raises:
        RunFolderError: no run there, a task that cannot be built again, a prompt that is not in it, or weights that were not
            kept.
    """
    config = read_run_config(run)
    record = recorded_sample(run, step, prompt_id, number, heldout)
    version = step if heldout else step - 1
    if record is not None and isinstance(record.get("version"), int) and record["version"] >= 0:
        version = record["version"]
    if version < 0:
        raise RunFolderError(
            f"step {step} has no training samples, the first step is 1: give --heldout for the evaluation before it"
        )
    prompt = _find_prompt(config, prompt_id, heldout)
    weights, path = find_weights(run, version)
    set_threads(config.train.threads, before=recorded(run))
    parts = assemble(_with_model(config, weights, path))
    if weights == "state":
        assert path is not None
        _load_state(parts.policy, path)
        parts.engine.load(version)
    sample = _sample(config, parts, prompt, step, number, heldout)
    text = parts.renderer.decode(sample)
    return Regenerated(sample, text, None if record is None else record.get("completion") == text, path)


def read_run_config(run: Path) -> RunConfig:
    """The configuration of a run folder.

    Raises:
        RunFolderError: there is none, or it is none of a run that samples.
    """
    try:
        values = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(
            f"{run} holds no config.toml that can be read ({error}): give a run folder.{instead(run)}"
        ) from error
    return validate(RunConfig, values)


def recorded_sample(run: Path, step: int, prompt_id: str, number: int, heldout: bool) -> dict[str, Any] | None:
    """The record of the sample in samples/, where it was kept."""
    file = run / "samples" / f"{'heldout' if heldout else 'step'}-{step:06d}.jsonl"
    try:
        records = read_lines(file)
    except RunFolderError:
        return None
    found = (r for r in records if r.get("prompt_id") == prompt_id)
    same = [record for record in found if record.get("sample_id") == number]
    return same[0] if same else None


def find_weights(run: Path, version: int) -> tuple[str, Path | None]:
    """What holds the weights of a version: ("start", None), ("state", its folder) or ("model", a model's folder).

    Raises:
        RunFolderError: nothing does, or what does is damaged.
    """
    if version == 0:
        return "start", None
    state = kept_states(run).get(version)
    problem = ""
    if state is not None and (state / WEIGHTS).is_file():
        problem = damage(state, WEIGHTS) or ""
        if not problem:
            return "state", state
    model = kept_models(run).get(version)
    if model is not None:
        return "model", model
    if problem:
        raise RunFolderError(
            f"the run state {state} is damaged ({problem}): restore it; what can be made without it: {can_be_made(run)}"
        )
    kept = ", ".join(map(str, sorted(kept_states(run)))) or "none"
    raise RunFolderError(
        f"the weights of version {version} are gone: {run / 'state'} holds those of {kept}. What can be made again: "
        f"{can_be_made(run)}. checkpoint.every and checkpoint.keep_last say which weights are kept"
    )


def _with_model(config: RunConfig, weights: str, path: Path | None) -> RunConfig:
    """The configuration with the model that has the weights; that of a run with adapters is its base with the adapter."""
    if weights != "model":
        return config
    assert path is not None
    adapter = path / "adapter"
    if adapter.is_dir():
        lora = config.model.lora.model_copy(update={"path": str(adapter)})
        return config.model_copy(update={"model": config.model.model_copy(update={"lora": lora})})
    return config.model_copy(update={"model": config.model.model_copy(update={"path": str(path)})})


def _load_state(policy: Policy, state: Path) -> None:
    stored = load_file(state / WEIGHTS)
    own = trainable(policy.model)
    if {name: tuple(value.shape) for name, value in own.items()} != {n: tuple(v.shape) for n, v in stored.items()}:
        raise RunFolderError(f"{state} holds the weights of another model than model.path names: restore that model")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(stored[name])


def _find_prompt(config: RunConfig, prompt_id: str, heldout: bool) -> Prompt:
    try:
        task = build_task(config.task)
    except Exception as error:
        raise RunFolderError(
            f"the task of the run cannot be built again ({error}): a task made in Python is not kept"
        ) from error
    prompts = task.heldout if heldout else task.train
    for prompt in prompts:
        if prompt.prompt_id == prompt_id:
            return prompt
    which = "held-out" if heldout else "training"
    raise RunFolderError(
        f"'{prompt_id}' is none of the {len(prompts)} {which} prompts of the task '{config.task.name}': "
        "take prompt_id from samples/, and give --heldout for a sample of an evaluation; a task made in Python is not kept"
    )


def _sample(config: RunConfig, parts: Parts, prompt: Prompt, step: int, number: int, heldout: bool) -> Sample:
    sampling: Sampling = replace(parts.sampling, top_logprobs=0)
    seed = derive(config.seed, "sample", step, prompt.prompt_id, number)
    if heldout:
        evaluation = config.evaluation
        sampling = replace(sampling, temperature=evaluation.temperature, top_p=evaluation.top_p, top_k=0)
        seed = derive(evaluation.seed, "evaluation", prompt.prompt_id, number)
    request = Request(parts.renderer.ids(prompt), prompt.prompt_id, (seed,), sampling, number)
    return parts.engine.generate([request])[0][0]
