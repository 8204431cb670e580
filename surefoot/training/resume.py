"""Going on where a killed run stopped."""

from __future__ import annotations

import hashlib
import json
import shlex
import warnings
from pathlib import Path
from typing import Any

from surefoot.errors import RunFolderError
from surefoot.files import explained, sync_file
from surefoot.policy.loading import Policy
from surefoot.rewards.base import Reward
from surefoot.tasks.base import Task
from surefoot.training import state as states
from surefoot.training.config import CheckpointConfig
from surefoot.training.folder import LOGS, SAVED, RunFolder, changes
from surefoot.training.learner import Learner
from surefoot.training.state import RunState


def fingerprint(policy: Policy) -> str:
    """Hash of the weights, the tokenizer and the stop tokens, which a run starts from and its reference policy keeps."""
    vocabulary = sorted(policy.tokenizer.get_vocab().items())
    words = [policy.checksum(), vocabulary, policy.tokenizer.chat_template, policy.stop_ids]
    return hashlib.blake2b(json.dumps(words, ensure_ascii=True).encode(), digest_size=16).hexdigest()


def restore(folder: RunFolder, learner: Learner, task: Task, reward: Reward, steps: int) -> RunState:
    """The newest state of the folder, read into the learner; a new state where none was saved yet. Trims the logs to it.

    Raises:
        RunFolderError: the states that the run has saved are gone, or all damaged; the state is of another run; the prompts,
            the model or the reward are not those that the run was made with; the logs lack what the state has; the run is
            longer than ``steps`` already.
    """
    fresh = RunState(
        task=task.fingerprint, model=fingerprint(learner.policy), reward=reward.name, settings=dict(folder.settings)
    )
    path = _newest(folder)
    if path is None:
        folder.trim(None)
        return fresh
    _refuse_another_run(folder, path)
    state, _ = states.load(path, learner.modules(), learner.optimisers())
    for what, key in (("prompts", "task"), ("model", "model"), ("reward", "reward")):
        if getattr(state, key) != getattr(fresh, key):
            raise RunFolderError(
                f"the {what} of the run {folder.path} {'are' if what == 'prompts' else 'is'} not what it was made with: "
                "restore the data or the model (a reward in Python is given again: surefoot.train(..., reward=f, resume=True)), "
                "or set another 'name'"
            )
    if state.step > steps:
        raise RunFolderError(f"the run {folder.path} has done {state.step} steps: set train.steps to as many or more")
    folder.trim(state.step)
    done = [record["step"] for record in folder.read("metrics")]
    if done != list(range(1, state.step + 1)):
        raise RunFolderError(
            f"{folder.path / 'metrics.jsonl'} does not hold the steps 1 to {state.step} that the run has done: "
            "restore the file, or set another 'name'"
        )
    if task.heldout and not any(record["step"] == 0 for record in folder.read("evaluations")):
        raise RunFolderError(
            f"{folder.path / 'evaluations.jsonl'} lacks the evaluation before the first step: restore it, or set another 'name'"
        )
    _mend_timings(folder, state.step)
    return state


def _newest(folder: RunFolder) -> Path | None:
    """The newest whole state; None where the run was stopped before its first.

    Says how many steps are done again, where there are any.

    Raises:
        RunFolderError: what was saved is gone or damaged; nothing is touched.
    """
    done = max((record["step"] for record in folder.read("metrics")), default=0)
    saved = max((record["step"] for record in folder.read(SAVED)), default=0)
    lost = f"the run {folder.path} has done {done} steps, and none of its states can be read"
    out = (
        f"restore {folder.path / 'state'} from a copy and resume again; or give up what was done: set another 'name', or remove "
        f"the run (rm -r {shlex.quote(str(folder.path))}) and train without --resume"
    )
    try:
        path = states.newest(folder.path / "state")
    except RunFolderError as error:
        raise RunFolderError(f"{lost}, {error}: {out}") from None
    if path is None and (saved or (folder.path / "result.json").exists()):
        raise RunFolderError(
            f"{lost}, {folder.path / 'state'} holds none (the last was of step {saved or done}): {out}"
        )
    again = done - (0 if path is None else int(path.name.removeprefix("step-")))
    if again > 0:
        where = "before it had saved a state, and begins again" if path is None else f"and goes on from {path.name}"
        counted = "1 step is" if again == 1 else f"{again} steps are"
        warnings.warn(f"the run was stopped after step {done} {where}: {counted} done again", stacklevel=3)
    return path


def _refuse_another_run(folder: RunFolder, path: Path) -> None:
    """A state that was copied here from a run with other settings, a seed above all."""
    held: dict[str, Any] = states.read(path)["settings"]
    if changed := changes(held, folder.settings, "there {} and here {}"):
        raise RunFolderError(
            f"the run state {path} is of another run ({changed}): put this run's own back, or remove it to go on from an "
            "earlier one"
        )


def ended_before(folder: RunFolder, state: RunState, ended: str) -> str:
    """What to say where a run that was finished is resumed and still has nothing to do; "" where it was not finished."""
    try:
        result: Any = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if not isinstance(result, dict) or result.get("steps") != state.step:
        return ""
    reasons = {
        "steps": (f"train.steps = {state.step} are done", f"set train.steps to more than {state.step}"),
        "prompts": ("no prompt is left to sample", "set another 'name' and give it other prompts"),
    }
    why, how = reasons.get(ended, (f"{ended} is used up", f"raise {ended}"))
    return (
        f"the run {folder.path} was finished before, at step {state.step} ({why}), and nothing was trained now: "
        f"to go on, {how}"
    )


def _mend_timings(folder: RunFolder, step: int) -> None:
    """A writer that was killed between a state and the timings of its step leaves that step without them.

    Its tokens are in the metrics; its seconds are lost.
    """
    if step > 0 and all(record["step"] != step for record in folder.read("timings")):
        metrics = folder.read("metrics")[-1]
        tokens = {f"tokens_{what}": int(metrics.get(f"tokens/{what}", 0)) for what in ("generated", "trained")}
        folder.log("timings", {"step": step, **tokens})


def store(folder: RunFolder, learner: Learner, state: RunState, config: CheckpointConfig) -> None:
    """Save the state and remove old ones. The logs are on disk before the state that counts on them."""
    with explained(folder.path):
        for name in LOGS:
            sync_file(folder.path / f"{name}.jsonl")
        (folder.path / "state").mkdir(exist_ok=True)
    # A reference that was never reset is what the run starts from, and is made anew on a resume.
    modules = {
        name: module for name, module in learner.modules().items() if name != "reference" or state.reference_step
    }
    states.save(folder.path / "state", state, modules, learner.optimisers())
    folder.log(SAVED, {"step": state.step})
    states.prune(folder.path / "state", config.keep_last)
