"""``report.html`` of a run: curves, warnings, samples, the objective and the configuration, from what the folder holds."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.extras import require
from surefoot.files import write_atomic
from surefoot.report import wording
from surefoot.report.curves import figures, other_metrics
from surefoot.report.differences import differences, flat
from surefoot.report.markup import render_markdown
from surefoot.report.reading import Record, RunFiles, number, read_run
from surefoot.report.render import embed_json, figure_data, render
from surefoot.report.samples import BUDGET, SampleTable, readable, sample_table
from surefoot.report.summary import summarise
from surefoot.training.kept import kept_versions

SCRIPTS = ("curves.js", "store.js", "tokens.js", "choose.js", "list.js", "sample.js", "reader.js")


def write_report(run: Path, budget: int = BUDGET, others: Sequence[Path] = ()) -> Path:
    """Write ``report.html`` into a run folder, finished or not.

    Args:
        run: the run folder.
        budget: bytes of sample files to hold; a run with more is thinned evenly over its steps.
        others: run folders that its configuration is compared with.

    Returns:
        The path of the page.

    Raises:
        RunFolderError: no run folder there, or it cannot be written.
        MissingExtraError: Plotly is not installed.
    """
    run = Path(run)
    page = run_page(run, budget, others)
    path = run / "report.html"
    write_atomic(path, page)
    return path


def run_page(run: Path, budget: int = BUDGET, others: Sequence[Path] = (), *, live: bool = False) -> str:
    """The page of a run as text; the arguments are those of :func:`write_report`."""
    require("markdown_it", "report", "report.html")
    files = read_run(run)
    gaps = list(files.gaps)
    samples = sample_table(run, gaps, budget)
    return render_page(files, samples, gaps, [read_run(Path(other)) for other in others], live=live)


def render_page(
    files: RunFiles, samples: SampleTable, gaps: list[str], others: Sequence[RunFiles] = (), *, live: bool = False
) -> str:
    """The page as text, from what was read."""
    from markupsafe import Markup

    drawn, further = figures(files), other_metrics(files)
    return render(
        "report.html",
        SCRIPTS,
        live=live,
        files=files,
        summary=summarise(files),
        planned=number(files.setting("train.steps") or files.setting("steps")),
        facts=facts(files),
        warnings=grouped_warnings(files.warnings),
        evaluations=evaluation_rows(files.evaluations),
        gaps=[*gaps, *other_version(files)],
        figures=[figure for figure in drawn if figure.data],
        not_recorded=[figure.title for figure in drawn if not figure.data and figure.key != "likelihood"],
        other_metrics=further,
        card=Markup(render_markdown(files.card)),
        environment=[(name, in_one_line(value)) for name, value in flat(files.environment)],
        differing=config_differences(files, others),
        figure_json=Markup(embed_json(figure_data(drawn + further))),
        sample_json=Markup(embed_json({**samples.index, "packs": len(samples.packs), "run": kept(files.folder)})),
        sample_count=len(samples.rows),
        packs=[Markup(pack) for pack in samples.packs],
    )


def kept(folder: Path) -> Record:
    """The folder as a command names it, and the versions of the weights that it still holds; 0 is the model at the start."""
    return {"folder": str(folder), "versions": kept_versions(folder)}


def config_differences(files: RunFiles, others: Sequence[RunFiles]) -> Mapping[str, Any] | None:
    """The settings in which this run and the others differ, as a table; None without others."""
    if not others:
        return None
    every = {f"{number}": one.config for number, one in enumerate([files, *others])}
    return {"names": [one.title for one in (files, *others)], "rows": differences(every)}


def other_version(files: RunFiles) -> list[str]:
    """A sentence where the run was written by another version of Surefoot."""
    packages = files.environment.get("packages")
    wrote = packages.get("surefoot") if isinstance(packages, dict) else None
    if not isinstance(wrote, str) or wrote in (__version__, "not installed"):
        return []
    return [f"This run was written by Surefoot {wrote}, the page by {__version__}: what has moved since is left out."]


def facts(files: RunFiles) -> list[tuple[str, str]]:
    """What the run was, in a few words: (name, value)."""
    batch = [number(files.setting(f"train.{name}")) for name in ("prompts_per_step", "group_size")]
    sizes = [wording.count(size) for size in batch if size is not None]
    found = [
        ("Algorithm", files.setting("algorithm.preset")),
        ("Model", files.setting("model.path")),
        ("Task", files.setting("task.name")),
        ("Batch", f"{sizes[0]} prompts × {sizes[1]} samples" if len(sizes) == 2 else None),
        ("Seed", files.setting("seed")),
        ("Control", files.place.control if files.place is not None and files.place.control else None),
    ]
    return [(name, str(value)) for name, value in found if value is not None]


def grouped_warnings(records: Iterable[Record]) -> list[Record]:
    """Warnings by name: the last text, how often, and the first and last step."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(readable(record.get("name")) or "warning", []).append(record)
    counted = Counter({name: len(items) for name, items in groups.items()})
    shown = []
    for name, times in counted.most_common():
        steps = [int(step) for item in groups[name] if (step := number(item.get("step"))) is not None]
        text = readable(groups[name][-1].get("text"))
        shown.append({"name": name, "text": text, "times": times, "first": min(steps, default=None)})
        shown[-1]["last"] = max(steps, default=None)
    return shown


def evaluation_rows(records: Iterable[Record]) -> list[tuple[str, list[str]]]:
    """Every evaluation as text: step, and accuracy, interval, mean length, truncated and unanswered shares."""
    rows = []
    for record in records:
        value, low, high, length, truncated, silent = (
            number(record.get(name)) for name in ("accuracy", "low", "high", "length", "truncated", "no_answer")
        )
        shares = [None if share is None else wording.percent(share) for share in (value, truncated, silent)]
        bounds = None if low is None or high is None else wording.interval(low, high)
        tokens = None if length is None else wording.count(length)
        cells = [shares[0], bounds, tokens, shares[1], shares[2]]
        rows.append((f"{record['step']:,}", [cell or "—" for cell in cells]))
    return rows


def in_one_line(value: Any) -> str:
    """A value of environment.json as text; a list of words as the command line that it is."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return readable(value)
