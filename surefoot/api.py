"""The Python interface: ``train``, ``sft`` and ``evaluate``, from a configuration, files, keywords, or all of them.

With a reward of one's own::

    def reward(prompt, completion, answer):
        return float(completion.strip().endswith(str(answer)))

    surefoot.train("run.toml", reward=reward, train__steps=20)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.config import AlgorithmConfig
from surefoot.config import Section, merge, nested, read_toml, respelled, validate
from surefoot.errors import ConfigError, SurefootError
from surefoot.evaluation.evaluate import Evaluation
from surefoot.report.page import write_report
from surefoot.rewards.asynchronous import Limits
from surefoot.rewards.audit_findings import AuditReport
from surefoot.rewards.base import Reward
from surefoot.rewards.functions import as_reward
from surefoot.tasks.base import Task
from surefoot.tasks.check import as_task
from surefoot.training import loop
from surefoot.training import sft as supervised
from surefoot.training.assemble import assemble
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.loop import RunResult
from surefoot.training.progress import Progress
from surefoot.training.sft import SftResult
from surefoot.training.threads import set_threads

S = TypeVar("S", bound=Section)
Config = Section | Mapping[str, Any] | str | Path | Sequence[str | Path] | None
Watch = Callable[[Progress], None]

# The key of a section that plain text or a path stands for: ``train(algorithm="rloo", model="folder")``.
SHORT = {"algorithm": "preset", "model": "path", "task": "name", "reward": "verifier"}
DATA_FILES = (".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".jsonl.gz", ".csv.gz", ".tsv.gz")


def train(
    config: Config = None,
    *,
    reward: Any = None,
    task: Task | str | Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    **options: Any,
) -> RunResult:
    """Train a policy by reinforcement learning and write its run folder, with a report where the extra is installed.

    Args:
        config: a :class:`RunConfig`, a nested mapping, a TOML file, or several that are merged left to right.
        reward: a function ``(prompt, completion, answer) -> float`` or any other form that
            :func:`surefoot.rewards.functions.as_reward` takes, a list of several among them; the name of a verifier or a
            mapping sets the section.
        task: a :class:`Task`; a name, a data file (JSONL, Parquet) or a mapping sets the section.
        resume: go on with the run that the folder holds.
        watch: called with a :class:`Progress` after every step and evaluation.
        options: keys over the configuration, ``train__steps=5`` for ``train.steps``, or whole sections,
            ``train={"steps": 5}``, ``algorithm=presets.rloo``, ``model="a/folder"``.

    Raises:
        SurefootError: any mistake in the configuration, the data, the model or the reward.
    """
    if watch is not None and not callable(watch):
        raise ConfigError(f"watch = {watch!r}: expected a function that takes a Progress, or None")
    grader, options = _split("reward", reward, options)
    problems, options = _split("task", task, options, as_task)
    settings = configure(RunConfig, config, options)
    result = loop.train(settings, reward=_reward(grader, settings), task=problems, resume=resume, watch=watch)
    report(result.folder)
    return result


def sft(
    config: Config = None,
    *,
    reward: Any = None,
    task: Task | str | Path | Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> SftResult:
    """Train on the task's demonstrations. The arguments are those of :func:`train`, for a :class:`SftConfig`.

    Raises:
        SurefootError: any mistake in the configuration, the data or the model.
    """
    if watch is not None and not callable(watch):
        raise ConfigError(f"watch = {watch!r}: expected a function that takes a Progress, or None")
    grader, options = _split("reward", reward, options)
    problems, options = _split("task", task, options, as_task)
    settings = configure(SftConfig, config, options)
    return supervised.sft(settings, reward=_reward(grader, settings), task=problems, watch=watch)


def evaluate(
    model: str | Path | None = None,
    config: Config = None,
    *,
    samples: int | None = None,
    reward: Any = None,
    task: Task | str | Path | Mapping[str, Any] | None = None,
    **options: Any,
) -> Evaluation:
    """Measure avg@k and pass@k of a model on the held-out problems of a task, with intervals.

    Args:
        model: a Hugging Face folder or name; the model of the configuration where None.
        config: as for :func:`train`; the sections model, task, reward, rollout and evaluation are read.
        samples: k, samples per problem. More than one are sampled at temperature 1 unless
            ``evaluation.temperature`` is given.
        reward, task, options: as for :func:`train`.

    Raises:
        SurefootError: any mistake in the configuration, the data, the model or the reward.
    """
    grader, options = _split("reward", reward, options)
    problems, options = _split("task", task, options, as_task)
    if model is not None:
        options["model__path"] = str(model)
    if samples is not None:
        options["evaluation__samples"] = samples
    settings = configure(RunConfig, config, options)
    if settings.evaluation.samples > 1 and "temperature" not in settings.evaluation.model_fields_set:
        settings = configure(RunConfig, settings, {"evaluation__temperature": 1.0})
    set_threads(settings.train.threads)
    return assemble(settings, task=problems, reward=_reward(grader, settings)).evaluate(settings)


def audit(
    task: Task | str | Path | Mapping[str, Any] | None = None,
    config: Config = None,
    *,
    reward: Any = None,
    model: str | Path | None = None,
    samples: int = 8,
    prompts: int = 64,
    quick: bool = False,
    **options: Any,
) -> AuditReport:
    """Find out whether a reward can be fooled and whether it knows what is right; print ``report.record()``, or one finding.

    Args:
        task: a :class:`Task`; a name, a data file or a mapping sets the section.
        config: as for :func:`train`; the sections task and reward are read, and with a model also rollout.
        reward: what is audited, in any form that :func:`train` takes; the configuration's where None.
        model: a Hugging Face folder or name that is sampled, to see how its rewards spread; None samples none.
        samples: of each prompt.
        prompts: how many are looked at.
        quick: only what a run looks at before its first step.
        options: as for :func:`train`.

    Raises:
        SurefootError: any mistake in the configuration, the data, the model or the reward.
    """
    from surefoot.methods.audit import audit as look

    grader, options = _split("reward", reward, options)
    problems, options = _split("task", task, options, as_task)
    if model is not None:
        options["model__path"] = str(model)
    settings = configure(RunConfig, config, options)
    judge = _reward(grader, settings)
    return look(
        settings, task=problems, reward=judge, model=model is not None, samples=samples, prompts=prompts, quick=quick
    )


def configure(schema: type[S], config: Config = None, options: Mapping[str, Any] | None = None) -> S:
    """The configuration that :func:`train` makes of its arguments.

    Raises:
        ConfigError: an unknown key (with the nearest one), a bad value, a file that cannot be read.
    """
    if isinstance(config, schema) and not options:
        return config
    values = _values(schema, config)
    for name, value in (options or {}).items():
        if isinstance(value, Algorithm):  # a whole objective: nothing of the one in the file stays
            values = {key: part for key, part in values.items() if key != name}
        values = merge(values, respelled(schema, nested(name.replace("__", "."), _plain(name, value))))
    return validate(schema, values)


def report(folder: Path) -> Path | None:
    """Write ``report.html`` into the folder of a run that is over; a warning says why where it cannot be written."""
    try:
        return write_report(folder)
    except (SurefootError, OSError) as error:
        warnings.warn(f"no report was written: {error}", stacklevel=2)
        return None


def _values(schema: type[Section], config: Config) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Section):
        if not isinstance(config, schema):
            raise ConfigError(f"the configuration is a {type(config).__name__}: give a {schema.__name__}")
        return config.model_dump(exclude_unset=True)
    values: dict[str, Any] = {}
    if isinstance(config, Mapping):
        for name, value in config.items():
            values = merge(values, respelled(schema, nested(str(name), _plain(str(name), value))))
        return values
    files = [config] if isinstance(config, (str, Path)) else config
    if not isinstance(files, Sequence) or not all(isinstance(file, (str, Path)) for file in files):
        raise ConfigError(
            f"the configuration is {config!r:.80}: give a {schema.__name__}, a mapping, a TOML file or a list of files"
        )
    for file in files:
        values = merge(values, respelled(schema, read_toml(Path(file))))
    return values


def _plain(name: str, value: Any) -> Any:
    """An option as the configuration writes it."""
    if isinstance(value, Algorithm):
        return AlgorithmConfig.of(value).model_dump(exclude_unset=True)
    if isinstance(value, Section):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or name not in SHORT:
        return value
    if name == "task" and value.endswith(DATA_FILES):
        return {"name": "file", "path": value}
    return {SHORT[name]: value}


def _reward(grader: Any, settings: RunConfig | SftConfig) -> Reward | None:
    """What was given as ``reward=``, if it is more than a section of the configuration."""
    return None if grader is None else as_reward(grader, Limits(settings.reward.concurrency, settings.reward.deadline))


def _split(
    name: str, value: Any, options: Mapping[str, Any], convert: Callable[[Any], Any] = lambda value: value
) -> tuple[Any, dict[str, Any]]:
    """An argument that is either an object to use or a section of the configuration: (object, options)."""
    if value is None:
        return None, dict(options)
    if isinstance(value, (str, Path, Mapping, Section)):
        return None, {name: value, **options}
    return convert(value), dict(options)
