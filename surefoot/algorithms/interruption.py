"""Interruption: after how many tokens a completion that is still thinking is told to answer.

A part returns that number, or None. The tokens of the phrase are written for the policy, so they are never in the loss.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from surefoot.algorithms.notation import typed
from surefoot.algorithms.part import part

TIME_IS_UP = "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"


@part("interruption", "", "", "idle")
def none(budget: int) -> int | None:
    """Completions run until they end or the budget is used up."""
    return None


def _text(share: float, phrase: str, close: str) -> str:
    until = f"without {json.dumps(close, ensure_ascii=False)}" if close else "that is still running"
    return f"after {share:g} L_max tokens a completion {until} continues with {json.dumps(phrase, ensure_ascii=False)}"


def _latex(share: float, phrase: str, close: str) -> str:
    until = rf"\text{{ without }}{typed(close)}" if close else r"\text{ that is still running}"
    return rf"\text{{after }}{share:g}\,L_{{\max}}\text{{ tokens a completion}}{until}\text{{ continues with }}{typed(phrase)}"


@part("interruption", _text, _latex)
def force_answer(
    budget: int,
    *,
    share: Annotated[float, Field(gt=0, lt=1)] = 0.85,
    phrase: Annotated[str, Field(min_length=1)] = TIME_IS_UP,
    close: str = "</think>",
) -> int | None:
    """A completion that has used up its thinking budget is told to answer, and has the rest for that (ScaleRL, arXiv 2510.13786).

    ``share`` of the ``budget`` [tokens] is for thinking; the paper gives 12,000 of 14,000. ``phrase`` is written into the
    completion there, in the paper's words. ``close`` is the text that ends the thinking: a completion that has written it
    goes on undisturbed; empty, every completion that is still running is interrupted. Returns at least 1.
    """
    return max(1, int(share * budget + 1e-9))
