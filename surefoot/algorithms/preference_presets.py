"""The direct-alignment family, each a difference from an ancestor. DPO -> IPO, cDPO, SimPO ...; ORPO -> ASFT.

>>> from surefoot.algorithms.preference_presets import PREFERENCES
>>> PREFERENCES["dpo"].but(loss={"beta": 0.05}).loss
dpo(beta=0.05, label_smoothing=0.0, length_normalise=False)

The best beta differs between losses by orders of magnitude (on Llama 3 8B and UltraFeedback, arXiv 2502.01237 finds 0.003 for
DPO and APO-zero, 0.001 for IPO, 0.0003 for NCA and Cal-DPO, 1 for SimPO, 0.5 for ORPO and 0.1 for ASFT with a slope), so
sweep beta and the learning rate of each before comparing two. Where a note names no source, beta is 0.1.
"""

from __future__ import annotations

from surefoot.algorithms import preference, preference_odds
from surefoot.algorithms.preference_objective import PreferenceObjective

_BLUR = "Gorbatovski et al., The Differences Between Direct Alignment Algorithms are a Blur (arXiv 2502.01237)."
_APO = (
    "D'Oosterlinck et al., Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in "
    "Alignment (arXiv 2408.06266)."
)

dpo = PreferenceObjective(
    name="dpo",
    paper="Rafailov et al., Direct Preference Optimization: Your Language Model is Secretly a Reward Model (arXiv 2305.18290).",
    loss=preference.dpo(beta=0.1),
    note="Assumes that preferences follow a Bradley-Terry model and that the pairs cover what the policy writes. Only the margin "
    "counts: the chosen log-probability often falls along with the rejected one.",
)

cdpo = dpo.but(
    name="cdpo",
    paper="Mitchell, A note on DPO with noisy preferences and relationship to IPO (2023).",
    ancestor="dpo",
    changes="takes a share of the labels to be wrong, so that the margin has a finite optimum.",
    loss={"label_smoothing": 0.1},
    note="The share is the same for every pair. At 1/2 there would be nothing to learn.",
)

ipo = dpo.but(
    name="ipo",
    paper="Azar et al., A General Theoretical Paradigm to Understand Learning from Human Preferences (arXiv 2310.12036).",
    ancestor="dpo",
    changes="regresses the margin to 1/(2 beta) instead of a logistic loss.",
    loss=preference.ipo(beta=0.1),
    note="Made against overfitting to pairs that everyone agrees on. The loss grows with the square of the distance, so "
    "outliers weigh much.",
)

hinge = dpo.but(
    name="hinge",
    paper="Liu et al., Statistical Rejection Sampling Improves Preference Optimization (arXiv 2309.06657), after Zhao et al., "
    "SLiC-HF: Sequence Likelihood Calibration with Human Feedback (arXiv 2305.10425).",
    ancestor="dpo",
    changes="a hinge in place of the logistic loss: no gradient once the margin is 1/beta.",
    loss=preference.hinge(beta=0.1),
    note="SLiC-HF itself has no reference policy and adds a regulariser; this is the form of RSO. Its sampling is "
    "no part of it.",
)

simpo = dpo.but(
    name="simpo",
    paper="Meng et al., SimPO: Simple Preference Optimization with a Reference-Free Reward (arXiv 2405.14734).",
    ancestor="dpo",
    changes="mean log-probabilities instead of log-ratios to a reference, and a target margin gamma.",
    loss=preference.simpo(beta=2.0, gamma=1.0),
    note="Nothing holds the policy near where it began but the learning rate.",
)

nca = dpo.but(
    name="nca",
    paper="Chen et al., Noise Contrastive Alignment of Language Models with Explicit Rewards (arXiv 2402.05369).",
    ancestor="dpo",
    changes="classifies each completion against the reference instead of comparing the two.",
    loss=preference.nca(beta=0.01),
    note="This is the form for pairs; beta is the paper's alpha, at the paper's value. The optimum of the chosen reward is "
    "log 2, which holds the chosen log-probability up.",
)

