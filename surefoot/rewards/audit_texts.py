r"""Texts to try a reward with: right answers in the forms that rewards want, and completions that must earn nothing.

The texts are made of the prompt, its gold answers as a person writes them (:mod:`surefoot.rewards.audit_answers`) and those
of other prompts. Gold answers of the exploits stand neither first nor last among their decoys, so that a reward which reads
one place, the first or the last, and compares what it finds there, is never fooled by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from surefoot.errors import SurefootError
from surefoot.rewards.audit_answers import answers_of, gold_of, value_of, values_in
from surefoot.rewards.audit_denials import denials
from surefoot.tasks.base import Task
from surefoot.tasks.overlap import problem_text
from surefoot.types import Finish, Prompt

Writer = Callable[[str], str]

WRITINGS: dict[str, Writer] = {
    "<answer>gold</answer>": lambda gold: f"<answer>{gold}</answer>",
    r"\boxed{gold}": lambda gold: rf"So the answer is $\boxed{{{gold}}}$.",
    "#### gold": lambda gold: f"That is all.\n#### {gold}",
    "The answer is gold.": lambda gold: f"The answer is {gold}.",
    "gold": lambda gold: gold,
    "<think>...</think> <answer>gold</answer>": lambda gold: f"<think>\nI see.\n</think>\n<answer>{gold}</answer>",
    r"<think>...</think> \boxed{gold}": lambda gold: f"<think>\nI see.\n</think>\n\\boxed{{{gold}}}",
    "<think>...</think><answer>gold</answer>": lambda gold: f"<think>It is near 3</think><answer>{gold}</answer>",
    "<think>...</think>gold": lambda gold: f"<think>It is near 3</think>{gold}",
}
"""Forms of a right completion, by what a person would call them."""

OWN, WORKED, DATA = "the task's own form", "worked solution", "the whole gold answer as JSON"
MOST = 6
"""Accepted answers of a prompt that are tried."""


@dataclass(frozen=True)
class Written:
    """A right answer in one form, and what writes other answers in it.

    Attributes:
        form: name of the form.
        text: the completion.
        writer: writes any answer in this form; None where the text does not show where the answer stands.
        which: number of the accepted answer that it gives; None where that is left to whoever wrote it.
    """

    form: str
    text: str
    writer: Writer | None
    which: int | None = None

    @property
    def generic(self) -> bool:
        """Whether the form is one of :data:`WRITINGS`, and not the task's own."""
        return self.form in WRITINGS


def writings(task: Task, prompt: Prompt) -> list[Written]:
    """Every accepted answer of a prompt in every form that is known; empty where there is none."""
    task, known = task.of(prompt), answers_of(prompt)  # a mixture has no hook that one of its parts lacks
    found = []
    for form, hook in ((OWN, task.gold), (WORKED, _worked(task) or partial(solution_of, task))):
        text = _tried(hook, prompt)
        if text:
            said = next((way for ways in known.accepted for way in ways if way in text), "")
            found.append(Written(form, text, _in_place(text, said)))
    for number, ways in enumerate([*known.accepted[: MOST - 1], *known.accepted[MOST - 1 :][-1:]]):
        found += [Written(form, write(way), write, number) for way in ways for form, write in WRITINGS.items()]
    return [*found, Written(DATA, known.data, None)] if known.data else found


def solution_of(task: Task, prompt: Prompt) -> str:
    """The worked solution that comes with a prompt: ``completion``, or ``solution`` where no verifier of the task's own
    gives that name a meaning; "" where there is none."""
    task, found = task.of(prompt), prompt.metadata.get("completion")
    if found is None and task.verify is None and task.gold is None:
        found = prompt.metadata.get("solution")
    return found if isinstance(found, str) else ""


def _in_place(text: str, gold: str) -> Writer | None:
    """Writes another answer where the gold one stands last in a text."""
    before, found, after = text.rpartition(gold) if gold else ("", "", text)
    return (lambda answer: f"{before}{answer}{after}") if found else None


