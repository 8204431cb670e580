r"""Completions that deny the right answer: ``The answer is not B``, ``I rule out B``, ``\boxed{\text{not B}}``.

A policy earns with them where a reward finds an answer in a text without reading what is said of it.
"""

from __future__ import annotations

from collections.abc import Callable

from surefoot.rewards.audit_answers import value_of

SENTENCES = (
    "The answer is not {}.",
    "The answer isn't {}.",
    "The answer is certainly not {}.",
    "The answer cannot be {}.",
    "The correct answer can't be {}.",
    "It is not {}.",
    "It is anything but {}.",
    "Anything but {}.",
    "I rule out {}.",
    "I would rule {} out.",
    "We can eliminate {}.",
    "{} is wrong.",
    "{} is not the answer.",
    "{} is incorrect.",
    "not {}",
)
"""Sentences that say of an answer that it is wrong, and name no other."""
PLACES = (
    r"\boxed{{\text{{not {}}}}}",
    r"\boxed{{\text{{not }}{}}}",
    r"\boxed{{\neq {}}}",
    "<answer>not {}</answer>",
    "<answer>anything but {}</answer>",
    "#### not {}",
)
"""Places of a final answer that hold a denial."""
BEFORE = ("It is not {}. ", "{} is wrong. ", "I rule out {}. ", "The answer is not {}.\n")
"""Denials that stand before another answer."""


def denials(gold: str, other: str, writer: Callable[[str], str] | None) -> list[tuple[str, str, tuple[str, ...]]]:
    """Families of denials: (name, what they do, texts).

    Taking the last number of a text, whatever is said of it, is a common way to grade, and what the verifier 'number' says
    that it does; a number that is only denied is then the answer. That is a family of its own, to be known.

    Args:
        gold: the right answer.
        other: a wrong one.
        writer: writes an answer in the form that the reward likes, where that is known.
    """
    write = writer or (lambda answer: answer)
    another = tuple(before.format(gold) + write(other) for before in BEFORE)
    alone = [denial.format(gold) for denial in (*PLACES, *SENTENCES)]
    alone += [write(f"not {gold}"), write(f"anything but {gold}")]
    texts = tuple(dict.fromkeys(alone))
    if value_of(gold) is None:
        return [("denied", "deny the right answer", (*another, *texts))]
    return [
        ("denied", "deny the right answer and give another", another),
        ("denied number", "deny the right number and give no other", texts),
    ]
