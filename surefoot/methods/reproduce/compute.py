"""Compute: more signal from each step, less spent on what is solved, and the early fit that says where a run will end."""

from __future__ import annotations

import math

import numpy as np

from surefoot.errors import DataError
from surefoot.evaluation.scaling_check import extrapolate
from surefoot.methods.reproduce.arms import ADDITION, COIN, COIN_CONTROL, LONG, Trained, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Control, Criterion, Measured
from surefoot.methods.reproduce.store import Bench

YU, KHATRI = "Yu et al., DAPO (arXiv 2503.14476)", "Khatri et al., The Art of Scaling RL Compute (arXiv 2510.13786)"


def rows_with_signal(runs: Trained, arm: str, *, half: bool = False) -> np.ndarray:
    """[steps], rows of each update that have an advantage; with ``half`` of the second half of the run."""
    values = runs.course(arm, "batch/rows_with_advantage")
    return values[len(values) // 2 :] if half else values


def sampled(runs: Trained, arm: str, size: int, *, half: bool = False) -> np.ndarray:
    """[steps], completions that were sampled for each update."""
    values = runs.course(arm, "batch/groups_sampled") * size
    return values[len(values) // 2 :] if half else values


def measure_signal(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, ADDITION, "all_tokens", "refill")
    size = claim.settings["group_size"]
    signal = {arm: rows_with_signal(runs, arm) for arm in ("all_tokens", "refill")}
    planned = float(sampled(runs, "all_tokens", size)[0])
    worth = {arm: float(signal[arm].sum() / sampled(runs, arm, size).sum()) for arm in signal}
    return {
        "signal": float((signal["refill"].mean() - signal["all_tokens"].mean()) / planned),
        "accuracy": runs.against("refill", "all_tokens"),
        "sampled": float(sampled(runs, "refill", size).sum() / sampled(runs, "all_tokens", size).sum()),
        CONTROL: worth["refill"] - worth["all_tokens"],
    }


DYNAMIC_SAMPLING = Claim(
    name="dynamic-sampling",
    title="dynamic sampling raises the signal of each step",
    paper=YU,
    hypothesis="Refilling the batch until every prompt has right and wrong answers gives updates more rows with an advantage.",
    criteria=(
        Criterion(
            "signal",
            "share of the batch's rows with an advantage, refilled minus plain, mean over 24 steps",
            "above",
            0.05,
            "one row in twenty",
        ),
    ),
    control=Control(
        "rows with an advantage for each completion that was sampled, refilled minus plain: filtering makes no information",
        -0.1,
        0.05,
    ),
    seeds=tuple(range(5)),
    seconds=450,
    measure=measure_signal,
    settings={"group_size": 8},
    prepare=preparing(ADDITION, "all_tokens", "refill"),
)


def measure_solved(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, LONG, "scalerl", "unfiltered")
    size = claim.settings["group_size"]
    worth = {
        arm: float(rows_with_signal(runs, arm, half=True).sum() / sampled(runs, arm, size, half=True).sum())
        for arm in ("scalerl", "unfiltered")
    }
    rows = {arm: float(runs.course(arm, "batch/rows_kept").sum()) for arm in worth}
    return {
        "worth": worth["scalerl"] - worth["unfiltered"],
        "rows": rows["scalerl"] / rows["unfiltered"],
        "accuracy": runs.against("scalerl", "unfiltered"),
        CONTROL: runs.gain(COIN),
    }


SOLVED_PROMPTS = Claim(
    name="solved-prompts",
    title="no-positive-resampling and the zero-variance filter save compute",
    paper=KHATRI,
    hypothesis="Without solved prompts and groups without signal, samples are worth more and updates smaller, at equal accuracy.",
    criteria=(
        Criterion(
            "worth",
            "rows with an advantage for each completion sampled, second half of 96 steps over 256 problems, filtered minus not",
            "above",
            0.02,
            "two samples in a hundred that would have been wasted",
        ),
        Criterion(
            "rows", "rows in the updates, filtered over unfiltered", "below", 0.95, "a twentieth of the training saved"
        ),
        Criterion("accuracy", "held-out accuracy, filtered minus unfiltered", "above", -0.03, "not worse by 3 points"),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(4)),
    seconds=900,
    measure=measure_solved,
    settings={"group_size": 8},
    prepare=preparing(LONG, "scalerl", "unfiltered"),
)


def measure_forecast(bench: Bench, claim: Claim, seed: int) -> Measured:
    """Fit the first part of the run, predict the rest; beside it, that everything stays as it is where the fit ends."""
    runs = trained(bench, claim, seed, LONG, "scalerl")
    run = runs.runs["scalerl"]
    points = [
        (
            run.spent("tokens_generated", int(record["step"])),
            sum(record["right"]) / record["samples"] / len(record["right"]),
        )
        for record in run.evaluations
    ]
    (_, initial), rest = points[0], points[1:]
    compute, reward = np.array([point[0] for point in rest]), np.array([point[1] for point in rest])
    share = claim.settings["share"]
    seen = compute <= share * compute.max()
    stays = float(np.abs(reward[~seen] - reward[seen][-1]).mean())
    try:
        forecast = extrapolate(compute, reward, initial, share=share)
        error, inside = forecast.error, forecast.inside
    except DataError:  # the early part has not risen enough to be fitted
        error, inside = math.nan, math.nan
    return {"error": error, "gain": stays - error, "inside": inside, "stays": stays, CONTROL: runs.gain(COIN)}


FORECAST = Claim(
    name="scalerl-forecast",
    title="ScaleRL's early fit predicts the later reward of its run",
    paper=KHATRI,
    hypothesis="A sigmoid fitted to the first half of a run's compute predicts held-out accuracy in the second half.",
    criteria=(
        Criterion(
            "error",
            "mean absolute error of the predicted accuracy in the second half of the compute (evaluations of 192 x 4 samples)",
            "below",
            0.05,
            "the paper's own scatter is 2 points on 1000 problems x 16 samples; these evaluations alone have 2",
        ),
        Criterion(
            "gain",
            "how much smaller that error is than that of 'it stays as it is'",
            "above",
            0.0,
            "a forecast that is no better than none is none",
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(4)),
    seconds=900,
    measure=measure_forecast,
    settings={"share": 0.5},
    prepare=preparing(LONG, "scalerl"),
)

CLAIMS = (DYNAMIC_SAMPLING, SOLVED_PROMPTS, FORECAST)
