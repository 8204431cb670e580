"""The text of single tokens, where a token may be a part of a character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BYTES_OF_A_CHARACTER = 4  # UTF-8's longest
_BROKEN = "\ufffd"


class Pieces:
    """Splits a text into that of its tokens.

    Args:
        tokenizer: a Transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._single: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """A piece for each token; together they are the text, special tokens written out.

        A character that takes several tokens is in the piece of the last of them, and the others are empty. What is no
        UTF-8 at all becomes U+FFFD after :data:`BYTES_OF_A_CHARACTER` tokens at most.
        """
        single = [self._one(token) for token in ids]
        if "".join(single) == self._decode(ids):
            return single
        # A token's text may depend on its neighbours (a space that leads, a character in several tokens): what it adds to
        # the text of those since the last boundary but one.
        pieces: list[str] = []
        start = done = 0
        for stop in range(1, len(ids) + 1):
            before, text = self._decode(ids[start:done]), self._decode(ids[start:stop])
            if text.endswith(_BROKEN) and stop - done < BYTES_OF_A_CHARACTER and stop < len(ids):
                pieces.append("")
                continue
            pieces.append(text[len(before) :])
            start, done = done, stop
        return pieces

    def _one(self, token: int) -> str:
        if token not in self._single:
            self._single[token] = self._decode([token])
        return self._single[token]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
