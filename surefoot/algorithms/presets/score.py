"""REINFORCE and its baselines: the score function, one update per batch."""

from __future__ import annotations

from surefoot.algorithms import advantages, aggregation, kl, prompts, ratios, reset, selection, shaping, trust
from surefoot.algorithms.algorithm import Algorithm
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

remax = reinforce.but(
    name="remax",
    paper="Li et al., ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language "
    "Models (arXiv 2310.10505).",
    ancestor="reinforce",
    changes="subtracts the reward of the prompt's greedy completion.",
    advantage=advantages.greedy_baseline(),
    note="Works with one sample per prompt, and needs one greedy completion more for each, which is not trained on.",
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

maxrl = reinforce_baseline.but(
    name="maxrl",
    paper="Tajwar et al., Maximum Likelihood Reinforcement Learning (arXiv 2602.02710).",
    ancestor="reinforce_baseline",
    changes="weighs successes by N / K, so that the expected gradient is that of the likelihood of a right answer, cut at the "
    "order that N samples reach.",
    advantage=maximum_likelihood(form="control_variate", order=0),
    note="Rewards of 0 and 1. Rare successes weigh up to N - 1: gradient clipping matters. Meant for one update per batch.",
)

kimi_k15 = reinforce_baseline.but(
    name="kimi_k15",
    paper="Kimi Team, Kimi k1.5: Scaling Reinforcement Learning with LLMs (arXiv 2501.12599).",
    ancestor="reinforce_baseline",
    changes="the baseline is the mean of the prompt's samples; a quadratic in the row's log-ratio to the policy that starts the "
    "batch holds the update; right answers are rewarded for being short after a warm-up; prompts are drawn by how seldom "
    "they are solved; the optimiser starts afresh with every batch.",
    advantage=advantages.group_mean(),
    ratio=ratios.sequence_log(anchor="old"),
    trust=trust.quadratic(tau=0.1),
    shaping=shaping.length_reward(weight=0.5, warmup_steps=100),
    prompts=prompts.prioritised(),
    reset=reset.every(steps=1, reference=False, optimiser=True),
    aggregation=aggregation.seq_mean_token_mean(),
    note="tau, the weight and the warm-up of the length reward are not published. The quadratic grows with the square of the "
    "length: keep tau small for long rows, or normalise the log-ratio. With one update per batch it is REINFORCE with the "
    "group's mean as baseline.",
)
