"""The arithmetic of a run in words, and an estimate of its memory: what ``surefoot train --dry-run`` prints."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

from surefoot.training.config import RunConfig

FLOAT32 = 4
WIDTH = 79
MOMENTS = 2  # AdamW keeps two numbers per weight, in float32


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder-only model that its memory depends on.

    Attributes:
        parameters: weights, tied ones counted once.
        vocabulary: rows of the language-model head.
        layers, width, inner: decoder layers, size of the hidden state, size inside the feed-forward part.
        kv_width: key-value heads x size of a head.
        context: longest sequence in tokens.
        learned: weights that learn, those of adapters; None: all.
    """

    parameters: int
    vocabulary: int
    layers: int
    width: int
    inner: int
    kv_width: int
    context: int = 0
    learned: int | None = None

    @classmethod
    def of(cls, config: Any, parameters: int, learned: int | None = None) -> Shape:
        """Read the sizes from the configuration of a Transformers model."""
        text = config.get_text_config()
        heads = text.num_attention_heads
        head = getattr(text, "head_dim", None) or text.hidden_size // heads
        return cls(
            parameters=parameters,
            vocabulary=text.vocab_size,
            layers=text.num_hidden_layers,
            width=text.hidden_size,
            inner=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            kv_width=(getattr(text, "num_key_value_heads", None) or heads) * head,
            context=getattr(text, "max_position_embeddings", 0) or 0,
            learned=learned,
        )


