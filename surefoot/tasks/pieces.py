"""Token ids as text, special tokens written out, and which piece of the text each token completes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_BROKEN = "\ufffd"
_WINDOW = 32  # tokens that are looked at one by one until their text is whole characters again
_REMEMBERED = 2**16


class Pieces:
    """Makes texts of one tokenizer's ids, and splits them into those of the tokens.

    Args:
        tokenizer: a Transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._added = {token: text for text, token in getattr(tokenizer, "get_added_vocab", dict)().items()}
        self._garbled = lru_cache(None)(self._is_garbled)
        self._behind = lru_cache(_REMEMBERED)(self._text_behind)
        before = getattr(tokenizer, "eos_token_id", None)
        self._before = [] if before is None else [int(before)]
        if before in self._added and self._garbled(before):
            self._before = []

    def text(self, ids: Sequence[int]) -> str:
        """The text of the tokens, special tokens written out. Nothing is cleaned up: spaces stay as they are."""
        odd = [place for place, token in enumerate(ids) if token in self._added and self._garbled(token)]
        if not odd:
            return self._decode(ids)
        made, done = "", 0
        for place in [*odd, len(ids)]:
            run = tuple(ids[done:place])
            made += self._behind(run) if done else self._decode(run)
            made += self._added[ids[place]] if place < len(ids) else ""
            done = place + 1
        return made

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """A piece for each token; together they are :meth:`text`.

        A character that takes several tokens is in the piece of the last of them, and the others are empty. What is no
        UTF-8 becomes U+FFFD, which is in the piece of the first token whose text shows it.
        """
        text = self.text(ids)
        pieces: list[str] = []
        at = 0
        while len(pieces) < len(ids):
            place = len(pieces)
            # A token's text may depend on where it stands (a space that leads), not on which token is before it.
            piece = self._behind((ids[place],)) if place else self.text(ids[:1])
            found = (
                [piece] if _BROKEN not in piece and text.startswith(piece, at) else self._window(ids, place, text, at)
            )
            pieces += found
            at += sum(map(len, found))
        if pieces:
            pieces[-1] += text[at:]
        return pieces

    def _window(self, ids: Sequence[int], first: int, text: str, at: int) -> list[str]:
        """The pieces of the tokens from ``first`` on, until together they are whole characters of the text from ``at``."""
        pieces: list[str] = []
        done = 0
        look = first + _WINDOW
        for stop in range(first + 1, len(ids) + 1):
            long, last = stop - first > _WINDOW, stop == len(ids)
            if long and not last and (stop < look or self._behind((ids[stop],)).startswith(_BROKEN)):
                pieces.append("")
                continue
            look = max(look, first + 2 * (stop - first)) if long else look
            window = self._behind(tuple(ids[first:stop])) if first else self.text(ids[:stop])
            wanted = text[at : at + len(window)]
            differ = (place for place, (one, other) in enumerate(zip(window, wanted, strict=False)) if one != other)
            same = next(differ, len(wanted))
            pieces.append(text[at + done : at + max(done, same)])
            done = max(done, same)
            if window and same == len(window) and (long or not window.endswith(_BROKEN)):
                break
        return pieces

    def _is_garbled(self, token: int) -> bool:
        """Whether a decoder that is made for ordinary tokens takes an added token's text for something else."""
        return self._added[token] not in self._decode([*self._before, token])

    def _text_behind(self, ids: tuple[int, ...]) -> str:
        """The text of the tokens where others stand before them."""
        return self.text([*self._before, *ids])[len(self.text(self._before)) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