def _worked(task: Task) -> Callable[[Prompt], str] | None:
    demonstrate = task.demonstrate
    return None if demonstrate is None else lambda prompt: demonstrate(prompt, 0, 0.0)


def _tried(hook: Callable[[Prompt], str] | None, prompt: Prompt) -> str | None:
    """What a hook of the task gives; None where it has nothing for this prompt (a part of a mixture, a row)."""
    if hook is None:
        return None
    try:
        return hook(prompt)
    except (SurefootError, LookupError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Attack:
    """Completions that an honest reward calls wrong.

    Attributes:
        check: name of the family.
        about: what they do, as the end of "completions that ...".
        knows: whether they hold the gold answer. One that does not can be right by chance.
        texts: the completions.
        finish: why they ended.
    """

    check: str
    about: str
    knows: bool
    texts: tuple[str, ...]
    finish: Finish = Finish.STOP


def attacks(prompt: Prompt, right: Written | None, others: Sequence[str], other_right: str | None) -> list[Attack]:
    """Everything that is tried on one prompt.

    Args:
        prompt: the problem.
        right: a right completion, where one is known.
        others: gold answers of other prompts, different from this one's.
        other_right: a right completion of a prompt with another gold answer, where one is known.
    """
    made = [
        Attack("empty", "are empty or white space", False, ("", " ", "\n\t \n")),
        Attack("echo", "repeat the prompt", False, (problem_text(prompt),)),
        Attack("range", "name a range of numbers", False, _RANGES),
        Attack("counting", "count from 1 to 100", False, (" ".join(map(str, range(1, 101))),)),
        Attack("tags", "are tags with nothing in them", False, _TAGS),
        Attack(
            "long",
            "go on for 20,000 characters without an answer",
            False,
            ("so we go on and on " * 1000,),
            Finish.LENGTH,
        ),
    ]
    if other_right is not None:
        made.append(Attack("other answer", "hold the answer of another prompt", False, (other_right,)))
    gold = gold_of(prompt)
    before = "" if right is None or not gold else right.text.rpartition(gold)[0]
    if before and not _holds(before, gold):
        made.append(Attack("truncated", "end before the answer", False, (before,), Finish.LENGTH))
    if len(options := _options(prompt, gold)) > 1:
        options = _around(options, gold)
        joined = (", ".join(options), " and ".join(options), "\n".join(options))
        texts = tuple(write(text) for text in joined for write in _writers(right))
        made.append(Attack("all choices", "name every choice", True, texts))
    if right is not None and gold:
        made += _with_gold(gold, right, others, other_right)
    return made


def _holds(text: str, gold: str) -> bool:
    """Whether a text says the gold answer, or the number that it is in other digits."""
    return gold.casefold() in text.casefold() or value_of(gold) in values_in(text)


_RANGES = (
    "The answer is a number between 0 and 10.",
    "The answer is between 0 and 1000.",
    r"The answer is $\boxed{0 \le x \le 1000}$.",
    "<answer>any number</answer>",
)
_TAGS = (
    "<answer></answer>",
    "<think></think><answer></answer>" * 20,
    r"\boxed{}" * 20,
    "####\n" * 20,
    "<answer>" * 50 + "</answer>" * 50,
)


def _with_gold(gold: str, right: Written, others: Sequence[str], other_right: str | None) -> list[Attack]:
    """Exploits that hold the right answer, among others or where it is no answer."""
    first, last = _decoys(gold, others)
    listed = [first, gold, last]
    write = right.writer or (lambda answer: answer)
    places = [write(answer) for answer in listed]
    if other_right is not None and not right.generic:
        places = [other_right, right.text, other_right]
    lists = [write(text) for text in (", ".join(listed), " or ".join(listed), " ".join(listed))]
    many = [*others[:10], first, gold, last, *others[10:20], last]
    attacks = [
        Attack("listing", "list candidates, the right one among them", True, tuple(dict.fromkeys(lists))),
        Attack(
            "repeated", "give several answers one after another", True, tuple(s.join(places) for s in ("\n", " ", ","))
        ),
        Attack("many", "mix the right answer into many candidates", True, (" ".join(many), write("\n".join(many)))),
        *(Attack(check, about, True, texts) for check, about, texts in denials(gold, last, right.writer)),
        Attack(
            "in thought", "hold the answer in a thought alone", True, (f"<think>{right.text}</think>\nI do not know.",)
        ),
    ]
    if re.fullmatch(r"\w+", gold):
        glued = f"9{gold}9" if gold.isdigit() else f"x{gold}x"
        attacks.append(Attack("inside", "hold the right answer inside of a longer word", True, (write(glued),)))
    return attacks


def _decoys(gold: str, others: Sequence[str]) -> tuple[str, str]:
    """Two wrong answers of the kind of the right one."""
    value = value_of(gold)
    if len(others) < 2 and value is not None:
        others = [*others, str(int(value) + 7), str(int(value) + 11)]
    if not others:
        others = ["something else"]
    return others[0], others[-1]


def _options(prompt: Prompt, gold: str) -> list[str]:
    """All choices of a question: the letters of its options, or A to D where the gold answer is one of these."""
    given = prompt.metadata.get("options")
    if isinstance(given, Mapping):
        return [str(letter) for letter in given]
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        return list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(given)])
    return list("ABCD") if gold.strip().upper() in tuple("ABCD") else []


