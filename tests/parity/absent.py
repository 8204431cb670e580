"""What is not compared and why, and what the libraries have that Surefoot has not."""

from __future__ import annotations

_NO_SCORE = "no trainer has the plain score function"
_NO_PAIRS = "it trains no preference pairs"

# (library, preset): what of the preset the library does not have.
ABSENT: dict[tuple[str, str], str] = {
    ("trl", "reinforce"): _NO_SCORE,
    ("trl", "reinforce_baseline"): _NO_SCORE,
    ("trl", "remax"): "no greedy completion as baseline",
    ("trl", "maxrl"): "no such advantage",
    ("trl", "kimi_k15"): "no such objective",
    ("trl", "ppo"): "this release has no PPO trainer and no critic",
    ("trl", "reinforce_pp"): "no whitening over tokens",
    ("trl", "reinforce_pp_baseline"): "no whitening over tokens",
    ("trl", "grpo_process"): "no rewards of steps",
    ("trl", "mgpo"): "no such advantage",
    ("trl", "dppo_tv"): "no mask by divergence",
    ("trl", "dppo_kl"): "no mask by divergence",
    ("trl", "dppo_topk"): "no mask by divergence",
    ("trl", "dapo"): "no dynamic sampling",
    ("trl", "high_entropy"): "no dynamic sampling",
    ("trl", "prorl"): "no dynamic sampling; its reference moves by a fixed rule and the optimiser is never reset",
    ("trl", "scalerl"): "no ratio to the engine's policy and no mean over prompts",
    ("trl", "verl_grpo"): "it is made after verl",
    ("trl", "openrlhf_grpo"): "it is made after OpenRLHF, which is not compared",
    ("trl", "asft"): "no such loss",
    ("trl", "asft_align"): "no such loss",
    ("verl", "maxrl"): "no such advantage",
    ("verl", "kimi_k15"): "no such objective",
    ("verl", "grpo_process"): "no rewards of steps standardised in the group",
    ("verl", "mgpo"): "no such advantage",
    ("verl", "dppo_topk"): "its divergences are those of the sampled token",
    ("verl", "dapo"): "its filter of groups is part of a replay buffer that does not run by itself",
    ("verl", "high_entropy"): "no mask by entropy",
    ("verl", "prorl"): "no reset of reference and optimiser",
    ("verl", "scalerl"): "no scaling over the batch and no mean over prompts",
    ("verl", "trl_grpo"): "it is made after TRL",
    ("verl", "openrlhf_grpo"): "it is made after OpenRLHF, which is not compared",
    **{
        ("verl", name): _NO_PAIRS
        for name in (
            *("dpo", "cdpo", "ipo", "hinge", "simpo", "nca", "sppo_hard", "cal_dpo", "apo_zero", "apo_down", "bco"),
            *("orpo", "asft", "orpo_align", "asft_align", "kto"),
        )
    },
}

# Names of the library's own registries that a comparison covers, and those that Surefoot has no counterpart for.
COVERED: dict[str, frozenset[str]] = {
    "verl policy losses": frozenset({"vanilla", "dppo_tv", "dppo_kl", "gspo", "cispo", "bypass_mode"}),
    "verl advantages": frozenset(
        {"gae", "grpo", "grpo_vectorized", "gdpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax"}
        | {"rloo", "rloo_vectorized"}
    ),
    "TRL loss types of GRPOTrainer": frozenset({"grpo", "dapo", "dr_grpo", "cispo"}),
    "TRL loss types of DPOTrainer": frozenset(
        {"sigmoid", "sigmoid_norm", "hinge", "ipo", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down"}
    ),
}
ELSEWHERE: dict[str, frozenset[str]] = {
    "verl policy losses": frozenset({"gpg", "sapo", "geo_mean", "clip_cov", "kl_cov", "dro"}),
    "verl advantages": frozenset({"grpo_passk", "opo", "gpg", "optimal_token_baseline", "tir_optimal_token_baseline"}),
    "TRL loss types of GRPOTrainer": frozenset({"bnpo", "sapo", "vespo", "luspo"}),
    "TRL loss types of DPOTrainer": frozenset({"robust", "exo_pair", "aot", "aot_unpaired", "discopop", "sft"}),
}
