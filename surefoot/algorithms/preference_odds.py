"""Direct alignment by odds: no reference policy. With the mean token probability p = pi(y)^(1/|y|) of a completion,
its log odds are o = log(p / (1 - p)).

ORPO and ASFT train in one stage: they carry the supervised term on the chosen completion. Their ``_align`` forms
(arXiv 2502.01237) drop it, for a policy that was fine-tuned before, and gain a beta.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from surefoot.algorithms.part import part
from surefoot.algorithms.preference import Beta, Weight
from surefoot.algorithms.preference_pairs import Pairs


@part(
    "preference",
    "l_p = -log s({beta:g} (o_w - o_l))",
    r"\ell_p = -\log\sigma\big({beta:g}(o_w-o_l)\big)",
    "odds",
)
def orpo_align(pairs: Pairs, *, beta: Beta = 0.5) -> Tensor:
    """ORPO's odds ratio alone, with a slope (arXiv 2502.01237)."""
    chosen, rejected = pairs.log_odds()
    return -logsigmoid(beta * (chosen - rejected))


@part(
    "preference",
    "l_p = -log s({beta:g} o_w) - log s(-{beta:g} o_l)",
    r"\ell_p = -\log\sigma({beta:g}o_w)-\log\sigma(-{beta:g}o_l)",
    "odds",
)
def asft_align(pairs: Pairs, *, beta: Beta = 0.1) -> Tensor:
    """ASFT's two classifications alone, with a slope (arXiv 2502.01237). With beta 1: binary cross-entropy on p."""
    chosen, rejected = pairs.log_odds()
    return -logsigmoid(beta * chosen) - logsigmoid(-beta * rejected)


@part(
    "preference",
    "l_p = -log pi(y_w)/|y_w| - {weight:g} log s(o_w - o_l)",
    r"\ell_p = -\tfrac{{\log\pi_\theta(y_w)}}{{|y_w|}}-{weight:g}\log\sigma(o_w-o_l)",
    "odds",
    "one_stage",
)
def orpo(pairs: Pairs, *, weight: Weight = 0.1) -> Tensor:
    """Supervised fine-tuning on the chosen completion plus an odds ratio (ORPO, arXiv 2403.07691).

    ``weight`` is the paper's lambda, which some libraries call beta.
    """
    return -pairs.mean_logps()[0] + weight * orpo_align.fn(pairs, beta=1.0)


@part(
    "preference",
    "l_p = -log pi(y_w)/|y_w| - {weight:g} (log s(o_w) + log s(-o_l))",
    r"\ell_p = -\tfrac{{\log\pi_\theta(y_w)}}{{|y_w|}}-{weight:g}\big(\log\sigma(o_w)+\log\sigma(-o_l)\big)",
    "odds",
    "one_stage",
)
def asft(pairs: Pairs, *, weight: Weight = 1.0) -> Tensor:
    """Supervised fine-tuning on the chosen completion plus the absolute likelihood of each (ASFT, arXiv 2409.10571)."""
    return -pairs.mean_logps()[0] + weight * asft_align.fn(pairs, beta=1.0)