sppo_hard = dpo.but(
    name="sppo_hard",
    paper="Wu et al., Self-Play Preference Optimization for Language Model Alignment (arXiv 2405.00675).",
    ancestor="dpo",
    changes="regresses each log-ratio to a target of its own, +- 1/(2 beta).",
    loss=preference.sppo_hard(beta=0.1),
    note="The paper weighs by estimated chances to win and iterates with fresh pairs; here the labels are taken as certain. "
    "1/beta is the paper's eta.",
)

cal_dpo = dpo.but(
    name="cal_dpo",
    paper="Xiao et al., Cal-DPO: Calibrated Direct Preference Optimization for Language Model Alignment (arXiv 2412.14516).",
    ancestor="dpo",
    changes="beta 1 in the logistic term, plus the targets of SPPO.",
    loss=preference.cal_dpo(beta=0.1),
    note="Beta sets the targets only. The squares dominate until the log-ratios are near their targets.",
)

apo_zero = dpo.but(
    name="apo_zero",
    paper=_APO,
    ancestor="dpo",
    changes="moves the chosen reward up and the rejected one down, each by itself.",
    loss=preference.apo_zero(beta=0.1),
    note="For chosen completions that are better than what the policy writes; otherwise apo_down.",
)

apo_down = dpo.but(
    name="apo_down",
    paper=_APO,
    ancestor="apo_zero",
    changes="moves both rewards down, the rejected one more.",
    loss=preference.apo_down(beta=0.1),
    note="For a policy that writes better than the chosen completions; otherwise apo_zero.",
)

bco = dpo.but(
    name="bco",
    paper="Jung et al., Binary Classifier Optimization for Large Language Model Alignment (arXiv 2404.04656).",
    ancestor="dpo",
    changes="a binary classifier of chosen and rejected, an upper bound of DPO's loss.",
    loss=preference.bco(beta=0.01),
    note="Without the paper's reward shift, as compared in arXiv 2502.01237; set loss.decay below 1 for a running shift. Beta is "
    "the paper's.",
)

orpo = PreferenceObjective(
    name="orpo",
    paper="Hong et al., ORPO: Monolithic Preference Optimization without Reference Model (arXiv 2403.07691).",
    loss=preference_odds.orpo(weight=0.1),
    note="One stage, from a base model: its first term is the supervised one. Two stages (supervised fine-tuning, then "
    "orpo_align) do better in arXiv 2502.01237.",
)

asft = orpo.but(
    name="asft",
    paper="Wang et al., ASFT: Aligned Supervised Fine-Tuning through Absolute Likelihood (arXiv 2409.10571).",
    ancestor="orpo",
    changes="classifies each completion by its odds instead of comparing the two.",
    loss=preference_odds.asft(weight=1.0),
    note="Never below ORPO's loss at the same weight. One stage; see orpo.",
)

orpo_align = orpo.but(
    name="orpo_align",
    paper=_BLUR,
    ancestor="orpo",
    changes="no supervised term; a slope beta on the log odds.",
    loss=preference_odds.orpo_align(beta=0.5),
    note="After supervised fine-tuning. Beta is the study's best for Llama 3 8B on UltraFeedback.",
)

asft_align = orpo_align.but(
    name="asft_align",
    ancestor="asft",
    changes="no supervised term; a slope beta on the log odds.",
    loss=preference_odds.asft_align(beta=0.1),
)

kto = dpo.but(
    name="kto",
    paper="Ethayarajh et al., KTO: Model Alignment as Prospect Theoretic Optimization (arXiv 2402.01306).",
    ancestor="dpo",
    changes="single completions, desirable or not, against a reference point instead of a partner.",
    loss=preference.kto(beta=0.1),
    note="Needs no pairs. Set the weights so that both kinds count alike when one is rare. With a reference point of 0, the "
    "losses of the two completions of a pair add up to APO-zero's plus 1.",
)

PREFERENCES: dict[str, PreferenceObjective] = {
    preset.name: preset
    for preset in (
        dpo,
        cdpo,
        ipo,
        hinge,
        simpo,
        nca,
        sppo_hard,
        cal_dpo,
        apo_zero,
        apo_down,
        bco,
        orpo,
        asft,
        orpo_align,
        asft_align,
        kto,
    )
}
