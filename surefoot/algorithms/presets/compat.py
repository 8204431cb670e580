"""What other libraries call GRPO, so that one who comes from there can check their numbers."""

from __future__ import annotations

from surefoot.algorithms import advantages, kl, trust
from surefoot.algorithms.presets.grpo import grpo_token

trl_grpo = grpo_token.but(
    name="trl_grpo",
    paper="GRPOTrainer of TRL with its default options (loss_type 'dapo', epsilon 0.2, beta 0).",
    ancestor="grpo_token",
    changes="adds 1e-4 to the standard deviation.",
    advantage=advantages.group_norm(ddof=1, eps=1e-4),
    note="With vLLM TRL corrects for the engine by a mask over whole rows: correction = { kind = 'seq_mask', low = 0, "
    "high = 3 }.",
)

verl_grpo = grpo_token.but(
    name="verl_grpo",
    paper="verl with algorithm.adv_estimator = grpo and the default policy loss.",
    ancestor="grpo_token",
    changes="clips negative advantages a second time, at 3.",
    trust=trust.dual_clip(low=0.2, high=0.2, bound=3.0),
    note="verl gives a group of one its reward as advantage; here such a group is refused.",
)

openrlhf_grpo = grpo_token.but(
    name="openrlhf_grpo",
    paper="OpenRLHF with algo.advantage.estimator = group_norm.",
    ancestor="grpo_token",
    changes="adds 1e-9 to the standard deviation, and takes the KL term off token by token after the normalisation.",
    advantage=advantages.group_norm(ddof=1, eps=1e-9),
    kl=kl.in_reward(coef=0.01, estimator="k1", after_baseline=True),
)
