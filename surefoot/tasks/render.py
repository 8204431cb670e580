"""From a problem to the token ids that the model reads, and back from a sample to the text that it wrote."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.errors import DataError
from surefoot.tasks.base import Task, unreadable
from surefoot.tasks.budget import shorten, within_budget
from surefoot.tasks.completion import CompletionText
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.pieces import Pieces
from surefoot.types import Prompt, Sample

OPEN = "<think>"
_PROBE = "surefoot probe"


class Renderer:
    """Writes prompts for one tokenizer.

    Args:
        tokenizer: a Transformers tokenizer.
        config: ``template``, ``system``, the wording ``prompt``, what opens the answer (``think``) and the budget.
        shots: worked examples, (problem, completion text), that stand before every prompt.
        stop_ids: tokens that end a completion of the model.
        stop: further ones as text, each of one token (``rollout.stop``).

    Attributes:
        pieces: the texts of the tokenizer's tokens.
        stop_ids: all tokens that end a completion, in order.
        end: the token that a demonstration ends with.

    Raises:
        DataError: the options and the tokenizer do not fit together, or its chat template does not end where the
            assistant begins.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: TaskConfig,
        shots: Sequence[tuple[Prompt, str]] = (),
        *,
        stop_ids: Collection[int] = (),
        stop: Sequence[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.shots = tuple(shots)
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if config.template == "chat" and not has_template:
            raise DataError(
                "task.template = 'chat', but the tokenizer has no chat template: set task.template = 'plain'"
            )
        self.chat = has_template and config.template != "plain"
        if config.system is not None and not self.chat:
            raise DataError(
                "task.system is given, but prompts are written without a chat template: leave it out, or put it into "
                "the wording task.prompt"
            )
        if config.template_options and not self.chat:
            raise DataError(
                "task.template_options are given, but prompts are written without a chat template: leave them out"
            )
        if self.chat:
            self.end = self._end_of_turn()
        elif tokenizer.eos_token_id is not None:
            self.end = int(tokenizer.eos_token_id)
        else:
            raise DataError("the tokenizer has no end-of-sequence token: a completion could never end")
        self._bos = self._leading_bos()
        self.stop_ids = tuple(sorted({*stop_ids, self.end, *map(self.single_token, stop)}))
        self.pieces = Pieces(tokenizer)
        ends = {self.end, tokenizer.eos_token_id} - {None}
        self._completion = CompletionText(self.pieces, ends, self.stop_ids)

    @cached_property
    def opens_thought(self) -> bool:
        """Whether prompts end inside an opened ``<think>``, so that a completion begins within the thought.

        The completion then lacks the opening tag, which is no token of the policy's.
        """
        return ends_in_thought(self.text(Prompt("", "a")))

    def text(self, prompt: Prompt) -> str:
        """The prompt as the model reads it, special tokens written out."""
        return self._opened(self._begun(prompt))

    def _begun(self, prompt: Prompt) -> str:
        """The prompt up to where the assistant begins, by the template alone."""
        if self.chat:
            return self._apply(self._messages(prompt))
        if not isinstance(prompt.content, str):
            raise DataError(
                f"prompt {prompt.prompt_id} is a list of messages, but "
                + (
                    "task.template = 'plain' has no place for them: set it to 'chat'"
                    if self.config.template == "plain"
                    else "the tokenizer has no chat template: give the prompt as text, or use a model with a template"
                )
            )
        examples = [f"{self._worded(shown)}{solution}\n\n" for shown, solution in self._examples()]
        return "".join(examples) + self._worded(prompt.content)

    def _opened(self, text: str) -> str:
        """The text with what opens the answer, unless the template has opened it already."""
        opener = self.config.think
        if not opener or text.rstrip().endswith(opener.strip()):
            return text
        if text.rstrip().endswith("</think>"):
            raise DataError(
                f"task.think = {opener!r} opens a thought, but the chat template has closed one (it ends in {text[-30:]!r}): "
                "set its variable in task.template_options (for instance enable_thinking = true), or leave task.think out"
            )
        return text + opener

    def ids(self, prompt: Prompt) -> np.ndarray:
        """[L] int64, L >= 1: the prompt up to where the assistant begins.

        A prompt that is longer than ``max_prompt_tokens`` has lost the beginning of its problem where ``overlong`` is
        'truncate'; otherwise it is as long as it is.

        Raises:
            DataError: messages without a chat template, a template that fails, or a prompt without any token.
        """
        ids = self._ids(prompt)
        limit = self.config.max_prompt_tokens
        if limit is not None and self.config.overlong == "truncate" and len(ids) > limit:
            ids = self._ids(shorten(prompt, limit, self.tokenizer, lambda part: len(self._ids(part))))
        return np.asarray(ids, dtype=np.int64)

    def _ids(self, prompt: Prompt) -> list[int]:
        text = self.text(prompt)
        ids = self._encode(text)
        if not self.chat and self._bos is not None and ids[:1] != [self._bos]:
            ids = [self._bos, *ids]
        if not ids:
            raise DataError(f"prompt {prompt.prompt_id} is empty: the model needs at least one token to begin with")
        return ids

    def completion_ids(self, text: str) -> np.ndarray:
        """[T] int64: a demonstration as the model would write it, the token that ends its turn included.

        A ``<think>`` at its beginning is left out where prompts end in one.

        Raises:
            DataError: text that is no Unicode.
        """
        if trouble := unreadable(text):
            raise DataError(f"a demonstration cannot be used: {trouble}")
        if text.lstrip().startswith(OPEN) and self.opens_thought:
            text = text.lstrip().removeprefix(OPEN).removeprefix("\n")
        return np.asarray([*self._encode(text), self.end], dtype=np.int64)

    def decode(self, sample: Sample) -> str:
        """The text of the completion, which is graded and recorded, see :class:`surefoot.tasks.completion.CompletionText`."""
        return self._completion.text(sample)

    def tokens_at(self, sample: Sample, ends: Sequence[int]) -> list[int]:
        """The tokens at which so many characters of :meth:`decode` are complete."""
        return self._completion.tokens_at(sample, ends)

    def tokens(self, text: str) -> tuple[int, ...]:
        """The tokens of a piece of text, without special ones."""
        return tuple(self._encode(text))

    def single_token(self, text: str) -> int:
        """The one token that a text is, for instance a stop text.

        Raises:
            DataError: the text is several tokens, or none.
        """
        ids = self._encode(text)
        if len(ids) != 1:
            raise DataError(
                f"the stop text {text!r} is {len(ids)} tokens of this tokenizer; rollout.stop takes texts of one token"
            )
        return ids[0]

    def fit(self, task: Task) -> Task:
        """The task with the prompts that fit into ``max_prompt_tokens``.

        Raises:
            DataError: a longer prompt where ``overlong`` is 'refuse', or none that fits.
        """
        limit = self.config.max_prompt_tokens
        if limit is None:
            return task
        return within_budget(task, limit, self.config.overlong, lambda prompt: len(self._ids(prompt)))

    def check_length(self, prompts: Sequence[Prompt], context: int, max_new_tokens: int) -> None:
        """Refuse a task of which a prompt and its completion do not fit into the model's context.

        Raises:
            DataError: names the first prompt that does not fit.
        """
        for prompt in prompts:
            length = len(self.ids(prompt))
            if length + max_new_tokens > context:
                raise DataError(
                    f"prompt {prompt.prompt_id} ({prompt.text[:40]!r}) has {length} tokens, and with "
                    f"rollout.max_new_tokens = {max_new_tokens} that is {length + max_new_tokens}, more than the "
                    f"model's context of {context}: lower rollout.max_new_tokens or shorten the prompt"
                )

    def _worded(self, problem: str) -> str:
        return self.config.prompt.replace("{prompt}", problem)

    def _messages(self, prompt: Prompt) -> list[dict[str, str]]:
        """The chat of a prompt: the wording goes around the last user message; its own system message comes first."""
        if isinstance(prompt.content, str):
            messages = [{"role": "user", "content": self._worded(prompt.content)}]
        else:
            messages = [dict(message) for message in prompt.content]
            for message in reversed(messages):
                if message["role"] == "user":
                    message["content"] = self._worded(message["content"])
                    break
        if self.config.system is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.config.system})
        place = int(messages[0]["role"] == "system")
        for problem, solution in self._examples():
            turn = [{"role": "user", "content": self._worded(problem)}, {"role": "assistant", "content": solution}]
            messages[place:place] = turn
            place += len(turn)
        return messages

    def _examples(self) -> list[tuple[str, str]]:
        """The worked examples as texts."""
        return [(problem.text, solution) for problem, solution in self.shots]

    def _apply(self, messages: Sequence[Mapping[str, str]], begin: bool = True) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=begin, **self.config.template_options
                )
            )
        except Exception as error:  # templates raise whatever they like
            roles = ", ".join(message["role"] for message in messages)
            reason = " ".join(str(error).split())
            raise DataError(f"the tokenizer's chat template refuses the messages ({roles}): {reason}") from error

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _leading_bos(self) -> int | None:
        """The token that the tokenizer puts before plain text, if it does."""
        bos = self.tokenizer.bos_token_id
        with_special = list(self.tokenizer("a", add_special_tokens=True)["input_ids"])
        return int(bos) if bos is not None and with_special[:1] == [bos] else None

    def _end_of_turn(self) -> int:
        """The token that ends the assistant's turn; checks on the way that a prompt ends where that turn begins."""
        system = [] if self.config.system is None else [{"role": "system", "content": self.config.system}]
        messages = [*system, {"role": "user", "content": "a"}]
        begun, unbegun = self._apply(messages), self._apply(messages, begin=False)
        whole = self._apply([*messages, {"role": "assistant", "content": _PROBE}], begin=False)
        before, found, after = whole.rpartition(_PROBE)
        if not found or not _begins(begun, unbegun, before):
            raise DataError(
                f"the tokenizer's chat template does not end where the assistant begins: with add_generation_prompt it "
                f"ends in {begun[-40:]!r}, but an answer follows {before[-40:]!r}; mend the template or set "
                f"task.template = 'plain'"
            )
        tail = self._encode(after)
        special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.get_added_vocab().values())
        ends = [token for token in tail if token in special]
        if ends:
            return int(ends[0])
        if self.tokenizer.eos_token_id is not None:
            return int(self.tokenizer.eos_token_id)
        raise DataError("the tokenizer has no end-of-sequence token: a completion could never end")


def _begins(begun: str, unbegun: str, before: str) -> bool:
    """Whether the rendered prompt ``begun`` ends where the text ``before`` an answer ends.

    White space at the seam may differ, and either side may have more (an opened or an empty block of thought), but a
    template that adds nothing for the assistant must need nothing.
    """
    begun, unbegun, before = begun.rstrip(), unbegun.rstrip(), before.rstrip()
    if begun == before:
        return True
    return begun != unbegun and (begun.startswith(before) or before.startswith(begun))


def ends_in_thought(text: str) -> bool:
    """Whether a prompt ends where a thought begins.

    >>> ends_in_thought("<|assistant|><think>\\n"), ends_in_thought("<|assistant|><think></think>")
    (True, False)
    """
    return text.rstrip().endswith(OPEN)
