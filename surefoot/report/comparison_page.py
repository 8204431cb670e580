"""``report.html`` of an experiment: which arm is better, how sure that is, and what the training of each looked like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.errors import RunFolderError
from surefoot.extras import require
from surefoot.files import write_atomic
from surefoot.methods.compare.sentences import label, legend, sentences, table
from surefoot.report import palette
from surefoot.report.comparison_figures import (
    AXES,
    courses,
    final_accuracy,
    forest,
    learning_curves,
    pass_at_k,
)
from surefoot.report.experiment import ExperimentFiles, RunState, arm_differences, is_experiment, read_experiment, tally
from surefoot.report.figures import Figure
from surefoot.report.markup import render_markdown
from surefoot.report.reading import Record
from surefoot.report.render import embed_json, figure_data, render
from surefoot.training.places import instead

SCRIPTS = ("curves.js",)


def write_comparison_report(folder: Path) -> Path:
    """Write ``report.html`` into an experiment's folder, finished or not.

    Raises:
        RunFolderError: no experiment there, or the page cannot be written.
        MissingExtraError: Plotly is not installed.
    """
    folder = Path(folder)
    if not is_experiment(folder):
        raise RunFolderError(
            f"{folder} is no experiment of 'surefoot compare': it holds neither comparison.json nor arms/.{instead(folder)}"
        )
    path = folder / "report.html"
    write_atomic(path, comparison_page(read_experiment(folder)))
    return path


def comparison_page(files: ExperimentFiles, links: dict[Path, str] | None = None, *, live: bool = False) -> str:
    """The page as text.

    Args:
        files: what the folder holds.
        links: pages of its runs, by their folders.
        live: whether a server keeps it up to date.
    """
    import jinja2

    require("markdown_it", "report", "report.html")
    try:
        return _page(files, files.comparison, links or {}, live)
    except (LookupError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        if not files.comparison:
            raise
        gap = f"comparison.json cannot be shown ({type(error).__name__}: {error}): it is of another version or damaged."
        return _page(replace(files, comparison={}, gaps=(*files.gaps, gap)), {}, links or {}, live)


def _page(files: ExperimentFiles, found: Record, links: dict[Path, str], live: bool) -> str:
    from markupsafe import Markup

    tasks = [task_view(found, task) for task in found.get("tasks", ())]
    overall = forest(found, found["pairs"], "forest all") if len(tasks) > 1 else None
    examples = files.examples()
    done, begun = tally(files.runs)
    return render(
        "comparison.html",
        SCRIPTS,
        live=live,
        name=files.name,
        found=found,
        facts=facts(found, done, begun),
        verdicts=sentences(found) if found else [],
        overall=overall,
        tasks=tasks,
        axes=AXES,
        gaps=files.gaps,
        states=states(files.runs, links),
        cards=[(arm, Markup(render_markdown(one.card))) for arm, one in examples.items() if one.card],
        differing={"names": list(examples), "rows": arm_differences(examples)},
        figure_json=Markup(embed_json(figure_data([*([overall] if overall else []), *_figures(tasks)]))),
    )


def task_view(found: Record, task: str) -> Record:
    """Everything that is shown of a task."""
    head, *rows = table(found, task)
    pairs = found.get("pairs_by_task", {}).get(task) or found["pairs"]
    colours = {label(arm, found): number % len(palette.ARMS) for number, arm in enumerate(found["arms"])}
    return {
        "name": task,
        "head": head,
        "rows": rows,
        "legend": legend(found),
        "colours": colours,
        "curves": learning_curves(found, task),
        "figures": [
            figure
            for figure in (
                final_accuracy(found, task),
                forest(found, pairs, f"forest {task}"),
                pass_at_k(found, task),
                *courses(found, task),
            )
            if figure.data
        ],
        "every_k": every_k(found, task),
        "spent": [(arm, found["results"][task][arm]["spent"]) for arm in found["arms"]],
    }


def every_k(found: Record, task: str) -> list[list[str]]:
    """The head and a row for each arm: pass@k for every k, and the interquartile mean of the arm's runs (rliable)."""
    results = found["results"][task]
    ks = sorted({int(k) for one in results.values() for k in one["pass"]})
    of = "the runs" if len(found["tasks"]) == 1 else "the runs of all tasks"
    head = ["Arm", *(f"pass@{k}, %" for k in ks), f"interquartile mean of {of}, %"]
    rows = []
    for arm in found["arms"]:
        cells = [results[arm]["pass"].get(str(k)) for k in ks] + [found.get("interquartile_mean", {}).get(arm)]
        rows.append([label(arm, found), *("—" if cell is None else shares(cell) for cell in cells)])
    return [head, *rows]


def shares(interval: Sequence[float]) -> str:
    """
    >>> shares([0.5, 0.25, 0.75])
    '50.0 [25.0, 75.0]'
    """
    value, low, high = (100 * number for number in interval)
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def facts(found: Record, done: int, begun: int) -> list[tuple[str, str]]:
    """What the experiment is, in a few words."""
    shown: list[tuple[str, str]] = [
        ("Runs", f"{done} finished" + (f", {begun - done} under way" if begun > done else ""))
    ]
    if found:
        seeds, planned = len(found["seeds"]), len(found.get("seeds_planned") or found["seeds"])
        shown = [
            ("Baseline", str(found["baseline"])),
            ("Arms", str(len(found["arms"]))),
            *([("Controls", ", ".join(map(str, found["controls"])))] if found.get("controls") else []),
            ("Seeds", str(seeds) if seeds == planned else f"{seeds} of {planned}"),
            ("Tasks", ", ".join(map(str, found["tasks"]))),
            *shown,
        ]
    return shown


def states(runs: tuple[RunState, ...], links: dict[Path, str]) -> list[Record]:
    """How far each run is, in words."""
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        planned = f" of {run.planned:,}" if run.planned else ""
        state = f"finished, {run.steps:,} steps" if run.finished else f"step {run.steps:,}{planned}"
        rows.append({"id": f"state-{number}", "run": run, "state": state, "link": links.get(run.folder)})
    return rows


def _figures(tasks: list[Record]) -> list[Figure]:
    return [figure for task in tasks for figure in (*task["curves"].values(), *task["figures"])]
