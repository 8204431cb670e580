"""The commands: read the configuration, call the library, print what came out.

PyTorch and Transformers take seconds to import; they are imported inside the commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import output
from surefoot.cli.stopped import told_what_is_left

if TYPE_CHECKING:
    from surefoot.algorithms.card import Objective
    from surefoot.training.config import RunConfig

KEYS = "Every key of the configuration is an option too, and comes over the files: {}"
EPILOGS = {
    "train": KEYS.format("--optimiser.lr 1e-4 --track.tensorboard true"),
    "sft": KEYS.format("--steps 300 --optimiser.lr 1e-3"),
    "evaluate": KEYS.format("--evaluation.problems 500 --task.options.digits 3"),
    "audit": KEYS.format("--task.options.digits 3 --reward.verifier number"),
    "cards": KEYS.format("--algorithm.aggregation token_mean --algorithm.kl none"),
    "compare": KEYS.format("--seeds 3 --base.train.steps 20"),
    "doctor": KEYS.format("--model.path FOLDER --task.name addition"),
}

EXPERIMENT = ("arms", "base", "seeds")  # keys of an experiment that no run has

Configs = Annotated[list[Path], typer.Argument(metavar="CONFIG", help="TOML files, merged left to right.")]
SomeConfigs = Annotated[
    list[Path] | None, typer.Argument(metavar="CONFIG", help="TOML files, merged left to right.", show_default=False)
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", hidden=True)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Accepted by every command; this one has no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the model, the problems and the sampling.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the two runs. [runs/demo, or the next that is free]")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach a tiny model to add: warm-up, RL, report (3 minutes)."""
    from surefoot import api
    from surefoot.methods.demo import run_demo
    from surefoot.report.terminal import ProgressView

    with ProgressView(quiet=quiet or as_json) as watch:
        result = run_demo(out or _free(Path("runs/demo")), seed, watch)
    api.report(result.run.folder)
    _show_run(result.run, 0.95, as_json)
    if not as_json:
        print(f"\nThe same by hand: surefoot evaluate {result.run.model} --samples 4")


