"""What a served page is told while its run goes on: newer points of the curves, newer samples, newer numbers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.report import wording
from surefoot.report.curves import figures, other_metrics
from surefoot.report.experiment import read_experiment, tally
from surefoot.report.figures import Figure
from surefoot.report.page import grouped_warnings, kept
from surefoot.report.reading import Record, RunFiles, number, read_run
from surefoot.report.samples import pack_samples, sample_files
from surefoot.report.summary import Summary, summarise

FILES_AT_ONCE = 4  # sample files in one answer; the next question gets the next ones


def signature(folder: Path) -> str:
    """Changes whenever one of the small files of a folder does."""
    names = sorted(path for path in folder.glob("*") if path.suffix in (".jsonl", ".json", ".toml", ".md"))
    stats = []
    for path in names:
        with suppress(OSError):  # it has gone in the meantime, or leads nowhere
            found = path.stat()
            stats.append((path.name, found.st_size, found.st_mtime_ns))
    return f"{hash((str(folder), *stats)) & (2**63 - 1):x}"


def run_news(folder: Path, seen: Mapping[str, str]) -> Record:
    """What is new in a run.

    Args:
        folder: of the run.
        seen: what the page has: ``after``, the last step of its curves (-1: send them whole); ``train`` and ``heldout``, the
            last steps of its samples; ``mark``, the last answer's signature.
    """
    mark = signature(folder)
    files = read_run(folder)
    planned = number(files.setting("train.steps") or files.setting("steps"))
    step = int(files.metrics[-1]["step"]) if files.metrics else 0
    over = bool(files.result)
    of = f" of {wording.count(planned)}" if planned else ""
    says = f"Finished after {step:,} steps" if over else f"Live: step {step:,}{of}"
    news: Record = {"says": says, "over": over}
    samples, seen_samples = _samples(folder, seen)
    if samples is not None:
        news |= {"samples": samples, "seen": seen_samples}
    after = _whole(seen.get("after"), -1)
    if seen.get("mark") == mark and after >= 0:
        return news
    summary = summarise(files)
    drawn = [figure for figure in figures(files) + other_metrics(files) if figure.data]
    news["figures"] = {figure.key: _newer(figure, after) for figure in drawn}
    news |= {"step": step, "whole": after < 0, "texts": texts(files, summary)}
    news["seen"] = {**news.get("seen", {}), "mark": mark}
    # What the page cannot take in by itself: a first evaluation, another warning, the end.
    news["reload"] = bool(seen.get("mark")) and (over or _marks(files) != _whole(seen.get("marks"), _marks(files)))
    news["seen"]["marks"] = _marks(files)
    return news


def experiment_news(folder: Path, seen: Mapping[str, str]) -> Record:
    """What is new in an experiment: how far its runs are, and whether it has to be compared anew."""
    files = read_experiment(folder)
    done, begun = tally(files.runs)
    mark = f"{signature(folder)}-{begun}"
    running = begun - done
    texts = {}
    for place, run in enumerate(files.runs):
        of = f" of {run.planned:,}" if run.planned else ""
        texts[f"state-{place}"] = f"finished, {run.steps:,} steps" if run.finished else f"step {run.steps:,}{of}"
    says = f"Live: {done} runs finished, {running} under way" if running else f"{done} runs finished"
    old = seen.get("mark")
    return {
        "says": says,
        "over": not running,
        "texts": texts,
        "reload": bool(old) and old != mark,
        "seen": {} if old else {"mark": mark},
    }


def texts(files: RunFiles, summary: Summary) -> dict[str, str]:
    """The numbers at the head of the page, by the names of their elements."""
    found: dict[str, Any] = {"live-steps": wording.count(summary.steps)}
    if summary.seconds:
        found["live-time"] = wording.duration(summary.seconds)
    for name, rate in (
        ("live-generated", summary.generated_per_second),
        ("live-trained", summary.trained_per_second),
    ):
        if rate is not None:
            found[name] = wording.count(rate)
    latest = summary.after or summary.before
    if latest is not None:
        found["live-accuracy"] = wording.percent(latest.value)
    return found


def _newer(figure: Figure, after: int) -> Record:
    """A figure with the points from ``after`` on, and those before it that a moving mean may have moved."""
    if after < 0:
        return {"data": figure.data, "layout": figure.layout}
    data = []
    for trace in figure.data:
        margin = max(len(trace["x"]) // 10, 2)
        first = next((i for i, x in enumerate(trace["x"]) if x > after), len(trace["x"]))
        first = max(first - margin, 0)
        data.append({**trace, "x": trace["x"][first:], "y": trace["y"][first:]})
    return {"data": data, "layout": figure.layout}


def _samples(folder: Path, seen: Mapping[str, str]) -> tuple[Record | None, dict[str, int]]:
    """Samples of files that the page does not have yet, at most a few files, and the steps that it then has."""
    last = {"step": _whole(seen.get("train"), -1), "heldout": _whole(seen.get("heldout"), -1)}
    fresh = sorted((file for file in sample_files(folder) if file.step > last[file.kind]), key=lambda file: file.step)
    if not fresh:
        return None, {}
    taken = fresh[:FILES_AT_ONCE]
    table = pack_samples(taken, [])
    for file in taken:
        last[file.kind] = max(last[file.kind], file.step)
    seen_now = {"train": last["step"], "heldout": last["heldout"]}
    return {**table.index, "packs": table.packs, "run": kept(folder)}, seen_now


def _marks(files: RunFiles) -> int:
    return min(len(files.evaluations), 2) + 3 * len(grouped_warnings(files.warnings))


def _whole(text: str | None, default: int) -> int:
    """A whole number of a question; what is none counts as not said."""
    try:
        return int(text) if text is not None and len(text) < 20 else default
    except ValueError:
        return default
