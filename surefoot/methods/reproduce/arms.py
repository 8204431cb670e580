"""Training runs that the claims share: four bases, and for each the arms that some claim asks for.

A base is one experiment of :mod:`surefoot.methods.compare`: the same warm start, the same prompts in the same order and the same
held-out problems for all of its arms at a seed. A claim runs the arms that it names; an arm that another claim has run is there.
Every base has an arm whose reward is a coin toss, which must not learn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.algorithms import kl, prompts, ratios, reset, selection, shaping, weights
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.config import AlgorithmConfig
from surefoot.algorithms.presets import PRESETS
from surefoot.config import merge
from surefoot.errors import DataError
from surefoot.evaluation.passk import pass_at_k
from surefoot.methods.compare.experiment import Experiment, Job, make_experiment
from surefoot.methods.compare.results import RunRecord, read_runs
from surefoot.methods.compare.schedule import News, run_all, warm_up
from surefoot.methods.demo import ROLLOUT, TASK, warm_up_config
from surefoot.methods.reproduce import materials
from surefoot.methods.reproduce.claim import Claim, Control
from surefoot.methods.reproduce.store import Bench
from surefoot.training.folder import run_path

ADDITION, FILLER, LONG, EXPERTS = "addition", "filler", "long", "experts"
COIN = "coin"
ENDS = 5  # steps at the beginning and at the end of a run over which its metrics are averaged
COIN_CONTROL = Control(
    "held-out accuracy gained by the same training with a coin toss as reward (must not exceed 2 points)", -1.0, 0.02
)


def arm(algorithm: Algorithm, **keys: Any) -> dict[str, Any]:
    """An arm of an experiment: an objective, and the keys of the run that differ."""
    return {"algorithm": AlgorithmConfig.of(algorithm).model_dump(exclude_none=True), **keys}


token, grpo, dr_grpo = PRESETS["grpo_token"], PRESETS["grpo"].but(kl=kl.none()), PRESETS["dr_grpo"]
scalerl = PRESETS["scalerl"].but(interruption="none")  # its phrase has twice the characters of the budget
prorl = PRESETS["prorl"].but(kl={"coef": 0.1}, selection=selection.keep())
MANY = {"train": {"updates_per_step": 4, "epochs": 2}}
ROUNDED = {"rollout": {"quantise": "int8"}}

ARMS: dict[str, dict[str, dict[str, Any]]] = {
    ADDITION: {
        "all_tokens": arm(token),
        COIN: arm(token, control="coin"),
        "top20": arm(token.but(weights=weights.high_entropy(share=0.2))),
        "low80": arm(token.but(weights=weights.high_entropy(share=0.8, side="low"))),
        "refill": arm(token.but(selection=selection.refill(rounds=10))),
        "grpo_once": arm(token.but(aggregation="seq_mean_token_sum"), train={"updates_per_step": 1}),
        "maxrl_once": arm(PRESETS["maxrl"], train={"updates_per_step": 1}),
        "clip20": arm(token, **MANY),
        "clip28": arm(token.but(trust={"high": 0.28}), **MANY),
        "dppo": arm(PRESETS["dppo_tv"]),
        "dppo_rounded": arm(PRESETS["dppo_tv"], **ROUNDED),
        "clip_rounded": arm(dr_grpo.but(ratio=ratios.token(anchor="behaviour")), **ROUNDED),
    },
    FILLER: {
        "grpo": arm(grpo),
        "dr_grpo": arm(dr_grpo),
        "overlong": arm(grpo.but(shaping=shaping.soft_overlong(share=0.2))),
        "length_reward": arm(grpo.but(shaping=shaping.length_reward(weight=0.5))),
        COIN: arm(grpo, control="coin"),
    },
    LONG: {
        "scalerl": arm(scalerl),
        "unfiltered": arm(scalerl.but(prompts=prompts.in_order(), selection=selection.keep())),
        "resets": arm(prorl),
        "no_resets": arm(prorl.but(reset=reset.never())),
        COIN: arm(scalerl, control="coin"),
    },
    EXPERTS: {
        "token_ratio": arm(grpo),
        "sequence_ratio": arm(PRESETS["gspo"]),
        COIN: arm(grpo, control="coin"),
    },
}

_TRAIN = {"steps": 24, "prompts_per_step": 32, "group_size": 8, "updates_per_step": 2, "micro_batch_tokens": 8192}
_BASE: dict[str, Any] = {
    "task": TASK,
    "rollout": ROLLOUT,
    "train": _TRAIN,
    "optimiser": {"lr": 3e-4, "warmup_steps": 5},
    "evaluation": {"every": 0, "problems": 192, "samples": 8, "temperature": 1.0},
    "checkpoint": {"every": 12, "keep_last": 1, "keep_best": False},
    "track": {"samples_per_step": 0},
}
_WARM_KEYS = {"rollout", "optimiser", "evaluation", "steps", "batch", "error_rate", "target_accuracy", "check_every"}
_WARM_UP = warm_up_config(Path("."), 0).model_dump(include=_WARM_KEYS, exclude_defaults=True)


def _addition(bench: Bench) -> dict[str, Any]:
    """The demonstration's task and warm start, at the settings of ``benchmarks/learning``."""
    return {"base": _BASE, "warm_up": _WARM_UP}


def _filler(bench: Bench) -> dict[str, Any]:
    """Two-digit additions after 0 to 12 idle characters that nothing asks for; the budget cuts the longest completions."""
    train, heldout = materials.filler_files(bench.runs / "materials")
    task = {"name": "file", "path": str(train), "heldout_path": str(heldout), "heldout_size": 192, "template": "plain"}
    rollout = {"temperature": 1.0, "max_new_tokens": materials.FILLER_BUDGET}
    warm = merge(_WARM_UP, {"rollout": {"max_new_tokens": 64}, "target_accuracy": 0.4}) | {"error_rate": 0.0}
    return {"base": {**_BASE, "task": task, "rollout": rollout}, "warm_up": warm}


