"""Presets: each a few lines that say what it changes in its ancestor. REINFORCE -> RLOO, GRPO -> Dr. GRPO.

>>> from surefoot import presets
>>> presets.grpo.but(trust={"high": 0.28}).trust
clip(low=0.2, high=0.28)
"""

from __future__ import annotations

from surefoot.algorithms import advantages, aggregation, correction, kl, ratios, selection, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.decoupled import decoupled
from surefoot.algorithms.likelihood import maximum_likelihood

reinforce = Algorithm(
    name="reinforce",
    paper="Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning (1992).",
    selection=selection.keep(),
    advantage=advantages.reward(),
    ratio=ratios.none(),
    trust=trust.score(),
    aggregation=aggregation.seq_mean_token_sum(),
    note="Unbiased for one update per batch, of high variance: every rewarded token is pushed up, no matter how easy the "
    "prompt was. With several updates per batch the samples are off policy and nothing corrects for it.",
)

reinforce_baseline = reinforce.but(
    name="reinforce_baseline",
    ancestor="reinforce",
    changes="subtracts the mean reward of the batch.",
    advantage=advantages.batch_mean(),
    note="Lower variance, the same expected direction. The baseline ignores how hard each prompt is.",
)

rloo = reinforce_baseline.but(
    name="rloo",
    paper="Ahmadian et al., Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in "
    "LLMs (arXiv 2402.14740).",
    ancestor="reinforce_baseline",
    changes="the baseline of a sample is the mean reward of the other samples of its prompt; KL in the reward.",
    advantage=advantages.leave_one_out(),
    kl=kl.in_reward(coef=0.05, estimator="k1"),
    note="The baseline does not contain the sample itself, so the estimator stays unbiased. Needs groups of at least two. "
    "Meant for one update per batch.",
)

grpo = Algorithm(
    name="grpo",
    paper="Shao et al., DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models (arXiv 2402.03300).",
    ancestor="rloo",
    changes="standardises rewards within the group, clips the token ratio as PPO does, averages tokens within each row, and "
    "puts the KL into the loss.",
    advantage=advantages.group_norm(ddof=1, eps=1e-6),
    ratio=ratios.token(anchor="old"),
    trust=trust.clip(low=0.2, high=0.2),
    kl=kl.in_loss(coef=0.04, estimator="k3"),
    aggregation=aggregation.seq_mean_token_mean(),
    note="Dividing by the standard deviation weighs nearly solved and nearly hopeless prompts more; dividing by the row's "
    "length favours short right and long wrong answers. k3 in the loss has the gradient of the forward KL.",
)

grpo_token = grpo.but(
    name="grpo_token",
    ancestor="grpo",
    changes="averages over all tokens of the step and drops the KL: what most libraries call GRPO.",
    kl=kl.none(),
    aggregation=aggregation.token_mean(),
    note="Removes the length bias inside a row; long rows weigh more.",
)

dr_grpo = grpo.but(
    name="dr_grpo",
    paper="Liu et al., Understanding R1-Zero-Like Training: A Critical Perspective (arXiv 2503.20783).",
    ancestor="grpo",
    changes="drops the division by the standard deviation and by the row's length (a constant, the generation budget, "
    "instead), and the KL.",
    advantage=advantages.group_mean(),
    kl=kl.none(),
    aggregation=aggregation.seq_mean_token_sum_norm(),
    note="No incentive for long wrong answers. The effective step grows with the mean length, so the learning rate does "
    "not carry over between budgets.",
)

gspo = grpo.but(
    name="gspo",
    paper="Zheng et al., Group Sequence Policy Optimization (arXiv 2507.18071).",
    ancestor="grpo",
    changes="the ratio is the geometric mean over the row and is clipped, much more narrowly, as a whole; no KL.",
    ratio=ratios.sequence(anchor="old"),
    trust=trust.clip(low=3e-4, high=4e-4),
    kl=kl.none(),
    note="Clipping drops whole rows. A bound of the size that token ratios need (0.2) would never act.",
)

