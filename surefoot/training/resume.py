"""Going on where a killed run stopped."""

from __future__ import annotations

import hashlib
import json

from surefoot.errors import RunFolderError
from surefoot.files import explained, sync_file
from surefoot.policy.loading import Policy
from surefoot.rewards.base import Reward
from surefoot.tasks.base import Task
from surefoot.training import state as states
from surefoot.training.config import CheckpointConfig
from surefoot.training.folder import LOGS, RunFolder
from surefoot.training.learner import Learner
from surefoot.training.state import RunState


def fingerprint(policy: Policy) -> str:
    """Hash of the weights and the tokenizer, which a run starts from and its reference policy keeps."""
    words = [policy.checksum(), sorted(policy.tokenizer.get_vocab().items()), policy.tokenizer.chat_template]
    return hashlib.blake2b(json.dumps(words, ensure_ascii=True).encode(), digest_size=16).hexdigest()


def restore(folder: RunFolder, learner: Learner, task: Task, reward: Reward, steps: int) -> RunState:
    """The newest state of the folder, read into the learner; a new state where there is none. Trims the logs to it.

    Raises:
        RunFolderError: the prompts, the model or the reward are not those that the run was made with; the logs lack what the
            state has; the run is longer than ``steps`` already.
    """
    fresh = RunState(task=task.fingerprint, model=fingerprint(learner.policy), reward=reward.name)
    path = states.newest(folder.path / "state")
    if path is None:
        folder.trim(None)
        return fresh
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
    states.prune(folder.path / "state", config.keep_last)
