"""The text of a completion: what the policy wrote, without the token that ended it and without padding."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from surefoot.tasks.pieces import Pieces
from surefoot.types import Origin, Sample


class CompletionText:
    """Reads the completions of one tokenizer.

    What leaves the text stands at the end of what the policy wrote, before a tool's output or at the very end: a token that
    ends a turn, and padding. Every other token stays, special or not: tags, channels, tool calls, an end that ended nothing.

    Args:
        pieces: of the tokenizer.
        ends: tokens that end a completion and are no text of it: end of sequence, end of turn.
        stops: further tokens that a completion stops at. One that is an ordinary token of the tokenizer is text; a special
            token leaves, unless it closes a tag that the text has opened (``</answer>``).
    """

    def __init__(self, pieces: Pieces, ends: Collection[int], stops: Collection[int] = ()) -> None:
        self.pieces = pieces
        tokenizer = pieces.tokenizer
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(token for token, text in added if text.special)}
        self._ends = frozenset(ends) | ({tokenizer.pad_token_id} - {None})
        self._stops = {int(stop): pieces.text([stop]) for stop in stops if stop in special and stop not in self._ends}

    def text(self, sample: Sample) -> str:
        """What the policy wrote and what was forced on it; a line break stands in for what was between (a tool's output)."""
        return "\n".join(self.pieces.text(run[:kept].tolist()) for run, kept in self._runs(sample)[1])

    def tokens_at(self, sample: Sample, ends: Sequence[int]) -> list[int]:
        """For each number of characters, the index, among the policy's tokens, of the one with which they are complete.

        A character that takes several tokens is complete with the last of them; one that was forced on the policy counts
        as the policy's last token before it.

        Args:
            sample: at least one token of it was written by the policy.
            ends: numbers of characters of :meth:`text`; more than there are mean all of them.
        """
        places, runs = self._runs(sample)
        lengths: list[int] = []
        for run, kept in runs:
            own = [len(piece) for piece in self.pieces(run[:kept].tolist())]
            own += [0] * (len(run) - kept)
            if lengths and own:
                own[0] += len("\n")
            lengths += own
        done = np.cumsum(lengths)
        at = np.searchsorted(done, np.minimum(ends, done[-1]))
        return np.maximum(0, sample.mask[places].cumsum()[at] - 1).tolist()

    def _runs(self, sample: Sample) -> tuple[np.ndarray, list[tuple[np.ndarray, int]]]:
        """[n] places of the policy's and the forced tokens; and the ids of each adjacent run, with how many of them are text."""
        places = np.flatnonzero((sample.origin == int(Origin.POLICY)) | (sample.origin == int(Origin.INJECTED)))
        breaks = np.flatnonzero(np.diff(places) > 1) + 1
        runs = np.split(places, breaks) if len(breaks) else [places]
        return places, [(sample.ids[run], self._kept(sample.ids[run], sample.mask[run])) for run in runs]

    def _kept(self, ids: np.ndarray, wrote: np.ndarray) -> int:
        """How many tokens of a run are text. What was forced on the policy ends nothing."""
        kept = len(ids)
        while kept and wrote[kept - 1]:
            token = int(ids[kept - 1])
            if token not in self._ends and not (token in self._stops and not self._closes(token, ids[: kept - 1])):
                break
            kept -= 1
        return kept

    def _closes(self, token: int, before: np.ndarray) -> bool:
        """Whether a stop is the end of a tag that was opened before it."""
        closing = self._stops[token]
        return closing[1:2] == "/" and closing.replace("/", "", 1) in self.pieces.text(before.tolist())
