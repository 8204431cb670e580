"""The embedded default: a fresh tiny Llama and a character tokenizer, made on the spot from a seed.

It is a real Transformers architecture in real Hugging Face files, so everything that works on it works on a larger
model; it needs no download, and a step of reinforcement learning takes a fraction of a second on one CPU core.
"""

from __future__ import annotations

import string
import threading

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from surefoot.seeds import derive

CONTEXT = 256
WIDTH = 96
CHARACTERS = "".join(sorted(string.digits + string.ascii_letters + string.punctuation + " \n"))
_DRAWING = threading.Lock()
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"

# What comes before an assistant turn is the same whether the turn follows or has yet to be generated.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% elif message['role'] == 'system' %}{{ '\\n' }}{% endif %}"
    "{% endfor %}"
)


def fresh_model(seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A new model of 0.23 million float32 parameters (two layers of width 96) and its tokenizer (99 tokens).

    Args:
        seed: seed of the initial weights; the global random state is left as it was.
    """
    tokenizer = character_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        # The usual 0.02 is for widths of a thousand and more: this narrow model learns three times slower with it.
        initializer_range=WIDTH**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # The weights are drawn from PyTorch's global generator, which all threads share.
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "embedded model"))
        model = LlamaForCausalLM(config)
    return model.float().eval(), tokenizer


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character and newline; ``<pad>``, ``<eos>`` and ``<unk>`` come first.

    Decoding gives back every character that went in; a character outside the vocabulary becomes ``<unk>``.
    """
    vocabulary = {token: index for index, token in enumerate((PAD, EOS, UNKNOWN, *CHARACTERS))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
