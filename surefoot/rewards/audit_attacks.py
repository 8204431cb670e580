"""Exploits and paraphrases: what must not score, and what must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from surefoot.rewards.audit_answers import answers_of, gold_of, is_gold
from surefoot.rewards.audit_findings import Finding, Severity, counted, examples
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.audit_texts import PROMISES, Attack, Written, attacks, own_texts, rewritings
from surefoot.rewards.grade import is_right
from surefoot.tasks.base import Task
from surefoot.types import Prompt, Score

SLIPS = 0.1
"""Share of prompts that an exploit with the gold answer in it may fool: two answers can be the same in other words."""
LUCK = 0.25
"""Share beyond that of the most frequent gold answer from which a text without the answer is right by more than luck."""
LENIENT = ("in thought", "echo")
"""Exploits that many honest rewards fall for, because they read the whole text: to be known, not a reason to stop."""
TOLD = ("denied number",)
"""Those that a reward which says that it takes the last number of a text falls for by what it says."""


@dataclass
class Asked:
    """The prompts that are asked about, and what is known of them.

    Attributes:
        task: the task.
        grader: of its reward.
        prompts: the P prompts.
        right: [P], for each a right completion, where one is known.
        own: whether the task's own texts are about this reward.
        wrong: what was graded as an exploit.
    """

    task: Task
    grader: Grader
    prompts: Sequence[Prompt]
    right: Sequence[Written | None]
    own: bool
    wrong: list[tuple[Case, Score]] = field(default_factory=list)

    def attacks(self) -> Iterable[tuple[Prompt, list[Attack]]]:
        """What is tried on each prompt."""
        for index, prompt in enumerate(self.prompts):
            others, other_right = self._others(index)
            yield prompt, attacks(prompt, self.right[index], others, other_right)

    def _others(self, index: int) -> tuple[list[str], str | None]:
        """Gold answers that differ from this prompt's, and a right completion with the first of them."""
        label = self.prompts[index].metadata.get("task")
        solved = self.right[index]
        golds: dict[str, Written | None] = {}
        solutions: list[str] = []  # of prompts without a gold answer: their tests are among the metadata
        for other, right in zip(
            [*self.prompts[index + 1 :], *self.prompts[:index]],
            [*self.right[index + 1 :], *self.right[:index]],
            strict=True,
        ):
            gold = gold_of(other)
            if (
                gold
                and not is_gold(gold, self.prompts[index])
                and other.metadata.get("task") == label
                and len(golds) < 24
            ):
                golds[gold] = golds.get(gold) or right
            elif not gold and right is not None and solved is not None and right.text != solved.text:
                solutions.append(right.text)
        texts = [right.text for right in golds.values() if right is not None] or solutions
        return list(golds), texts[0] if texts else None

    def try_all(self) -> None:
        """Grade the exploits of a reward that does not say what is right, to see whether it grades them at all."""
        for prompt, tried in self.attacks():
            if self.grader.late:
                return
            self.grader.grade([Case(prompt, text, one.finish) for one in tried for text in one.texts])


def fooled_by(asked: Asked) -> list[Finding]:
    """A finding for each family of exploits."""
    fooled: dict[str, list[tuple[Prompt, str, Score]]] = {}
    tried: Counter[str] = Counter()
    known: dict[str, Attack] = {}
    for prompt, made in asked.attacks():
        if asked.grader.late:
            break
        if asked.own and (texts := own_texts(asked.task.wrong, prompt)):
            made.append(Attack("task's wrong", "the task itself calls wrong", True, texts))
        cases = [Case(prompt, text, one.finish) for one in made for text in one.texts]
        scores = asked.grader.grade(cases)
        asked.wrong += zip(cases, scores, strict=True)
        graded = iter(zip(cases, scores, strict=True))
        for attack in made:
            known.setdefault(attack.check, attack)
            tried[attack.check] += 1
            right = [
                (prompt, case.text, score) for case, score in (next(graded) for _ in attack.texts) if is_right(score)
            ]
            fooled.setdefault(attack.check, []).extend(right[:1])
    luck = _commonest(asked.prompts)
    return [_found(known[check], cases, tried[check], luck) for check, cases in fooled.items()]


def _found(attack: Attack, fooled: list[tuple[Prompt, str, Score]], tried: int, luck: float) -> Finding:
    numbers = {"prompts": tried, "fooled": len(fooled)}
    about = f"completions that {attack.about}"
    share = len(fooled) / tried
    if not fooled or (not attack.knows and share <= luck):
        by_luck = f", no more than by luck ({counted(len(fooled), tried)})" if fooled else ""
        return Finding(attack.check, "ok", f"{about} score nothing{by_luck}", (), numbers)
    severity: Severity = "fail" if share > (SLIPS if attack.knows else luck + LUCK) else "warn"
    if attack.check in LENIENT:
        severity = "warn"
    if attack.check in TOLD:
        severity = "info"
    text = f"{about} are called right for {counted(len(fooled), tried)}"
    return Finding(attack.check, severity, text, examples(fooled), numbers)


def _commonest(prompts: Sequence[Prompt]) -> float:
    """Share of the most frequent gold answer: what always giving that answer earns."""
    golds = Counter(text for prompt in prompts for text in {ways[0] for ways in answers_of(prompt).accepted} or {""})
    return golds.most_common(1)[0][1] / len(prompts) if golds else 0.0


def paraphrases(asked: Asked) -> Finding:
    """Right answers in other words must be right: those of the task, or else generic ones."""
    verifier = verifier_name(asked.grader.reward)
    broken: list[tuple[Prompt, str, Score]] = []
    refused: Counter[str] = Counter()
    tried = 0
    for prompt, right in zip(asked.prompts, asked.right, strict=True):
        if right is None or (tried and asked.grader.late):
            continue
        own = own_texts(asked.task.paraphrases, prompt) if asked.own else ()
        made = [("the task's own", text, True) for text in own] or [
            (one.name, one.text, one.promised) for one in rewritings(prompt, right, verifier)
        ]
        scores = asked.grader.grade([Case(prompt, text) for _, text, _ in made])
        tried += len(made)
        for (name, text, promised), score in zip(made, scores, strict=True):
            if not is_right(score):
                refused[name] += 1
                broken += [(prompt, text, score)] if promised or name == "white space" else []
    promised = bool(refused["the task's own"]) or any(name in refused for name in PROMISES.get(verifier, ()))
    numbers = {"graded": tried, "refused": dict(refused)}
    if not refused:
        return Finding("paraphrases", "ok", f"{tried} right answers in other words are right", (), numbers)
    names = ", ".join(f"{name} {number}" for name, number in refused.most_common())
    text = f"{counted(refused.total(), tried, 'right answers')} are refused in other words ({names})"
    severity: Severity = "fail" if promised and len(broken) > SLIPS * tried else "warn" if broken else "info"
    return Finding("paraphrases", severity, text, examples(broken), numbers)


def verifier_name(reward: object) -> str:
    """Name of the verifier inside of a reward that only weighs its verdict."""
    inner = getattr(reward, "verifier", reward)
    return str(getattr(inner, "name", ""))
