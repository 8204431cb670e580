"""Which tokens training needs, and what resets do to a run that has come to a stop."""

from __future__ import annotations

import numpy as np

from surefoot.methods.reproduce.arms import ADDITION, COIN, COIN_CONTROL, LONG, preparing, trained
from surefoot.methods.reproduce.claim import CONTROL, Claim, Criterion, Measured
from surefoot.methods.reproduce.store import Bench


def measure_tokens(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, ADDITION, "all_tokens", "top20", "low80")
    return {
        "top20": runs.against("top20", "all_tokens"),
        "low80": runs.against("low80", "all_tokens"),
        CONTROL: runs.gain(COIN),
    }


HIGH_ENTROPY = Claim(
    name="high-entropy",
    title="a fifth of the tokens, those of highest entropy, is enough, and the other four fifths are not",
    paper="Wang et al., Beyond the 80/20 Rule (arXiv 2506.01939)",
    hypothesis="Training on the 20 % of tokens with the highest entropy is not worse than on all; on the other 80 % it is.",
    criteria=(
        Criterion("top20", "held-out accuracy, top 20 % minus all tokens", "above", -0.03, "not worse by 3 points"),
        Criterion("low80", "held-out accuracy, the other 80 % minus all tokens", "below", 0.0, "the sign is the claim"),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(5)),
    seconds=500,
    measure=measure_tokens,
    prepare=preparing(ADDITION, "all_tokens", "top20", "low80"),
)


def measure_resets(bench: Bench, claim: Claim, seed: int) -> Measured:
    runs = trained(bench, claim, seed, LONG, "resets", "no_resets")
    half = len(runs.runs["no_resets"].evaluations) // 2
    later = {arm: (runs.right(arm) - runs.right(arm, half)).mean() for arm in ("resets", "no_resets")}
    return {
        "end": runs.against("resets", "no_resets"),
        "later": float(later["resets"]),
        "later_without": float(later["no_resets"]),
        "kl": float(np.nan_to_num(runs.metric("no_resets", "policy/kl_reference"))),
        CONTROL: runs.gain(COIN),
    }


PRORL_RESETS = Claim(
    name="prorl-resets",
    title="resets of the reference let a run go on improving where the KL term holds it",
    paper="Liu et al., ProRL: Prolonged Reinforcement Learning (arXiv 2505.24864)",
    hypothesis="With a KL term that holds the policy (0.1 here), resetting reference and optimiser on stagnation ends higher.",
    criteria=(
        Criterion(
            "end", "held-out accuracy after 96 steps, with resets minus without", "above", 0.0, "the sign is the claim"
        ),
        Criterion(
            "later",
            "held-out accuracy gained in the second half of the run with resets",
            "above",
            0.0,
            "it goes on improving",
        ),
    ),
    control=COIN_CONTROL,
    seeds=tuple(range(4)),
    seconds=900,
    measure=measure_resets,
    prepare=preparing(LONG, "resets", "no_resets"),
)

CLAIMS = (HIGH_ENTROPY, PRORL_RESETS)
