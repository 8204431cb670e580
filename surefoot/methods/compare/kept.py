"""A comparison in a Markdown page: its tables, how to read them, its sentences, and what it was made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.methods.compare.experiment import Experiment
from surefoot.methods.compare.schedule import finished
from surefoot.methods.compare.sentences import legend, sentences, table
from surefoot.methods.pages import made_by, markdown, write_page
from surefoot.training.folder import run_path

PLACE = "results"


def keep(path: Path, experiment: Experiment, found: Mapping[str, Any]) -> None:
    """Put a comparison between the comments ``<!-- results -->`` and ``<!-- /results -->`` of a page.

    Args:
        path: of the page.
        experiment: what was compared.
        found: content of its ``comparison.json``.

    Raises:
        DataError: the page is not there or lacks the comments.
    """
    parts = []
    for task in found["tasks"]:
        parts += [f"**{task}**"] if len(found["tasks"]) > 1 else []
        parts.append(markdown(table(found, task)))
    parts += [legend(found), "\n".join(f"- {line}" for line in sentences(found)), cost(experiment, found["seeds"])]
    write_page(path, {PLACE: "\n\n".join(parts)})


def cost(experiment: Experiment, seeds: Sequence[int]) -> str:
    """How many runs of these seeds, how long they took one core, and what they were made with."""
    lines = {job: line for job, line in finished(experiment).items() if job.seed in seeds}
    made = {made_by(file) for job in lines if (file := run_path(experiment.run(job)) / "environment.json").is_file()}
    minutes = sum(line["cpu_seconds"] for line in lines.values()) / 60
    return "\n".join(
        [
            f"{len(lines)} runs, {minutes:.0f} minutes of one core together, evaluations included and warm starts not.",
            *sorted(made),
        ]
    )
