"""Going on where a killed run stopped."""

from __future__ import annotations

from surefoot.errors import RunFolderError
from surefoot.tasks.base import Task
from surefoot.training import state as states
from surefoot.training.config import CheckpointConfig
from surefoot.training.folder import RunFolder
from surefoot.training.learner import Learner
from surefoot.training.state import RunState


def restore(folder: RunFolder, learner: Learner, task: Task) -> RunState:
    """The newest state of the folder, read into the learner; a new state where there is none. Trims the logs to it.

    Raises:
        RunFolderError: the prompts are not those that the run was made with.
    """
    path = states.newest(folder.path / "state")
    if path is None:
        folder.trim(None)
        return RunState(task=task.fingerprint)
    state = states.load(path, learner.policy.model, learner.optimiser)
    if state.task != task.fingerprint:
        raise RunFolderError(
            f"the prompts of the task '{task.name}' are not those that the run {folder.path} was made with: "
            "restore the data file, or set another 'name'"
        )
    folder.trim(state.step)
    return state


def store(folder: RunFolder, learner: Learner, state: RunState, config: CheckpointConfig) -> None:
    """Save the state and remove old ones."""
    (folder.path / "state").mkdir(exist_ok=True)
    states.save(folder.path / "state", state, learner.policy.model, learner.optimiser)
    states.prune(folder.path / "state", config.keep_last)
