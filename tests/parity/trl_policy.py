"""Advantages and losses against TRL's ``GRPOTrainer`` and ``RLOOTrainer``."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.algorithms.algorithm import Algorithm
from tests.parity import surefoot_side as ours
from tests.parity import trl_side as trl
from tests.parity.batches import drawn, drawn_per_token, random_batch
from tests.parity.registry import FLOAT32, Outcome, compare
from tests.parity.verl_advantages import GROUP_MEAN, GROUP_NORM

SCORE = "GRPOTrainer._generate_and_score_completions"
LOSS = "GRPOTrainer._compute_loss"
BUDGET, NARROW = 32.0, 5e-4


@compare(
    "trl",
    GROUP_NORM,
    "advantage",
    SCORE,
    differs="TRL adds 1e-4 to the standard deviation, Surefoot 1e-6",
)
def group_norm(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    changed = ours.preset(name, advantage={"eps": 1e-4})
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch)},
        {"advantage": trl.advantage(batch)},
        {"advantage": ours.advantage(changed, batch)},
    )


@compare("trl", GROUP_MEAN, "advantage, `scale_rewards='none'`, with rewards that are missing", SCORE)
def group_mean(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(5, 5, 5))
    reward = batch.reward.clone()
    reward[[1, 7]] = float("nan")
    return Outcome(
        {"advantage": ours.advantage(ours.preset(name), batch, reward=reward)},
        {"advantage": trl.advantage(batch, reward[:, None], scale_rewards="none")},
    )


@compare(
    "trl",
    "gdpo",
    "advantage, `multi_objective_aggregation='normalize_then_sum'`",
    SCORE,
    differs="TRL adds 1e-4 to both standard deviations, Surefoot 1e-6",
)
def decoupled(name: str, seed: int) -> Outcome:
    batch = random_batch(seed)
    weighted = ours.preset(name, advantage={"weights": {"first": 1.0, "second": 0.5}})
    options: dict[str, Any] = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]}
    return Outcome(
        {"advantage": ours.advantage(weighted, batch)},
        {"advantage": trl.advantage(batch, batch.components, **options)},
        {"advantage": ours.advantage(weighted.but(advantage={"eps": 1e-4}), batch)},
    )


@compare(
    "trl",
    "rloo",
    "KL in the reward, then the advantage, with a missing reward",
    "RLOOTrainer._generate_and_score_completions",
)
def leave_one_out(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, holes=False)
    reward = batch.reward.clone()
    reward[2] = float("nan")
    algorithm = ours.PRESETS[name]
    return Outcome(
        {"advantage": ours.advantage(algorithm, batch, reward=reward)},
        {"advantage": trl.advantage(batch, reward[:, None], trainer="RLOO", beta=algorithm.kl.coef)},
    )


@compare(
    "trl",
    "rloo",
    "loss",
    "RLOOTrainer._compute_loss",
    differs="TRL clips the product of a row's token ratios to 1 +- 0.2 (`ratio='sequence_sum'`); Surefoot has no ratio",
)
def leave_one_out_loss(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=0.1)
    changed = ours.preset("grpo", ratio="sequence_sum")
    return Outcome(
        ours.loss(ours.preset(name), batch, given),
        trl.policy_loss(batch, given[:, 0], trainer="RLOO"),
        ours.loss(changed, batch, given),
    )


def settings(algorithm: Algorithm) -> dict[str, Any]:
    """TRL's configuration of the same clipping, aggregation and KL term."""
    kinds = {"seq_mean_token_mean": "grpo", "token_mean": "dapo", "seq_mean_token_sum_norm": "dr_grpo"}
    options: dict[str, Any] = {"loss_type": kinds[algorithm.aggregation.name], "max_completion_length": int(BUDGET)}
    options |= {"epsilon": algorithm.trust.low, "epsilon_high": algorithm.trust.high}
    if "row" in algorithm.ratio.kind.traits:
        options["importance_sampling_level"] = "sequence"
    if "loss" in algorithm.kl.kind.traits:
        assert algorithm.kl.estimator == "k3"
        options |= {"beta": algorithm.kl.coef, "use_bias_correction_kl": False}
    return options