def train(
    context: typer.Context,
    configs: Configs,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the configuration, the batch arithmetic and the memory; write nothing."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the run folder.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Improve a model by reinforcement learning."""
    from surefoot.training.config import RunConfig

    config = read_config(RunConfig, configs, pairs, context)
    if dry_run:
        _dry_run(config, as_json)
        return
    from surefoot import api
    from surefoot.report.terminal import ProgressView

    with told_what_is_left(config, context.obj, resume), ProgressView(quiet=quiet or as_json) as watch:
        result = api.train(config, resume=resume, watch=watch)
    _show_run(result, config.evaluation.confidence, as_json)


def sft(
    context: typer.Context,
    configs: Configs,
    quiet: Quiet = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Train a model on demonstrations of a task."""
    from surefoot import api
    from surefoot.report.terminal import ProgressView
    from surefoot.training.config import SftConfig

    config = read_config(SftConfig, configs, pairs, context)
    with told_what_is_left(config, context.obj, None), ProgressView(quiet=quiet or as_json) as watch:
        result = api.sft(config, watch=watch)
    _show_run(result, config.evaluation.confidence, as_json)


def evaluate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hugging Face folder or name, or 'embedded'.")],
    configs: SomeConfigs = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Task, or a .jsonl or .parquet file. [the configuration's]")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="K", help="Samples per problem; more than 1 are drawn at temperature 1. [1]")
    ] = None,
    quiet: NoProgress = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Measure avg@k and pass@k on held-out problems, with intervals."""
    from surefoot import api
    from surefoot.cli.show import show_evaluation, show_json
    from surefoot.training.config import RunConfig

    made_by = Path(model).parent / "config.toml"
    if not configs and task is None and (Path(model) / "config.json").exists() and made_by.exists():
        configs = [made_by]  # the model of a run, measured on what the run was about
    config = read_config(RunConfig, configs or (), pairs, context)
    record = api.evaluate(model, config, task=task, samples=samples).record(0)
    record.pop("step", None)
    if as_json:
        show_json(record)
    else:
        where = f" (from {made_by})" if configs == [made_by] else ""
        print(f"task {task or config.task.name}, verifier {config.reward.verifier}{where}\n")
        show_evaluation(output.console(), record, config.evaluation.confidence)


def doctor(
    context: typer.Context,
    configs: SomeConfigs = None,
    quiet: NoProgress = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """Check versions, task, template, engine and trainer."""
    from dataclasses import asdict

    from surefoot.cli.show import show_checks, show_json
    from surefoot.methods.doctor import examine
    from surefoot.training.config import RunConfig

    checks = examine(read_config(RunConfig, configs or (), pairs, context))
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        show_checks(output.console(), checks)
    if any(check.outcome == "fail" for check in checks):
        raise typer.Exit(1)


def cards(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PRESET|CONFIG",
            help="Names of objectives; TOML files whose [algorithm] varies them. None: list all.",
            show_default=False,
        ),
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Compare two, part by part.")] = False,
    quiet: NoProgress = False,
    as_json: Json = False,
    pairs: Set = None,
) -> None:
    """List the objectives, print the equation of one or what a part does, compare two."""
    from surefoot.algorithms.card import card
    from surefoot.cli import cards as library
    from surefoot.cli import parts
    from surefoot.cli.show import show_json

    console = output.console()
    if not (words or pairs or diff):
        if as_json:
            show_json([library.entry(one) for family in library.FAMILIES.values() for one in family.values()])
        else:
            library.show_families(console)
        return
    if diff:
        chosen = [one for word in words or () for one in _objectives([word], pairs, context)]
        one, other = library.check_pair(chosen)
        if as_json:
            found = library.differences(one, other)
            show_json({"from": library.record(one), "to": library.record(other), "differences": found})
        else:
            library.show_difference(console, one, other, words or ())
        return
    if words and not any(library.known(word) for word in words) and all(parts.kinds(word) for word in words):
        print("\n".join(parts.described(kind) for word in words for kind in parts.kinds(word)), end="")
        return
    chosen = _objectives(words or (), pairs, context)
    if as_json:
        records = [library.record(one) for one in chosen]
        show_json(records[0] if len(records) == 1 else records)
    elif console.is_terminal:
        for one in chosen:
            library.show_card(console, one)
    else:
        print("\n".join(card(one) for one in chosen), end="")


def _objectives(words: Sequence[str], pairs: Sequence[str] | None, context: typer.Context) -> list[Objective]:
    """The objectives that are named, each under the configuration that files and options make; without a name, its own."""
    from surefoot.cli import cards as library

    def varied(*preset: str) -> Objective:
        from surefoot.training.config import RunConfig

        given = [*(pairs or ()), *(f"algorithm.preset={name}" for name in preset)]
        return read_config(RunConfig, files, given, context).algorithm.build()

    # Not Path.exists, which fails on a word that is too long for a file's name; and "" is no folder here.
    def is_file(word: str) -> bool:
        return bool(word.strip()) and not library.known(word) and (Path(word).suffix != "" or os.path.exists(word))

    files = [Path(word) for word in words if is_file(word)]
    names = [word for word in words if not is_file(word)]
    if not names:
        return [varied()]
    return [library.find(name, varied if files or pairs else None) for name in names]


def _free(folder: Path) -> Path:
    """The folder, or the first of ``folder-2``, ``folder-3`` ... that is not there yet."""
    number = 1
    free = folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def read_config(schema: Any, files: Sequence[Path], pairs: Sequence[str] | None, context: typer.Context) -> Any:
    """The configuration that files and dotted options make, in this order.

    Raises:
        ConfigError: see :func:`surefoot.config.load`; a file of problems, or an experiment, in the place of a configuration.
    """
    from surefoot.cli import options
    from surefoot.config import load, read_toml
    from surefoot.errors import ConfigError
    from surefoot.tasks.readers import kind_of

    for file in files:
        if kind_of(file):
            raise ConfigError(
                f"{file} is a data file, not a configuration, which is TOML: give it as --task.name file --task.path {file}"
            )
        strangers = [key for key in EXPERIMENT if key not in schema.model_fields and key in read_toml(file)]
        if strangers:
            raise ConfigError(
                f"{file} looks like an experiment ({', '.join(strangers)}): run it with `surefoot compare {file}`"
            )
    return load(schema, list(files), options.read(pairs or (), schema, options.declared(context.command)))


def _dry_run(config: RunConfig, as_json: bool) -> None:
    from dataclasses import asdict

    from surefoot.cli.show import show_json
    from surefoot.config import dump_toml
    from surefoot.policy.lora import own_parameters
    from surefoot.training.arithmetic import Arithmetic, Shape, describe, memory
    from surefoot.training.assemble import assemble

    parts = assemble(config)
    model = parts.policy.model
    every, learned = model.parameters(), own_parameters(model).values()
    numbers = [sum(parameter.numel() for parameter in parameters) for parameters in (every, learned)]
    shape = Shape.of(model.config, numbers[0], numbers[1] if config.model.lora.used else None)
    prompts = [*parts.task.train, *parts.task.heldout]
    longest = max(len(parts.renderer.ids(prompt)) for prompt in prompts)
    sizes = {"longest_prompt": longest, "train_size": len(parts.task.train), "heldout_size": len(parts.task.heldout)}
    if as_json:
        batch = {**sizes, **asdict(Arithmetic.of(config, longest))}
        show_json({"config": config.resolved(), "batch": batch, "memory": memory(config, shape, longest)})
        return
    print(dump_toml(config.resolved()))
    print(describe(config, shape, **sizes))


def _show_run(result: Any, confidence: float, as_json: bool) -> None:
    from surefoot.cli.show import show_json, show_run

    if as_json:
        show_json({"folder": str(result.folder), **result.summary})
    else:
        show_run(output.console(), result.folder, result.summary, confidence)
