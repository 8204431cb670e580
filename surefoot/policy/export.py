"""What the configuration files of a saved model say, so that others do with it what the run did.

Whoever serves a model reads from its files what ends a completion: ``generate()`` of Transformers, vLLM and TGI from
``generation_config.json``, others from ``config.json``. A base model's files name its end of text and not always the token
that its chat template ends a turn with; saved as they are, a model that has learned to stop is never stopped
(huggingface/open-r1 pull request 663, hiyouga/LlamaFactory issues 7454 and 9338).
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from transformers import GenerationConfig

# Settings of a base model that stay: its tokens, how it is sampled where that is asked for, what a machine does with it.
# The rest bends even greedy answers (penalties, forced and suppressed tokens) or needs arguments (stop strings, beams):
# nothing of that was there when the run sampled and evaluated.
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
KEPT = ("bos_token_id", "pad_token_id", "max_length", "max_new_tokens", "use_cache", "cache_implementation")


def described(model: Any, tokenizer: Any, stop_ids: Collection[int]) -> Any:
    """The model as it is to be saved: the same weights, with configurations of its own that say what it does.

    Args:
        model: of Transformers.
        tokenizer: names the padding, where the model does not.
        stop_ids: what ends a completion; the first of an own generation config stays the first.
    """
    made = copy.copy(model)
    made.config = copy.deepcopy(model.config)
    made.generation_config = generation(model, tokenizer, stop_ids)
    ends = made.generation_config.eos_token_id
    head = model.get_output_embeddings()
    for config in {id(one): one for one in (made.config, made.config.get_text_config())}.values():
        if hasattr(config, "eos_token_id"):
            config.eos_token_id = ends
        if head is not None and hasattr(config, "tie_word_embeddings"):
            # Files may hold two different matrices under a config that ties them; whoever believes it loses one.
            config.tie_word_embeddings = head.weight is model.get_input_embeddings().weight
    return made


def generation(model: Any, tokenizer: Any, stop_ids: Collection[int]) -> GenerationConfig:
    """The generation config of a model after a run."""
    base = getattr(model, "generation_config", None)
    names = (*KEPT, *(("do_sample", *SAMPLING) if getattr(base, "do_sample", None) else ()))
    kept = {name: value for name in names if (value := getattr(base, name, None)) is not None}
    ends = in_order(getattr(base, "eos_token_id", None), stop_ids)
    if ends:
        kept["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    # The config of the model keeps its own: there it decides which row of the embedding is not trained.
    named = (getattr(model.config.get_text_config(), "pad_token_id", None), tokenizer.pad_token_id, *ends)
    pad = next((one for one in named if one is not None), None)
    if pad is not None:
        kept.setdefault("pad_token_id", pad)
    return GenerationConfig(**kept)


def in_order(named: Any, stop_ids: Collection[int]) -> list[int]:
    """The stop tokens, those that the base model names first: where a reader takes one, it takes that."""
    first = named if isinstance(named, (list, tuple)) else [named]
    return [*dict.fromkeys(token for token in first if token in stop_ids), *sorted({*stop_ids} - {*first})]
