"""Rewards that must not teach anything: what an experiment's other arms are measured against.

Some base models improve with random rewards, through clipping or a format that comes back; an arm with one of these shows
how much of a gain is of that kind. Correctness is still said as the verifier sees it, so that accuracy keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from surefoot.errors import ConfigError
from surefoot.rewards.base import Completion, Reward
from surefoot.seeds import derive, generator
from surefoot.types import Score


def make_control(kind: str, reward: Reward, seed: int) -> Reward:
    """A control by name, ``"coin"`` or ``"shuffled"``.

    Raises:
        ConfigError: another name.
    """
    if kind not in CONTROLS:
        raise ConfigError(f"control = {kind!r}: expected one of {', '.join(CONTROLS)}")
    return CONTROLS[kind](reward, seed)


class Coin:
    """Tosses a coin for each completion.

    The toss depends on the seed, the prompt and the text, so that a resumed run sees the same reward.
    """

    def __init__(self, reward: Reward, seed: int) -> None:
        self.reward, self.seed = reward, seed
        self.name = f"coin of {reward.name}"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores = self.reward.score(completions)
        return [
            replace(score, total=float(derive(self.seed, "coin", completion.prompt.prompt_id, completion.text) % 2))
            if score.valid
            else score
            for score, completion in zip(scores, completions, strict=True)
        ]


class Shuffled:
    """Gives each completion the reward of another one of its batch: the same distribution, and no information.

    The order depends on the seed and the batch's texts.
    """

    def __init__(self, reward: Reward, seed: int) -> None:
        self.reward, self.seed = reward, seed
        self.name = f"shuffled {reward.name}"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        scores = self.reward.score(completions)
        valid = [i for i, score in enumerate(scores) if score.valid]
        key = derive(self.seed, "shuffled", *(completion.text for completion in completions))
        order = generator(key).permutation(np.array(valid, dtype=np.int64))
        shuffled = list(scores)
        for place, source in zip(valid, order.tolist(), strict=True):
            shuffled[place] = replace(scores[place], total=scores[source].total)
        return shuffled


CONTROLS: dict[str, Callable[[Reward, int], Reward]] = {"coin": Coin, "shuffled": Shuffled}