@dataclass(frozen=True)
class Arithmetic:
    """The counts that follow from a configuration. ``row``: tokens of the longest sequence, prompt and budget."""

    row: int
    sequences: int
    optimiser_steps: int
    mini_batch_sequences: int
    rows_per_micro_batch: int
    micro_batches: int
    rows_per_wave: int
    waves: int

    @classmethod
    def of(cls, config: RunConfig, longest_prompt: int) -> Arithmetic:
        train = config.train
        row = longest_prompt + config.rollout.max_new_tokens
        sequences = train.prompts_per_step * train.group_size
        mini_batch = math.ceil(train.prompts_per_step / train.updates_per_step) * train.group_size
        rows = max(train.micro_batch_tokens // row, 1)
        wave = max(config.rollout.max_batch_tokens // row, 1)
        return cls(
            row=row,
            sequences=sequences,
            optimiser_steps=train.steps * train.epochs * train.updates_per_step,
            mini_batch_sequences=mini_batch,
            rows_per_micro_batch=min(rows, mini_batch),
            micro_batches=math.ceil(mini_batch / rows),
            rows_per_wave=min(wave, sequences),
            waves=math.ceil(sequences / wave),
        )


def describe(config: RunConfig, shape: Shape, *, longest_prompt: int, train_size: int, heldout_size: int) -> str:
    """The batch arithmetic in words and the memory estimate.

    Args:
        config: the run.
        shape: the sizes of its model.
        longest_prompt: tokens of the longest rendered prompt.
        train_size: number of training problems.
        heldout_size: number of held-out problems.
    """
    return "\n".join(
        [*_batch(config, longest_prompt, train_size, heldout_size), "", *_memory(config, shape, longest_prompt)]
    )


def _batch(config: RunConfig, longest_prompt: int, train_size: int, heldout_size: int) -> list[str]:
    train, budget = config.train, config.rollout.max_new_tokens
    n = Arithmetic.of(config, longest_prompt)
    drawn = train.steps * train.prompts_per_step
    problems, samples = min(config.evaluation.problems, heldout_size), config.evaluation.samples
    every = config.evaluation.every
    algorithm = config.algorithm.build()
    refills = "refill" in algorithm.selection.kind.traits
    rounds = algorithm.selection.rounds if refills else 1
    greedy = "greedy" in algorithm.advantage.kind.traits
    sampled = train.steps * rounds * (n.sequences + (train.prompts_per_step if greedy else 0))
    updates = _many(train.updates_per_step, "mini-batch", "mini-batches")
    passes = _many(n.micro_batches, "micro-batch", "micro-batches")
    facts = {
        "a step": f"{train.prompts_per_step} prompts x {train.group_size} samples = {n.sequences:,} sequences, "
        f"each of at most {longest_prompt} + {budget} = {n.row:,} tokens (longest prompt + budget)"
        + (f"; up to {algorithm.selection.rounds} such batches until enough prompts have signal" if refills else "")
        + ("; one greedy completion more for each prompt" if greedy else ""),
        "generation": f"{_many(n.waves, 'wave')} of at most {n.rows_per_wave:,} rows "
        f"(rollout.max_batch_tokens = {config.rollout.max_batch_tokens:,})",
        "update": f"{updates} of {n.mini_batch_sequences:,} sequences, gone through {_times(train.epochs)}: "
        f"{_many(train.updates_per_step * train.epochs, 'optimiser step')} per step",
        "passes": f"a mini-batch is computed in at most {passes} of {n.rows_per_micro_batch:,} rows "
        f"(train.micro_batch_tokens = {train.micro_batch_tokens:,})",
        "in total": f"{_many(train.steps, 'step')} = {_many(n.optimiser_steps, 'optimiser step')}, "
        f"{'up to ' if refills else ''}{sampled:,} sequences, at most {sampled * budget:,} generated tokens",
        "data": f"{drawn:,} prompts drawn from {train_size:,}: {drawn / max(train_size, 1):.2f} epochs",
        "held-out": f"{_many(problems, 'problem')} x {_many(samples, 'sample')}, before the first step, "
        + (f"after every {_nth(every)}step and after the last" if every else "and after the last"),
    }
    return ["Batch", *[_paragraph(name, text) for name, text in facts.items()]]


def _paragraph(name: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)


def memory(config: RunConfig, shape: Shape, longest_prompt: int) -> dict[str, float]:
    """Bytes of everything large that the run holds, by name.

    Weights, gradients and moments follow from the number of weights. The activations are what a Llama-like layer keeps
    for its backward pass without recomputation: about 8 hidden states, keys and values, and 4 inner states per token.
    """
    n = Arithmetic.of(config, longest_prompt)
    size = FLOAT32 if config.model.dtype == "float32" else 2
    slots = n.rows_per_wave * n.row
    tokens = n.rows_per_micro_batch * n.row
    chunk = min(config.model.logprob_chunk, tokens)
    algorithm = config.algorithm.build()
    widened = size == 2 and (config.model.head_float32 or algorithm.head())
    # A critic with a model of its own keeps no language-model head, which is left out of this estimate where it is tied.
    # Adapters are float32, and their base is common to policy, reference and a critic that starts from the policy.
    learned, wide = (shape.parameters, size) if shape.learned is None else (shape.learned, FLOAT32)
    critic = learned if algorithm.needs_critic and config.critic.kind == "model" else 0
    return {
        "weights": shape.parameters * size,
        "reference weights": learned * wide if algorithm.needs_reference else 0,
        "critic with its moments": critic * (2 * wide + MOMENTS * FLOAT32),
        "gradients": learned * wide,
        "AdamW moments": learned * MOMENTS * FLOAT32,
        "float32 head, both sides": 2 * shape.vocabulary * shape.width * FLOAT32 if widened else 0,
        "key-value cache of a wave": 2 * shape.layers * shape.kv_width * slots * size,
        "activations of a micro-batch": shape.layers
        * (8 * shape.width + 2 * shape.kv_width + 4 * shape.inner)
        * tokens
        * size,
        "logits of a chunk": 2 * chunk * shape.vocabulary * FLOAT32,
    }


def _memory(config: RunConfig, shape: Shape, longest_prompt: int) -> list[str]:
    parts = memory(config, shape, longest_prompt)
    generating = parts["key-value cache of a wave"]
    updating = parts["activations of a micro-batch"] + parts["logits of a chunk"]
    always = sum(parts.values()) - generating - updating
    lines = [
        f"Memory (estimate; {shape.parameters:,} weights, vocabulary {shape.vocabulary:,}, {config.model.dtype})",
        *[f"  {name:<29}{_size(value):>10}" for name, value in parts.items() if value],
        f"  {'peak while generating':<29}{_size(always + generating):>10}",
        f"  {'peak while updating':<29}{_size(always + updating):>10}",
    ]
    lowers = "rollout.max_batch_tokens" if generating > updating else "train.micro_batch_tokens"
    return [*lines, f"  Python and PyTorch come on top; {lowers} lowers the peak most"]


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _nth(count: int) -> str:
    if count == 1:
        return ""
    ending = "th" if 10 <= count % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending} "


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