gspo_token = gspo.but(
    name="gspo_token",
    ancestor="gspo",
    changes="the ratio has the row's value and a gradient for each token, so that advantages may differ within a row.",
    ratio=ratios.sequence_token(anchor="old"),
    note="With one advantage per row it is GSPO, in value and gradient.",
)

cispo = grpo_token.but(
    name="cispo",
    paper="MiniMax, MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention (arXiv 2506.13585).",
    ancestor="grpo_token",
    changes="truncates the importance weight instead of clipping the objective, so no token loses its gradient.",
    trust=trust.truncated_score(low=0.0, high=5.0),
    note="The bound is not published; 5 follows ScaleRL. The value of the loss grows with length and says nothing: only "
    "gradients compare.",
)

gdpo = grpo.but(
    name="gdpo",
    paper="Liu et al., GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization "
    "(arXiv 2601.05242).",
    ancestor="grpo",
    changes="standardises every named reward by itself, adds them with weights, and normalises over the batch; no KL.",
    advantage=decoupled(),
    kl=kl.none(),
    note="Keeps rewards apart that a sum would merge. Weights alone do not set priorities when one reward is much easier: "
    "condition the easy one on the hard one (conditions).",
)

maxrl = reinforce_baseline.but(
    name="maxrl",
    paper="Tajwar et al., Maximum Likelihood Reinforcement Learning (arXiv 2602.02710).",
    ancestor="reinforce_baseline",
    changes="weighs successes by N / K, so that the expected gradient is that of the likelihood of a right answer, cut at the "
    "order that N samples reach.",
    advantage=maximum_likelihood(form="control_variate", order=0),
    note="Rewards of 0 and 1. Rare successes weigh up to N - 1: gradient clipping matters. Meant for one update per batch.",
)

dppo_tv = dr_grpo.but(
    name="dppo_tv",
    paper="Qi et al., Rethinking the Trust Region in LLM Reinforcement Learning (arXiv 2602.04879).",
    ancestor="dr_grpo",
    changes="masks tokens by the total variation from the behaviour policy instead of clipping the ratio.",
    ratio=ratios.token(anchor="behaviour"),
    trust=trust.divergence_mask(measure="tv", delta=0.15),
    note="The divergence is that of the sampled token against all others, a lower bound. A large ratio with a negative advantage "
    "is not bounded: moving back towards the behaviour policy is allowed.",
)

dppo_kl = dppo_tv.but(
    name="dppo_kl",
    ancestor="dppo_tv",
    changes="measures the divergence by KL.",
    trust=trust.divergence_mask(measure="kl", delta=0.05),
)

mgpo = grpo.but(
    name="mgpo",
    paper="Xu et al., Tiny Model, Big Logic: Diversity-Driven Optimization Elicits Large-Model Reasoning Ability in "
    "VibeThinker-1.5B (arXiv 2511.06221).",
    ancestor="grpo",
    changes="weighs each group by how near its success rate is to one half; no KL.",
    advantage=advantages.entropy_weighted(sharpness=4.0),
    kl=kl.none(),
    note="The sharpness is not in the paper. It is no filter: groups without signal have advantage 0 anyway.",
)

decoupled_ppo = grpo_token.but(
    name="decoupled_ppo",
    paper="Hilton et al., Batch size-invariance for policy optimization (arXiv 2110.00641); AReaL (arXiv 2505.24298).",
    ancestor="grpo_token",
    changes="clips around the policy at the start of the update and weighs tokens by how that differs from the one that sampled.",
    correction=correction.token_truncate(cap=float("inf")),
    note="For stale or foreign rollouts. Without a cap single tokens can weigh much: set correction.cap.",
)

PRESETS: dict[str, Algorithm] = {
    preset.name: preset
    for preset in (
        reinforce,
        reinforce_baseline,
        rloo,
        maxrl,
        grpo,
        grpo_token,
        dr_grpo,
        gspo,
        gspo_token,
        cispo,
        gdpo,
        dppo_tv,
        dppo_kl,
        mgpo,
        decoupled_ppo,
    )
}
