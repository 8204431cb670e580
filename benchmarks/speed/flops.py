"""How many operations a piece of work needs at least: the numerator of the share of the matrix-product rate.

Counted are the matrix products that no implementation can leave out, two operations for each product and sum. What an
implementation computes beyond them (padding, a prompt once for each of its samples, logits a second time in the backward
pass) makes its share smaller, as it should.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """The products of a Llama: weights of all layers, of the head, and the width that attention runs over."""

    layers: int
    weights: int
    head: int
    attention: int

    @classmethod
    def read(cls, folder: Path) -> Shape:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width, heads = config["hidden_size"], config["num_attention_heads"]
        size = config.get("head_dim") or width // heads
        keys = config.get("num_key_value_heads", heads) * size
        layer = width * (2 * heads * size + 2 * keys) + 3 * width * config["intermediate_size"]
        layers = config["num_hidden_layers"]
        return cls(layers, layers * layer, config["vocab_size"] * width, heads * size)

    def body(self, tokens: float) -> float:
        return 2.0 * self.weights * tokens

    def attend(self, pairs: float) -> float:
        """Operations of the products with keys and with values, for so many (query, key) pairs."""
        return 4.0 * self.layers * self.attention * pairs

    def generate(self, prompts: int, samples: int, prompt: float, answer: float) -> float:
        """Every prompt once for all its samples; every drawn token but the last is read again."""
        rows, read = prompts * samples, max(0.0, answer - 1)
        pairs = prompts * prompt * prompt / 2 + rows * read * (prompt + read / 2)
        return self.body(prompts * prompt + rows * read) + 2.0 * self.head * rows * answer + self.attend(pairs)

    def train(self, prompts: int, samples: int, prompt: float, answer: float) -> float:
        """Forward and backward of whole sequences with the logits of the answers; every prompt once for its samples."""
        rows = prompts * samples
        pairs = prompts * prompt * prompt / 2 + rows * answer * (prompt + answer / 2)
        body = self.body(prompts * prompt + rows * answer) + self.attend(pairs)
        return 3.0 * (body + 2.0 * self.head * rows * answer)
