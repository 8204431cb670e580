"""Recipes: objectives together with how prompts are chosen, completions ended and rewards shaped."""

from __future__ import annotations

from surefoot.algorithms import (
    advantages,
    aggregation,
    heads,
    interruption,
    kl,
    prompts,
    ratios,
    reset,
    selection,
    shaping,
    trust,
    weights,
)
from surefoot.algorithms.presets.grpo import cispo, grpo_token

dapo = grpo_token.but(
    name="dapo",
    paper="Yu et al., DAPO: An Open-Source LLM Reinforcement Learning System at Scale (arXiv 2503.14476).",
    ancestor="grpo_token",
    changes="raises the upper clip; samples further prompts until enough groups have right and wrong answers; punishes "
    "completions that come near the budget.",
    trust=trust.clip(low=0.2, high=0.28),
    selection=selection.refill(rounds=10, measure="accuracy"),
    shaping=shaping.soft_overlong(share=0.2),
    note="As implemented by its authors, averaged over the tokens of the step; as printed, over prompts (aggregation = "
    "'prompt_mean'). Steps take longer the fewer prompts have signal; after the last round a step goes on with what "
    "there is.",
)

high_entropy = dapo.but(
    name="high_entropy",
    paper="Wang et al., Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM "
    "Reasoning (arXiv 2506.01939).",
    ancestor="dapo",
    changes="only the fifth of the tokens with the highest entropy has a gradient, and the loss is the mean over them.",
    weights=weights.high_entropy(share=0.2, denominator="selected"),
    note="The threshold is that of the mini-batch, from the entropies of the policy that starts the update, so every batch "
    "needs one forward pass more.",
)

prorl = dapo.but(
    name="prorl",
    paper="Liu et al., ProRL: Prolonged Reinforcement Learning Expands Reasoning Boundaries in Large Language Models "
    "(arXiv 2505.24864).",
    ancestor="dapo",
    changes="a wider upper clip and a KL term in the loss, whose reference is reset to the policy, and the optimiser with it, "
    "when the held-out accuracy stagnates; no punishment for length.",
    trust=trust.clip(low=0.2, high=0.4),
    kl=kl.in_loss(coef=1e-3, estimator="k3"),
    shaping=shaping.none(),
    reset=reset.on_stagnation(patience=2),
    note="The KL coefficient is not published. Resets follow evaluations: set evaluation.every so that they come often "
    "enough.",
)

scalerl = cispo.but(
    name="scalerl",
    paper="Khatri et al., The Art of Scaling Reinforcement Learning Compute for LLMs (arXiv 2510.13786).",
    ancestor="cispo",
    changes="the ratio is anchored on the engine that sampled; advantages are centred in the group and scaled over the batch; "
    "each prompt counts alike; prompts without signal leave the batch, solved ones the run; thinking that takes too long "
    "is told to answer; the head computes in float32.",
    prompts=prompts.no_positive_resampling(rate=0.9),
    interruption=interruption.force_answer(),
    selection=selection.drop_no_signal(),
    advantage=advantages.batch_scaled(ddof=1, eps=1e-6),
    ratio=ratios.token(anchor="behaviour"),
    aggregation=aggregation.prompt_mean(),
    head=heads.float32(),
    note="The paper's rewards are 1 and -1 (reward.wrong = -1), its asynchronous pipeline is up to 8 steps behind. The batch "
    "shrinks with the prompts that are dropped. The ratio to the engine corrects for its mismatch already: no further "
    "correction.",
)
