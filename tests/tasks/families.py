"""Small tokenizers of the families that are in use, with tags and marks of chats as added tokens."""

from __future__ import annotations

import string
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TAGS = ("<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>")
MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|channel|>",
    "<|message|>",
    "<|begin_of_box|>",
    "<|end_of_box|>",
    "<réponse>",
    "</réponse>",
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "It is near 3, so the answer is 5. I do not know, maybe \\boxed{5} or \\boxed{7}.",
    'The number 12 and the number 35 make 47. {"answer": 5} [1, 2, 3]\n\nFirst, add 8 + 9 = 17.',
    "你好，世界。答案是五。 Привет, мир! naïve café. 😀 😃 👩‍👩‍👧 🇩🇪 é à",
    string.printable[:95],
] * 3
FAMILIES = ("byte-level", "bytes", "metaspace", "byte-fallback", "unigram")
"""Those that write every text back as it was."""


def family(name: str, *, special: bool = True, template: str | None = CHATML, **over: Any) -> Any:
    """A tokenizer; ``special`` says whether the tags and marks are special tokens or merely added ones."""
    inner = _INNER[name]()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **{
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "chat_template": template,
            "clean_up_tokenization_spaces": False,
        }
        | over,
    )
    added = [AddedToken(text, special=special, normalized=False) for text in (*TAGS, *MARKS)]
    made.add_tokens(added, special_tokens=special)
    return made


def _byte_level() -> Tokenizer:
    """GPT-2, Llama 3, Qwen: bytes as characters, merged."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return inner


def _bytes() -> Tokenizer:
    """The same without a merge: every character beyond ASCII takes several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return inner


def _metaspace() -> Tokenizer:
    """SentencePiece's way of spaces, a leading one put before the text."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace(prepend_scheme="first")
    inner.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    return inner


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_fallback(prepend: bool = False) -> Tokenizer:
    """Gemma: spaces as U+2581, nothing put before the text, unknown characters as bytes. With ``prepend`` Llama 2."""
    letters = sorted({c for text in CORPUS for c in text.replace(" ", "▁") if ord(c) < 128 or c == "▁"})
    vocabulary = {text: i for i, text in enumerate(["<unk>", "<s>", "</s>", *_BYTES, *letters])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    replace = normalizers.Replace(" ", "▁")
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prepend else replace
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if prepend else back)
    return inner


def _unigram() -> Tokenizer:
    """T5 and XLNet: SentencePiece's unigram model."""
    inner = Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    inner.train_from_iterator(CORPUS, trainer)
    return inner


def _wordpiece() -> Tokenizer:
    """BERT: words without their spaces, which decoding puts between all tokens."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\W|\d"), "isolated")]
    )
    inner = Tokenizer(models.WordPiece(unk_token="<unk>"))
    inner.pre_tokenizer, inner.decoder = split, decoders.WordPiece()
    inner.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    )
    return inner


_INNER = {
    "byte-level": _byte_level,
    "bytes": _bytes,
    "metaspace": _metaspace,
    "byte-fallback": _byte_fallback,
    "llama-2": lambda: _byte_fallback(prepend=True),
    "unigram": _unigram,
    "wordpiece": _wordpiece,
}
