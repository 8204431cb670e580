"""Presets: each a few lines that say what it changes in its ancestor. REINFORCE -> RLOO, GRPO -> DAPO -> ProRL.

>>> from surefoot import presets
>>> presets.grpo.but(trust={"high": 0.28}).trust
clip(low=0.2, high=0.28)
"""

from __future__ import annotations

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.presets.compat import openrlhf_grpo, trl_grpo, verl_grpo
from surefoot.algorithms.presets.grpo import (
    cispo,
    dppo_kl,
    dppo_topk,
    dppo_tv,
    dr_grpo,
    gdpo,
    grpo,
    grpo_process,
    grpo_token,
    gspo,
    gspo_token,
    mgpo,
)
from surefoot.algorithms.presets.ppo import decoupled_ppo, ppo, reinforce_pp, reinforce_pp_baseline
from surefoot.algorithms.presets.recipes import dapo, high_entropy, prorl, scalerl
from surefoot.algorithms.presets.score import kimi_k15, maxrl, reinforce, reinforce_baseline, remax, rloo

PRESETS: dict[str, Algorithm] = {
    preset.name: preset
    for preset in (
        reinforce,
        reinforce_baseline,
        remax,
        rloo,
        maxrl,
        kimi_k15,
        ppo,
        reinforce_pp,
        reinforce_pp_baseline,
        grpo,
        grpo_token,
        grpo_process,
        dr_grpo,
        gspo,
        gspo_token,
        gdpo,
        mgpo,
        cispo,
        dppo_tv,
        dppo_kl,
        dppo_topk,
        decoupled_ppo,
        dapo,
        high_entropy,
        prorl,
        scalerl,
        trl_grpo,
        verl_grpo,
        openrlhf_grpo,
    )
}
