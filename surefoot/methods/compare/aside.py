"""What an experiment's runs said beside their numbers: their warnings, and what ended them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from surefoot.methods.compare.experiment import Experiment, Job
from surefoot.training.folder import run_path
from surefoot.training.lines import Warned, checked_lines


def warned(experiment: Experiment, jobs: Iterable[Job]) -> dict[str, Any]:
    """The warnings of finished runs.

    Returns:
        ``runs``, how many gave one, ``of`` how many, and ``kinds``: for each kind its name, the number of runs that gave it,
        their arms, and the words of the first; that of most runs first.

    Raises:
        RunFolderError: a damaged line of a ``warnings.jsonl``.
    """
    jobs = list(jobs)
    kinds: dict[str, dict[str, Any]] = {}
    warning = set()
    for job in jobs:
        path = run_path(experiment.run(job)) / "warnings.jsonl"
        said = {record["name"]: record["text"] for record in reversed(checked_lines(path, Warned, "remove the line"))}
        for name, text in said.items():
            kind = kinds.setdefault(name, {"name": name, "runs": 0, "arms": [], "text": text})
            kind["runs"] += 1
            kind["arms"] += [job.arm] if job.arm not in kind["arms"] else []
            warning.add(job)
    most_first = sorted(kinds.values(), key=lambda kind: -kind["runs"])
    return {"runs": len(warning), "of": len(jobs), "kinds": most_first}


def endings(experiment: Experiment, jobs: Iterable[Job]) -> dict[str, int]:
    """How many runs were ended by what: ``"steps"``, ``"budget.tokens"``, ``"prompts"``; a run that does not say is left out."""
    found: Counter[str] = Counter()
    for job in jobs:
        path = run_path(experiment.run(job)) / "result.json"
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # the comparison needs nothing of it
            continue
        ended = result.get("ended") if isinstance(result, dict) else None
        found.update([ended] if isinstance(ended, str) and ended else [])
    return dict(found)
