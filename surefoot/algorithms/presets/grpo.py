"""GRPO and what grew from it by changing one or two of its parts."""

from __future__ import annotations

from surefoot.algorithms import advantages, aggregation, divergence, kl, ratios, returns, trust
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.decoupled import decoupled

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

grpo_process = grpo.but(
    name="grpo_process",
    ancestor="grpo",
    changes="rewards the steps of a completion: standardised over all steps of the group, a token earns those of the steps "
    "that end at or after it.",
    advantage=returns.process(ddof=1, eps=1e-6),
    note="Needs a reward that scores steps. The sum of later steps favours completions with many of them.",
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
    "condition the easy one on the hard one (conditions). Every named part that the reward returns counts alike, also one "
    "that its total leaves out (the format at reward.format_weight = 0), unless advantage.weights says which count.",
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

dppo_tv = dr_grpo.but(
    name="dppo_tv",
    paper="Qi et al., Rethinking the Trust Region in LLM Reinforcement Learning (arXiv 2602.04879).",
    ancestor="dr_grpo",
    changes="masks tokens by the total variation from the behaviour policy instead of clipping the ratio.",
    ratio=ratios.token(anchor="behaviour"),
    trust=divergence.divergence_mask(measure="tv", delta=0.15),
    note="The divergence is that of the sampled token against all others, a lower bound. A large ratio with a negative advantage "
    "is not bounded: moving back towards the behaviour policy is allowed.",
)

dppo_kl = dppo_tv.but(
    name="dppo_kl",
    ancestor="dppo_tv",
    changes="measures the divergence by KL.",
    trust=divergence.divergence_mask(measure="kl", delta=0.05),
)

dppo_topk = dppo_tv.but(
    name="dppo_topk",
    ancestor="dppo_tv",
    changes="measures the divergence over the tokens that the behaviour policy found likeliest, the sampled one, and the rest "
    "as one.",
    trust=divergence.divergence_topk(measure="tv", delta=0.15, k=20),
    note="Nearer to the divergence of the whole distributions than the sampled token alone. The engine reports k tokens at "
    "every place.",
)