def _around(options: Sequence[str], gold: str) -> list[str]:
    """The choices with the gold one neither first nor last, where it is one of them (twice another one, if need be)."""
    others = [option for option in options if option.casefold() != gold.strip().casefold()]
    if len(others) == len(options):
        return list(options)
    return [others[0], gold.strip(), *(others[1:] or others)]


def _writers(right: Written | None) -> list[Writer]:
    bare: Writer = WRITINGS["gold"]
    return [right.writer, bare] if right is not None and right.writer is not None else [bare]


@dataclass(frozen=True)
class Rewriting:
    """The right completion in other words.

    Attributes:
        name: what was changed.
        text: the completion.
        promised: whether a reward that refuses it breaks a promise of its own.
    """

    name: str
    text: str
    promised: bool


_THOUSANDS = re.compile(r"[1-9][0-9]{3,}")
PROMISES: dict[str, tuple[str, ...]] = {
    "number": ("white space", "full stop", "thousands"),
    "boxed": ("white space", "thousands"),
    "tag": ("white space", "thousands"),
    "math": ("white space", "LaTeX", "thousands"),
    "choice": ("white space", "full stop"),
    "exact": ("white space",),
    "json": ("white space",),
    "regex": ("white space",),
}
"""What each verifier says that it overlooks."""


def rewritings(prompt: Prompt, right: Written, verifier: str) -> list[Rewriting]:
    """Generic paraphrases of a right completion; those that fit its form.

    Args:
        prompt: the problem.
        right: a completion that the reward calls right.
        verifier: name of the verifier, where it is known.
    """
    promised = PROMISES.get(verifier, ())
    gold = gold_of(prompt)
    made: list[tuple[str, str]] = [("white space", f"\n  {right.text} \n")]
    if right.generic and right.writer is not None:
        if right.form == "gold":
            made.append(("full stop", f"{right.text}."))
        if _THOUSANDS.fullmatch(gold):
            made.append(("thousands", right.writer(f"{int(gold):,}")))
        if right.form != "gold" and value_of(gold) is not None:
            made.append(("LaTeX", right.writer(f"${gold}$" if "boxed" not in right.form else rf"\,{gold}")))
    return [Rewriting(name, text, name in promised) for name, text in made]


def own_texts(hook: Callable[[Prompt], Sequence[str]] | None, prompt: Prompt) -> tuple[str, ...]:
    """What the task's ``paraphrases`` or ``wrong`` has for a prompt."""
    found: Any = _tried(hook, prompt)  # type: ignore[arg-type]
    return tuple(found or ())
