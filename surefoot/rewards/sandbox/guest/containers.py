"""Containers that both processes hold.

Each message carries the contents of those that have changed. So what a function does to its arguments is seen by the
test that passed them, and a list has one identity.
"""

from __future__ import annotations

import collections
import sys
from typing import Any

from .packing import CONTAINERS, Packing, Shared
from .values import decode, encode

_ALONE = sys.getrefcount(Shared([]).value)  # of a container that nothing else refers to


class Containers(Packing):
    """The contents of the containers, as one side tells them to the other."""

    def _changes(self) -> list[Any]:
        changes, seen, waiting = [], 0, list(self.shared)
        while seen < len(waiting):
            number = waiting[seen]
            seen += 1
            entry, before = self.shared[number], len(self.shared)
            state = self._state(entry.value)
            if state != entry.state:
                entry.state = state
                changes.append([number, type(entry.value).__name__, state])
            if len(self.shared) > before:
                waiting += list(self.shared)[before:]
        return changes

    def _state(self, value: Any) -> Any:
        if isinstance(value, bytearray):
            return encode(bytes(value))
        if isinstance(value, dict):
            pairs = [[self.pack(key), self.pack(item)] for key, item in value.items()]
            return [self.pack(value.default_factory), pairs] if isinstance(value, collections.defaultdict) else pairs
        items = _as_they_are(value) or [self.pack(item) for item in value]
        return [value.maxlen, items] if isinstance(value, collections.deque) else items

    def _apply(self, states: Any) -> None:
        for number, kind, _ in states:  # all of them exist before one is filled with another
            if number not in self.shared:
                value: Any = CONTAINERS[kind]()
                self.shared[number] = Shared(value)
                self.shared_numbers[id(value)] = number
        for number, kind, state in states:
            entry = self.shared[number]
            if kind == "deque" and state[0] != entry.value.maxlen:
                entry.value = collections.deque(maxlen=state[0])
                self.shared_numbers[id(entry.value)] = number
            self._fill(entry.value, state)
        for number, _, state in states:
            entry = self.shared[number]
            simple = isinstance(state, list) and not any(type(item) in (dict, list) for item in state)
            entry.state = state if simple else self._state(entry.value)

    def _fill(self, value: Any, state: Any) -> None:
        if isinstance(value, bytearray):
            value[:] = decode(state)
            return
        if isinstance(value, dict):
            if isinstance(value, collections.defaultdict):
                factory, state = state
                value.default_factory = self.unpack(factory)
            items = [(self.unpack(key), self.unpack(item)) for key, item in state]
            value.clear()
            for key, item in items:  # update() of a Counter adds
                value[key] = item
            return
        if isinstance(value, collections.deque):
            state = state[1]
        items = [self.unpack(item) if type(item) is dict else item for item in state]
        if isinstance(value, list):
            value[:] = items
        else:
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(items)

    def _unused(self) -> list[int]:
        """Forget the containers that nothing here refers to; the one that asked owns them alone from now on."""
        unused = [number for number, entry in self.shared.items() if self._forget(number, entry)]
        for number in unused:
            del self.shared[number]
        return unused

    def _forget(self, number: int, entry: Shared) -> bool:
        if sys.getrefcount(entry.value) > _ALONE:
            return False
        del self.shared_numbers[id(entry.value)]
        entry.value = None  # which frees those in it
        return True

    def _drop(self, numbers: Any) -> None:
        for number in numbers:
            entry = self.shared.pop(number, None)
            if entry is not None:
                self.shared_numbers.pop(id(entry.value), None)


def _as_they_are(value: Any) -> list[Any] | None:
    """The items where each stands for itself in JSON, which is quick to see for those of one type."""
    kinds = set(map(type, value))
    if kinds <= {str, bool, type(None)}:
        return list(value)
    if kinds == {int} and min(value) >= -(2**63) and max(value) < 2**63:
        return list(value)
    return None
