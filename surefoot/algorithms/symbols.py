"""The symbols of policy-gradient objectives, explained where they occur."""

from __future__ import annotations

import re
from collections.abc import Iterable

# (pattern in the text of an equation, what it stands for), in the order in which they are explained.
SYMBOLS = (
    (r"_it\b", "`i` is a row (a completion), `t` one of its tokens that are trained on"),
    (r"_g\b|sum_g\b|\(g\)", "`g` a prompt with its group of samples"),
    (r"\bx_it\b", "`x` the importance ratio"),
    (r"\bA_i", "`A` the advantage"),
    (r"\br_i\b|\(r\)|r_g", "`r` the reward"),
    (r"\bR_i", "`R_it` the reward of a token"),
    (r"\bL_i\b", "`L_i` the number of the row's tokens"),
    (r"\bL_max\b", "`L_max` the generation budget"),
    (r"\bN_rows\b", "`N_rows` the completions of the optimiser step that have tokens"),
    (r"\bN_tokens\b", "`N_tokens` the tokens that are trained on, of the step or of a prompt's group"),
    (r"\bN_prompts\b", "`N_prompts` the prompts of the step"),
    (r"\bN_selected\b", "`N_selected` the tokens that are selected"),
    (r"\bK_g\b", "`K_g` the right answers among the prompt's `N`"),
    (r"\bp_g\b", "`p_g` the share of right answers in the group"),
    (r"\bH\(", "`H` the entropy of the next-token distribution"),
    (r"\bwhiten\(", "`whiten(z) = (z - mean) / sqrt(var + 1e-8)`"),
    (r"\bpi_old\b", "`pi_old` the policy at the start of the update"),
    (r"\b(pi_behaviour|mu)\b", "`mu` (`pi_behaviour`) the policy that sampled, as the engine reported it"),
    (r"\bpi_ref\b", "`pi_ref` the reference policy"),
    (r"\bV_", "`V` the critic's value of what came before a token, before the update except in its own loss"),
    (r"\bRet_", "`Ret` the return that the critic learns"),
    (r"\bsg\(", "`sg` stops the gradient"),
    (r"\bk1\(", "`k1(p || q) = z`, with `z = log p - log q` of the token"),
    (r"\bk2\(", "`k2(p || q) = z^2 / 2`, with `z = log p - log q` of the token"),
    (r"\bk3(_ratio)?\(", "`k3(p || q) = exp(-z) - 1 + z`, with `z = log p - log q` of the token"),
    (r"\bk3_ratio\(", "`k3_ratio` is `k3` times `pi / sg(pi)`"),
    (r"\bddof\b", "`ddof` is subtracted from the count in a standard deviation"),
)


def legend(equation: Iterable[str]) -> str:
    """One sentence about the symbols that occur in the text of an equation."""
    text = "\n".join(equation)
    found = [meaning for pattern, meaning in SYMBOLS if re.search(pattern, text)]
    return f"Here {'; '.join(found)}." if found else ""