def _long(bench: Bench) -> dict[str, Any]:
    """Four times as many steps, over few enough problems that they come back; rewards of 1 and -1 as ScaleRL has them."""
    changes = {
        "task": {"train_size": 256},
        "train": {"steps": 96},
        "reward": {"wrong": -1.0},
        "evaluation": {"every": 6, "samples": 4},
    }
    return {"base": merge(_BASE, changes), "warm_up": merge(_WARM_UP, {"error_rate": 0.1})}


def _experts(bench: Bench) -> dict[str, Any]:
    """Two-digit additions by a small mixture of experts, of which each token takes two."""
    path = materials.experts_model(bench.runs / "materials")
    task = {**TASK, "options": {"digits": 2}, "train_size": 4000}
    model = {"model": {"path": str(path)}}
    changes = {"rollout": {"max_new_tokens": 28}, "evaluation": {"samples": 4}}
    warm = merge(merge(_WARM_UP, {"rollout": {"max_new_tokens": 28}}), model)
    return {"base": merge(merge({**_BASE, "task": task}, changes), model), "warm_up": warm}


BASES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    ADDITION: _addition,
    FILLER: _filler,
    LONG: _long,
    EXPERTS: _experts,
}


def experiment(bench: Bench, claim: Claim, base: str, arms: Sequence[str] = ()) -> Experiment:
    """The base with some of its arms.

    ``claim.settings`` may hold ``base_keys`` and ``warm_keys``, tables over those of the base (a quicker look); the experiment
    then has a folder of its own.

    Args:
        bench, claim: as in :attr:`Claim.measure`.
        base: which.
        arms: by name; the first is the baseline. None: the first two, for the warm start's sake.
    """
    made = BASES[base](bench)
    changes = {key: claim.settings[key] for key in ("base_keys", "warm_keys") if key in claim.settings}
    made["base"] = merge(made["base"], claim.settings.get("base_keys", {}))
    made["warm_up"] = merge(made["warm_up"], claim.settings.get("warm_keys", {}))
    name = base
    if changes:
        text = json.dumps(changes, sort_keys=True)
        name += f"-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
    chosen = arms or tuple(ARMS[base])[:2]
    return make_experiment(
        {
            **made,
            "name": name,
            "runs": str(bench.runs),
            "seeds": claim.seeds,
            "jobs": bench.jobs,
            "arms": {key: ARMS[base][key] for key in chosen},
        }
    )


def warm_start(made: Experiment, seed: int) -> Path:
    """The folder of the model that all arms of a seed start from; made where it is not there."""
    task = made.tasks[0]
    warm_up(made, task, seed)
    config = made.warm_up(task, seed)
    assert config is not None
    return run_path(config) / "model"


def preparing(base: str, *arms: str) -> Callable[[Bench, Claim], None]:
    """What makes the runs of a claim: these arms and the coin toss, for every seed."""

    def prepare(bench: Bench, claim: Claim) -> None:
        def say(news: News) -> None:
            bench.say(f"{claim.name}: {news.done}/{news.of} {news.job}" + (": failed" if news.trouble else ""))

        failed = run_all(experiment(bench, claim, base, (*arms, COIN)), say)
        if failed:
            raise DataError(
                f"{claim.name}: {len(failed)} training runs failed, the first of them ({failed[0].job}) with\n{failed[0].trouble}"
            )

    return prepare


@dataclass(frozen=True)
class Trained:
    """The finished runs of a claim at one seed.

    Attributes:
        runs: by arm.
    """

    runs: Mapping[str, RunRecord]

    def right(self, arm: str, at: int = -1) -> np.ndarray:
        """[P], share of right samples of each held-out problem at an evaluation (the last; 0: before the first step)."""
        found = self.runs[arm].evaluations[at]
        return np.asarray(found["right"]) / found["samples"]

    def passed(self, arm: str, k: int, at: int = -1) -> np.ndarray:
        """[P], pass@k of each held-out problem."""
        found = self.runs[arm].evaluations[at]
        return pass_at_k(np.asarray(found["right"]), found["samples"], k)

    def against(self, arm: str, baseline: str) -> list[float]:
        """[P], the difference of their accuracies, problem by problem."""
        return (self.right(arm) - self.right(baseline)).tolist()

    def gain(self, arm: str) -> list[float]:
        """[P], accuracy after minus accuracy before."""
        return (self.right(arm) - self.right(arm, 0)).tolist()

    def metric(self, arm: str, name: str, *, last: int = ENDS, first: int = 0) -> float:
        """The mean of a metric over the last steps, or with ``first`` over the first."""
        values = [record[name] for record in self.runs[arm].metrics if record.get(name) is not None]
        chosen = values[:first] if first else values[-last:]
        return float(np.mean(chosen)) if chosen else float("nan")

    def course(self, arm: str, name: str) -> np.ndarray:
        """[steps], a metric."""
        return np.array([record[name] for record in self.runs[arm].metrics], dtype=np.float64)


def trained(bench: Bench, claim: Claim, seed: int, base: str, *arms: str) -> Trained:
    """The runs of these arms and of the coin toss at a seed."""
    made = experiment(bench, claim, base, (*arms, COIN))
    runs = read_runs(made)
    return Trained({name: runs[Job(made.tasks[0], name, seed)] for name in made.arms})
