"""PPO with its critic, and what keeps the clip without one: REINFORCE++ and decoupled PPO."""

from __future__ import annotations

from surefoot.algorithms import advantages, aggregation, correction, kl, ratios, returns, trust, value
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.presets.grpo import grpo_token

ppo = Algorithm(
    name="ppo",
    paper="Schulman et al., Proximal Policy Optimization Algorithms (arXiv 1707.06347); Ouyang et al., Training language models "
    "to follow instructions with human feedback (arXiv 2203.02155).",
    ancestor="reinforce",
    changes="advantages per token by GAE from a critic, whitened over the batch; the token ratio is clipped; KL in the reward.",
    advantage=returns.gae(gamma=1.0, lam=0.95, whiten=True),
    ratio=ratios.token(anchor="old"),
    trust=trust.clip(low=0.2, high=0.2),
    kl=kl.in_reward(coef=0.02, estimator="k1"),
    value=value.squared(coef=0.1, clip=0.2),
    aggregation=aggregation.token_mean(),
    note="Needs a critic, which doubles the memory unless it is a head on the policy (critic.kind), and is only as good as "
    "the critic is: watch critic/explained_variance, and give it a head start (critic.warmup_steps). The adaptive KL "
    "coefficient is kl.target.",
)

reinforce_pp = ppo.but(
    name="reinforce_pp",
    paper="Hu et al., REINFORCE++: An Efficient RLHF Algorithm with Robustness to Both Prompt and Reward Models "
    "(arXiv 2501.03262).",
    ancestor="ppo",
    changes="no critic: the reward to go of each token, whitened over all tokens of the batch.",
    advantage=returns.reward_to_go(gamma=1.0, whiten=True),
    kl=kl.in_reward(coef=0.01, estimator="k1"),
    value=value.none(),
    note="The whole batch is the baseline, so easy prompts look good and hard ones bad. Long rows weigh more in the mean.",
)

reinforce_pp_baseline = reinforce_pp.but(
    name="reinforce_pp_baseline",
    ancestor="reinforce_pp",
    changes="subtracts the mean of the prompt's samples before the whitening; the KL goes into the loss, as k2.",
    advantage=advantages.whitened_group_mean(weighting="tokens"),
    kl=kl.in_loss(coef=0.01, estimator="k2"),
    note="After whitening by tokens the advantages of a group do not sum to 0: weighting = 'rows' keeps them centred.",
)

decoupled_ppo = grpo_token.but(
    name="decoupled_ppo",
    paper="Hilton et al., Batch size-invariance for policy optimization (arXiv 2110.00641); AReaL (arXiv 2505.24298).",
    ancestor="grpo_token",
    changes="clips around the policy at the start of the update and weighs tokens by how that differs from the one that sampled.",
    correction=correction.token_truncate(cap=float("inf")),
    note="For stale or foreign rollouts. Without a cap single tokens can weigh much: set correction.cap.",
)