@compare("trl", "grpo grpo_token dr_grpo dapo prorl", "loss with its KL term, an advantage per token", LOSS)
def clipped(name: str, seed: int) -> Outcome:
    batch, given = drawn_per_token(seed)
    algorithm = ours.without_kl_in_reward(name)
    theirs = trl.policy_loss(batch, given, **settings(algorithm))
    return Outcome(ours.loss(algorithm, batch, given, constant=BUDGET), theirs)


@compare(
    "trl",
    "grpo prorl",
    "KL term with TRL's default `use_bias_correction_kl=True`",
    LOSS,
    differs="TRL multiplies k3 by the ratio pi / pi_old, with its gradient; on policy that is Surefoot's `k3_ratio`",
)
def corrected_kl(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed)
    batch, algorithm = ours.on_policy(batch), ours.without_kl_in_reward(name)
    options = {**settings(algorithm), "use_bias_correction_kl": True}
    return Outcome(
        ours.loss(algorithm, batch, given),
        trl.policy_loss(batch, given[:, 0], **options),
        ours.loss(algorithm.but(kl={"estimator": "k3_ratio"}), batch, given),
    )


@compare(
    "trl",
    "grpo gspo gspo_token dr_grpo",
    "loss with empty rows",
    LOSS,
    differs="TRL counts rows without a loss token in the mean over rows; Surefoot does not",
)
def empty_rows(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, empty=2, drift=NARROW if "gspo" in name else 0.4)
    algorithm, rows = ours.preset(name), float(len(batch.mask))
    return Outcome(
        ours.loss(algorithm, batch, given, constant=BUDGET),
        trl.policy_loss(batch, given[:, 0], **settings(algorithm)),
        ours.loss(algorithm, batch, given, constant=BUDGET, totals={"sequences": rows}),
    )


@compare("trl", "trust.dual_clip", "loss with `delta=3`", LOSS)
def dual_clip(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=2.0)
    algorithm = ours.preset("grpo_token", trust={"kind": "dual_clip", "bound": 3.0})
    return Outcome(ours.loss(algorithm, batch, given), trl.policy_loss(batch, given[:, 0], delta=3.0))


@compare("trl", "gspo gspo_token", "loss, `importance_sampling_level='sequence'`, `loss_type='grpo'`", LOSS)
def sequence_ratio(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=NARROW)
    algorithm = ours.preset(name)
    return Outcome(ours.loss(algorithm, batch, given), trl.policy_loss(batch, given[:, 0], **settings(algorithm)))


@compare(
    "trl",
    "gspo gspo_token",
    "loss, `importance_sampling_level='sequence'` with the default `loss_type='dapo'`",
    LOSS,
    differs="TRL then weighs rows by their number of tokens; Surefoot refuses that combination",
)
def sequence_ratio_default(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=NARROW)
    algorithm = ours.preset(name)
    share = batch.lengths / batch.lengths.double().mean()
    return Outcome(
        ours.loss(algorithm, batch, given),
        trl.policy_loss(batch, given[:, 0], **{**settings(algorithm), "loss_type": "dapo"}),
        ours.loss(algorithm, batch, given * share[:, None]),
    )


@compare("trl", "cispo", "loss, `loss_type='cispo'`, `epsilon_high=5`", LOSS)
def truncated_weight(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=1.5)
    return Outcome(
        ours.loss(ours.preset(name), batch, given),
        trl.policy_loss(batch, given[:, 0], loss_type="cispo", epsilon_high=5.0),
    )


