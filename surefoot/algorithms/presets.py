"""Presets: each a few lines that say what it changes in its ancestor. REINFORCE -> RLOO, GRPO -> Dr. GRPO.

>>> from surefoot import presets
>>> presets.grpo.but(trust={"high": 0.28}).trust
clip(low=0.2, high=0.28)
"""

from __future__ import annotations

from surefoot.algorithms import advantages, aggregation, kl, ratios, selection, trust
from surefoot.algorithms.algorithm import Algorithm

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

PRESETS: dict[str, Algorithm] = {
    preset.name: preset for preset in (reinforce, reinforce_baseline, rloo, grpo, grpo_token, dr_grpo)
}
