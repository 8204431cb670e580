"""The commands over many runs: ``surefoot compare`` and ``surefoot fit``."""

from __future__ import annotations

import math
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import output
from surefoot.cli.commands import Json, NoProgress, Quiet, Set, read_config

if TYPE_CHECKING:
    from surefoot.methods.compare.experiment import Experiment
    from surefoot.methods.compare.schedule import News, WarmedUp


def compare(
    context: typer.Context,
    experiment: Annotated[list[Path], typer.Argument(metavar="EXPERIMENT", help="TOML files, merged left to right.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every run and list them; run nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, compare what is finished.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write the tables into this Markdown page.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Train several algorithms on several seeds and say which is better."""
    from surefoot.cli.show import show_json
    from surefoot.errors import DataError
    from surefoot.methods.compare import kept
    from surefoot.methods.compare.experiment import ExperimentConfig, make_experiment
    from surefoot.methods.compare.results import write_comparison
    from surefoot.methods.compare.schedule import run_all
    from surefoot.methods.pages import read_page

    made = make_experiment(read_config(ExperimentConfig, experiment, pairs, context))
    if dry_run:
        _plan(made, as_json)
        return
    if keep is not None:
        read_page(keep, (kept.PLACE,))  # before the hours, not after them
    failed: list[News] = []
    if not show:
        told = None if quiet or as_json else _Told()
        if told is not None:
            told.begins(made)
        failed = run_all(made) if told is None else run_all(made, told, told.warmed)
        _say_failed(failed)
    try:
        found = write_comparison(made)
    except DataError:
        if failed:  # which says more than that nothing can be compared yet
            raise typer.Exit(1) from None
        raise
    page = _page(made.folder)
    if keep is not None:
        kept.keep(keep, made, found)
    if as_json:
        show_json(found)
    else:
        show_comparison(found, made.folder, page)
    if failed:
        raise typer.Exit(1)


def _plan(made: Experiment, as_json: bool) -> None:
    """All runs, and for each whether it is done, has begun or is to do; what they are made of is checked."""
    from surefoot.cli.show import show_json
    from surefoot.methods.compare.begun import finished, under_way, warm_up_is_done
    from surefoot.methods.compare.check import check
    from surefoot.training.folder import run_path

    done = finished(made)
    check(made)
    records: list[dict[str, Any]] = []
    for job in made.jobs():
        step = under_way(made, job)
        state = "done" if job in done else "to do" if step is None else f"goes on from step {step}"
        keys = {"task": job.task, "arm": job.arm, "seed": job.seed, "control": made.control(job.arm)}
        records.append({**keys, "state": state, "folder": str(run_path(made.run(job)))})
        if not as_json:
            print(f"{state}  {job}")
    if as_json:
        missing = [
            {"task": task, "seed": seed}
            for seed in made.seeds
            for task in made.tasks
            if not warm_up_is_done(made, task, seed)
        ]
        show_json({"name": made.config.name, "folder": str(made.folder), "warm_ups": missing, "runs": records})


def _say_failed(failed: list[News]) -> None:
    """One line for each reason, with its runs."""
    reasons: dict[str, list[News]] = {}
    for news in failed:
        reasons.setdefault(news.trouble.splitlines()[-1], []).append(news)
    for reason, every in reasons.items():
        runs = f"{len(every)} runs" if len(every) > 1 else "1 run"
        print(f"surefoot: {runs} failed ({reason}): {'; '.join(str(news.job) for news in every)}", file=sys.stderr)
    if failed:
        print("surefoot: the same command tries them again", file=sys.stderr)


class _Told:
    """Lines on standard error: what there is to do, and each run that is over with the time that the rest will take."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.before: int | None = None

    def begins(self, made: Experiment) -> None:
        """How many runs are done and to do, and where those that an earlier command began go on."""
        from surefoot.methods.compare.begun import finished, under_way, warm_up_is_done

        done, jobs = finished(made), list(made.jobs())
        todo = [job for job in jobs if job not in done]
        print(f"{len(done)} of {len(jobs)} runs are done, {len(todo)} to do", file=sys.stderr, flush=True)
        cold = [start for start in {(job.task, job.seed) for job in todo} if not warm_up_is_done(made, *start)]
        if cold:
            print(f"warm-ups to make first: {len(cold)}", file=sys.stderr, flush=True)
        for job in todo:
            if (step := under_way(made, job)) is not None:
                print(f"{job}: goes on from step {step}", file=sys.stderr, flush=True)
        self.begin = time.monotonic()

    def warmed(self, news: WarmedUp) -> None:
        from surefoot.report.wording import percent

        reached = "" if news.accuracy is None else f", {percent(news.accuracy)} of sampled answers right"
        steps = f"{news.steps} step{'s' * (news.steps != 1)}"
        print(f"warm-up, {news.task}, seed {news.seed}: {steps}{reached}", file=sys.stderr, flush=True)
        self.begin = time.monotonic()  # the time that is left is that of runs

    def __call__(self, news: News) -> None:
        from surefoot.report.wording import countdown, duration

        if self.before is None:
            self.before = news.done - 1  # what an earlier command had finished
        what = f"{news.done}/{news.of} {news.job}"
        if news.record is None:
            print(f"{what}: failed\n{news.trouble}", file=sys.stderr, flush=True)
            return
        left = (time.monotonic() - self.begin) / (news.done - self.before) * (news.of - news.done)
        rest = f", {countdown(left)} left" if news.done < news.of else ""
        print(f"{what}: {duration(news.record['seconds'])}{rest}", file=sys.stderr, flush=True)


def _page(folder: Path) -> Path | None:
    """The page of the comparison; a warning says why where it cannot be written."""
    from surefoot.errors import SurefootError
    from surefoot.report.comparison_page import write_comparison_report

    try:
        return write_comparison_report(folder)
    except (SurefootError, OSError) as error:
        warnings.warn(f"no report was written: {error}", stacklevel=2)
        return None


def show_comparison(found: dict[str, Any], folder: Path, page: Path | None = None) -> None:
    """A table for each task, one sentence for each arm, and what else must be known."""
    from surefoot.methods.compare.sentences import legend, sentences, table
    from surefoot.report.terminal import text_table

    width = output.console().width
    for task in found["tasks"]:
        if len(found["tasks"]) > 1:
            print(f"{task}\n")
        for lines in text_table(table(found, task), width):
            print("\n".join(lines), end="\n\n")
    for line in (legend(found), "", *sentences(found)):
        output.say(line)
    done, planned = found["seeds"], found["seeds_planned"]
    if len(done) < len(planned):
        output.say(f"{len(done)} of {len(planned)} seeds are finished.")
    output.say(f"The page: {page.resolve()}" if page is not None else f"Everything is in {folder.resolve()}")


def fit(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or .csv files with compute and reward.")
    ],
    unit: Annotated[
        str, typer.Option(help="Compute of a run: tokens (generated), steps, seconds or flops.")
    ] = "tokens",
    start: Annotated[float, typer.Option(help="Leave points with less compute out.")] = 0.0,
    initial: Annotated[float | None, typer.Option(help="Reward before training. [the first evaluation]")] = None,
    ceiling: Annotated[float, typer.Option(help="The largest reward that there can be.")] = 1.0,
    holdout: Annotated[float, typer.Option(help="Share of the compute that is fitted; the rest is held out.")] = 0.5,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw points, curves and bands (.svg or .png).")
    ] = None,
    quiet: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Fit held-out reward against compute, and say how sure the curve is."""
    from dataclasses import replace

    from surefoot.cli.show import show_json
    from surefoot.errors import ConfigError
    from surefoot.methods.scaling import fit_points, read_points

    if not 0 < holdout < 1:
        raise ConfigError(f"--holdout {holdout:g}: expected a share of the compute between 0 and 1, for instance 0.5")
    found = []
    for run in runs:
        _refuse_experiment(run)
        points = replace(read_points(run, unit=unit, initial=initial), name=str(run))
        found.append((points, *fit_points(points, start=start, ceiling=ceiling, share=holdout)))
    if plot is not None:
        from surefoot.report.fit_plot import plot_fits

        plot_fits([(points, one) for points, one, _ in found], plot)
        if not quiet:
            print(f"surefoot: wrote {plot}", file=sys.stderr)
    if as_json:
        show_json([record for *_, record in found])
        return
    for *_, record in found:
        for line in fit_lines(record):
            output.say(line)


def _refuse_experiment(folder: Path) -> None:
    from surefoot.errors import RunFolderError
    from surefoot.report.experiment import is_experiment

    if not is_experiment(folder):
        return
    arm = next((path for path in sorted((folder / "arms").glob("*/*")) if path.is_dir()), folder / "arms/TASK/ARM")
    raise RunFolderError(f"{folder} is an experiment, and a fit is of a run: surefoot fit {arm / 'seed-*'}")


def fit_lines(record: dict[str, Any]) -> list[str]:
    """A fit in a few lines."""
    unit = record["unit"]
    sure = f"{100 * record['confidence']:g} %"
    lines = [
        f"{record['name']}: {record['points']} points, reward before training {record['initial']:.3f}; "
        f"in brackets {sure} intervals"
    ]
    names = {"asymptote": "asymptote A", "midpoint": f"half of the gain at C_mid ({unit})", "exponent": "steepness B"}
    for key, name in names.items():
        one = record[key]
        low, high = ("open" if one[end] is None else f"{one[end]:,.4g}" for end in ("low", "high"))
        if key == "asymptote" and one["high"] is None:
            high = "open up to the ceiling"
        elif key == "asymptote" and math.isclose(one["high"], record["ceiling"]):
            high += " (the ceiling)"
        lines.append(f"  {name}: {one['value']:,.4g} [{low}, {high}]")
    if record["refusal"]:
        lines.append(f"  {record['refusal'][0].upper()}{record['refusal'][1:]}.")
    if (held := record["extrapolation"]) is not None:
        side = "too high" if held["bias"] > 0 else "too low"
        lines.append(
            f"  Fitted to the first {100 * held['share']:g} % of the compute, it predicts the other {held['points']} points with "
            f"a mean absolute error of {held['error']:.3f}, on average {side} by {abs(held['bias']):.3f}; "
            f"{100 * held['inside']:.0f} % of them lie in its {sure} band."
        )
    if (law := record["power_law"]) is not None:
        sigmoid, power = (sum(law[name]) / len(law[name]) for name in ("sigmoid", "power_law"))
        verdict = "neither predicts better" if law["better"] == "neither" else f"the {law['better']} predicts better"
        shares = ", ".join(f"{100 * share:g}" for share in law["shares"])
        lines.append(
            f"  Fitted to the first {shares} % of the compute and judged by the rest: root mean squared error of this curve "
            f"{sigmoid:.3f}, of a power law {power:.3f}; {verdict}."
        )
    return [*lines, *(f"  {note[0].upper()}{note[1:]}." for note in record["notes"])]