@compare(
    "trl",
    "cispo",
    "loss, `loss_type='cispo'` with the default bounds",
    LOSS,
    differs="TRL's bound is absolute and, where only `epsilon` is set, 0.2: no weight exceeds it. Surefoot's is 5",
)
def truncated_weight_default(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed)
    return Outcome(
        ours.loss(ours.preset(name), batch, given),
        trl.policy_loss(batch, given[:, 0], loss_type="cispo"),
        ours.loss(ours.preset(name, trust={"high": 0.2}), batch, given),
    )


@compare(
    "trl",
    "correction.off_policy_mask",
    "loss with `off_policy_mask_threshold`",
    f"{LOSS} GRPOTrainer.get_off_policy_mask",
)
def off_policy_mask(name: str, seed: int) -> Outcome:
    batch, given = drawn(seed, drift=0.8)
    algorithm = ours.preset("grpo_token", correction={"kind": "off_policy_mask", "delta": 0.2})
    return Outcome(
        ours.loss(algorithm, batch, given), trl.policy_loss(batch, given[:, 0], off_policy_mask_threshold=0.2)
    )


def corrected(seed: int, correction: dict[str, Any], mode: str, **options: Any) -> Outcome:
    """Weights from TRL's scoring, loss and gradient of its default objective with them."""
    batch, given = drawn(seed, drift=0.3)
    options |= {"use_vllm": True, "vllm_importance_sampling_mode": mode}
    made = trl.policy_trainer("GRPO", batch, batch.old, **options)
    weights = trl.generated(made, batch, batch.reward[:, None])["importance_sampling_ratio"]
    theirs = trl.policy_loss(batch, given[:, 0], weights=weights, **options)
    algorithm = ours.preset("grpo_token", correction=correction)
    shown = torch.where(batch.mask, weights.expand(batch.mask.shape), 0.0)
    have = {"weight": ours.weight(algorithm.correction, batch), **ours.loss(algorithm, batch, given)}
    return Outcome(have, {"weight": shown, **theirs})


@compare(
    "trl",
    "decoupled_ppo",
    "weights and loss, vLLM `token_truncate` without a bound",
    f"{SCORE} {LOSS}",
    tolerance=FLOAT32,
)
def no_cap(name: str, seed: int) -> Outcome:
    unbounded = {"vllm_importance_sampling_clip_max": float("inf")}
    return corrected(seed, {"kind": "token_truncate", "cap": float("inf")}, "token_truncate", **unbounded)


@compare(
    "trl", "correction.token_truncate", "weights and loss, vLLM `token_truncate`", f"{SCORE} {LOSS}", tolerance=FLOAT32
)
def token_truncate(name: str, seed: int) -> Outcome:
    bound = {"vllm_importance_sampling_clip_max": 1.5}
    return corrected(seed, {"kind": "token_truncate", "cap": 1.5}, "token_truncate", **bound)


@compare(
    "trl", "correction.seq_truncate", "weights and loss, vLLM `sequence_truncate`", f"{SCORE} {LOSS}", tolerance=FLOAT32
)
def seq_truncate(name: str, seed: int) -> Outcome:
    bound = {"vllm_importance_sampling_clip_max": 1.5}
    return corrected(seed, {"kind": "seq_truncate", "cap": 1.5}, "sequence_truncate", **bound)


@compare("trl", "correction.token_mask", "weights and loss, vLLM `token_mask`", f"{SCORE} {LOSS}", tolerance=FLOAT32)
def token_mask(name: str, seed: int) -> Outcome:
    band = {"vllm_importance_sampling_clip_min": 0.7, "vllm_importance_sampling_clip_max": 1.4}
    return corrected(seed, {"kind": "token_mask", "low": 0.7, "high": 1.4}, "token_mask", **band)


@compare(
    "trl",
    "correction.seq_mask",
    "weights and loss, vLLM `sequence_mask` with TRL's defaults (no lower bound, 3)",
    f"{SCORE} {LOSS}",
    tolerance=FLOAT32,
)
def seq_mask(name: str, seed: int) -> Outcome:
    return corrected(seed, {"kind": "seq_mask", "low": 0.0, "high": 3.0}, "sequence_mask")
