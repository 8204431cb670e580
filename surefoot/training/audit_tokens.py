"""Is a right completion still right once it has been tokens? A run grades what the tokenizer gives back, not what was written.

A tokenizer that knows ``<answer>`` as a special token loses it where special tokens are left out of the text, and a reward
that looks for the tag finds none.
"""

from __future__ import annotations

from collections import Counter

from surefoot.rewards.audit_findings import Finding, counted, examples
from surefoot.rewards.audit_grading import Grader
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.grade import grade, is_right
from surefoot.tasks.render import OPEN, Renderer
from surefoot.types import Prompt, Sample, Score

LOST = 0.05
"""Share of right completions that may be wrong as tokens."""
TRIED = 400
"""Completions of which no more are tried."""


def as_tokens(grader: Grader, renderer: Renderer) -> Finding | None:
    """Encode what was called right, decode it as a run does, and grade it again.

    What the tokenizer cannot write at all, so that no policy could, is left out.

    Args:
        grader: with what was graded.
        renderer: of the run.
    """
    right = list({(c.prompt.prompt_id, c.text): c for c, score in grader.seen if is_right(score)}.values())
    right = [case for case in right[:: max(1, len(right) // TRIED)] if _can_write(renderer, case.text)]
    if not right:
        return None
    read = [as_run(renderer, case.prompt, case.text) for case in right]
    changed = [(case, one) for case, one in zip(right, read, strict=True) if (one.opens + one.text) != case.text]
    scores = _graded(grader.reward, [one for _, one in changed])
    lost = [(case, one, score) for (case, one), score in zip(changed, scores, strict=True) if not is_right(score)]
    numbers = {"tried": len(right), "changed": len(changed), "lost": len(lost)}
    if not lost:
        text = f"{len(right)} right completions are right once they have been tokens"
        return Finding("tokens", "ok", text, (), numbers)
    missing = Counter(tag for case, one, _ in lost for tag in _TAGS if tag in case.text and tag not in one.text)
    gone = f": {', '.join(missing)} are gone from the text" if missing else ""
    text = f"{counted(len(lost), right, 'right completions')} are wrong once they have been tokens{gone}"
    shown = examples((case.prompt, one.text, score) for case, one, score in lost)
    return Finding("tokens", "fail" if len(lost) > LOST * len(right) else "warn", text, shown, numbers)


_TAGS = ("<think>", "</think>", "<answer>", "</answer>", r"\boxed", "####")


def as_run(renderer: Renderer, prompt: Prompt, text: str) -> Completion:
    """A completion as a run hands it to the reward: from its tokens."""
    sample = Sample.of(renderer.ids(prompt), renderer.completion_ids(text), prompt_id=prompt.prompt_id)
    opens = OPEN if renderer.opens_thought else ""
    ids = tuple(sample.ids[sample.mask].tolist())
    return Completion(prompt, renderer.decode(sample), sample.finish, sample.length, ids, opens=opens)


def _can_write(renderer: Renderer, text: str) -> bool:
    """Whether the tokens of a text, special ones and all, spell it; a blank at its ends aside."""
    ids = list(renderer.tokens(text))
    spelled = renderer.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(spelled).strip() == text.strip()


def _graded(reward: Reward, completions: list[Completion]) -> list[Score]:
    return grade(reward, completions) if completions else []
