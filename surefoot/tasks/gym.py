"""Any data set of reasoning-gym (``gym:chain_sum``), judged by the data set's own scorer.

Candidate n is problem n of reasoning-gym for the seed of the configuration (beyond the first 500: problem n modulo 500
of a data set whose seed is that much larger, since some data sets draw all their problems at once). The scorer sees
only the final answer that was found in the completion, never the completion: the default scorer of reasoning-gym pays
part of the reward for any text that holds the gold answer.

With the option ``levels`` problems are of several difficulties, and ``metadata["difficulty"]`` says of which: a number of
levels of the data set's own curriculum (each with its values of that level alone), or a list of options, one table a level.
Candidate n is then of level n modulo their number, so that the levels have as many problems each as they can. Which of them
are sampled is for ``algorithm.prompts`` to say (``levels``, ``curriculum``).
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from surefoot.config import nearest
from surefoot.errors import DataError
from surefoot.extras import require
from surefoot.tasks.base import Task, content_id
from surefoot.tasks.config import TaskConfig
from surefoot.tasks.expressions import MAX_CHARACTERS, is_literal_or_nothing, is_plain_formula
from surefoot.tasks.extraction import Shape, free_answer, shape_of
from surefoot.tasks.generate import Candidate, generate_unique
from surefoot.types import Prompt, Score, Status

PREFIX = "gym:"
BLOCK = 500
_OURS = {"seed": "task.seed", "size": "task.train_size and task.heldout_size"}
# Measured with reasoning-gym 0.1.25: these iterate over sets of texts.
_HASH_ORDERED = {"codeio", "isomorphic_strings", "knight_swap", "list_functions"}
_HASH_ORDERED |= {"polynomial_multiplication", "ransom_note", "word_ladder"}
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)
_HUGE = re.compile(r"(?<![0-9a-z_.])[0-9.]++e[+-]?[0-9]{4,}", re.IGNORECASE)
_PROBES = ("zzz", "0", "-")


def build(config: TaskConfig) -> Task:
    """Training and held-out problems of a data set of reasoning-gym.

    Raises:
        DataError: a data set or option that does not exist (with the nearest one), a bad value, too few different
            problems, a scorer that gives full marks to anything, or problems that would differ in every process.
        MissingExtraError: reasoning-gym is not installed.
    """
    levels = _levels(config)
    train, heldout = generate_unique(config, _alternate(levels))
    verifiers = [verifier(level.block(0), level.name) for level in levels]

    def verify(prompt: Prompt, text: str) -> Score:
        """The verdict of the scorer of the prompt's level."""
        return verifiers[prompt.metadata["difficulty"] if len(levels) > 1 else 0](prompt, text)

    _refuse_blind_scorer(config.name, verify, train[:16])
    known = all(prompt.answer is not None for prompt in (*train, *heldout))  # else the scorer accepts several
    return Task(
        config.name,
        train,
        heldout,
        verify=verify,
        gold=_gold if known else None,
        paraphrases=_paraphrases if known else None,
        wrong=lambda _: list(_WRONG),
    )


def _gold(prompt: Prompt) -> str:
    return f"<answer>{prompt.answer}</answer>"


def _paraphrases(prompt: Prompt) -> list[str]:
    """The gold answer behind a thought, and in white space; and in a box or a sentence, where it is a number."""
    texts = [f"<think>Let me see.</think>\n<answer>{prompt.answer}</answer>", f"<answer>\n{prompt.answer}\n</answer>"]
    if shape_of(prompt.answer) is Shape.NUMBER:
        texts += [f"So it is \\boxed{{{prompt.answer}}}.", f"The answer is {prompt.answer}."]
    return texts


_WRONG = ("<think>", "<answer></answer>", "<answer>zzz</answer>", "\\boxed{}")


def verifier(dataset: Any, name: str) -> Callable[[Prompt, str], Score]:
    """The verifier of a data set: finds the final answer (:func:`surefoot.tasks.extraction.free_answer`) and scores it.

    An answer is right where the data set's own score is at least 1; the total is 1 or 0, and partial credit is shown as
    the component "partial" only. Wrong without being scored are answers that a scorer chokes on or falls for: numbers
    that are not finite or have exponents above 999, and, where the scorer evaluates text, whatever is not plain
    arithmetic or a plain value. A scorer that raises has met an answer it cannot read: that is wrong too.
    """
    refuses = _guard(type(dataset))

    def verify(prompt: Prompt, text: str) -> Score:
        answer = free_answer(text, prompt.answer)
        if answer is None:
            return Score(0.0, {"accuracy": 0.0, "partial": 0.0}, False, Status.NO_ANSWER)
        entry = {"question": prompt.text, "answer": prompt.answer, "metadata": dict(prompt.metadata)}
        note = refuses(answer, str(prompt.answer))
        partial = 0.0
        if not note:
            try:
                partial = float(dataset.score_answer(answer, entry))
            except Exception as error:
                note = f"the scorer of '{name}' cannot read it: {type(error).__name__}: {error}"
        right = float(partial >= 1.0)
        shown = f"{answer} ({note})" if note else answer
        return Score(right, {"accuracy": right, "partial": partial}, bool(right), Status.OK, (), shown)

    return verify


def _levels(config: TaskConfig) -> list[_Dataset]:
    """The data set at each of its levels, the easiest first; one alone without the option ``levels``.

    Raises:
        DataError: an option that does not fit, or a data set without a curriculum of its own.
    """
    options = dict(config.options)
    levels = options.pop("levels", None)
    if levels is None:
        return [_Dataset(config, options)]
    if isinstance(levels, list) and len(levels) > 1 and all(isinstance(level, Mapping) for level in levels):
        return [_Dataset(config, {**options, **level}) for level in levels]
    if not isinstance(levels, int) or isinstance(levels, bool) or levels < 2:
        raise DataError(
            f"task.options.levels = {levels!r} of '{config.name}': expected a number of levels from 2 on, or a list of tables "
            "with options, one for each level"
        )
    made = [_Dataset(config, options, level) for level in range(levels)]
    factory = require("reasoning_gym.factory", "gym", f"the task '{config.name}'")
    if not factory.has_curriculum(made[0].name):
        raise DataError(f"'{config.name}' has no curriculum of its own: give task.options.levels as a list of tables")
    steps = max(len(a.levels) for a in factory.create_curriculum(made[0].name).attributes.values())
    if levels > steps:
        raise DataError(f"task.options.levels = {levels}: the curriculum of '{config.name}' has {steps}")
    return made


def _alternate(levels: list[_Dataset]) -> Callable[[int], Candidate | None]:
    """Candidates of the levels in turn, each with its level as ``difficulty``; those of one level as they are."""
    if len(levels) == 1:
        return levels[0].candidate

    def candidate(counter: int) -> Candidate | None:
        number, level = divmod(counter, len(levels))
        found = levels[level].candidate(number)
        if found is None:
            return None
        metadata = {**found.prompt.metadata, "difficulty": level}
        if "difficulty" in found.prompt.metadata:  # what reasoning-gym says of it, for instance {"num_terms": 3}
            metadata["attributes"] = found.prompt.metadata["difficulty"]
        return replace(found, prompt=replace(found.prompt, metadata=metadata))

    return candidate


class _Dataset:
    """Problems by counter, drawn from blocks of the data set."""

    def __init__(self, config: TaskConfig, options: Mapping[str, Any], level: int | None = None) -> None:
        self.name = config.name.removeprefix(PREFIX)
        self.config, self.options, self.level = config, dict(options), level
        factory = require("reasoning_gym.factory", "gym", f"the task '{config.name}'")
        require("reasoning_gym", "gym", f"the task '{config.name}'")
        if self.name not in factory.DATASETS:
            raise DataError(f"unknown data set of reasoning-gym '{self.name}'." + nearest(self.name, factory.DATASETS))
        known = set(factory.DATASETS[self.name][1].__dataclass_fields__)
        for option in self.options:
            if option in _OURS:
                raise DataError(f"task.options.{option} of '{config.name}': set {_OURS[option]} instead")
            if option not in known:
                raise DataError(
                    f"unknown option '{option}' of the task '{config.name}'." + nearest(option, known - set(_OURS))
                )
        if self.name in _HASH_ORDERED and os.environ.get("PYTHONHASHSEED", "random") == "random":
            raise DataError(
                f"the problems of '{config.name}' differ from process to process, so that no run could be resumed: "
                f"start Python with the environment variable PYTHONHASHSEED=0"
            )
        self._factory = factory
        self._blocks: dict[int, Any] = {}

    def block(self, number: int) -> Any:
        if number not in self._blocks:
            try:
                made = self._make(self.config.seed + BLOCK * number)
            except Exception as error:  # each data set has its own ways to refuse a value
                raise DataError(
                    f"reasoning-gym refuses task.options = {self.options} of '{self.config.name}'{self._at_level()}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            self._blocks = {0: self._blocks.get(0, made), number: made}
        return self._blocks[number]

    def _make(self, seed: int) -> Any:
        """A block: with the data set's own values of the level, and the options over them."""
        if self.level is None:
            return self._factory.create_dataset(self.name, seed=seed, size=BLOCK, **self.options)
        curriculum = self._factory.create_curriculum(self.name)
        curriculum.set_global_level(self.level)
        context = require("reasoning_gym.coaching.base_curriculum", "gym", "a curriculum")
        alone = context.DefaultCurriculumContext(mode=context.RangeAttributeMode.UPPER_BOUND)
        values = curriculum.generate_configuration({"seed": seed, "size": BLOCK}, alone)
        values = dataclasses.replace(values, **self.options)
        return self._factory.create_dataset(
            self.name, **{f.name: getattr(values, f.name) for f in dataclasses.fields(values)}
        )

    def _at_level(self) -> str:
        return "" if self.level is None else f" at level {self.level}"

    def candidate(self, counter: int) -> Candidate | None:
        try:
            entry: Mapping[str, Any] = self.block(counter // BLOCK)[counter % BLOCK]
        except DataError:
            raise
        except Exception as error:
            raise DataError(
                f"reasoning-gym cannot make problem {counter} of '{self.config.name}'{self._at_level()} with task.options = "
                f"{self.options}: {type(error).__name__}: {error}"
            ) from error
        if entry["answer"] is not None and not str(entry["answer"]).strip():
            return None  # "nothing" as an answer could not be told from no answer
        question = entry["question"]
        prompt_id = content_id(self.config.name, question)
        return Candidate(Prompt(prompt_id, question, entry["answer"], dict(entry["metadata"])))


def _guard(dataset: type) -> Callable[[str, str], str]:
    """``(answer, gold) -> `` what keeps an answer from the scorer of a data set, or "" where it may be scored."""
    module = sys.modules[dataset.__module__]
    source = inspect.getsource(module)
    formulas = bool(re.search(r"\b(?:sympy|sp)\.(?:parse_expr|sympify)\(", source)) or (
        getattr(getattr(module, "parse_expr", None), "__module__", "").startswith("sympy")
    )
    evaluates = bool(re.search(r"(?<![\w.])eval\(", source))

    def refuses(answer: str, gold: str) -> str:
        if len(answer) > MAX_CHARACTERS:
            return f"longer than {MAX_CHARACTERS} characters"
        if _HUGE.search(answer):
            return "an exponent above 999"
        if re.search(r"[0-9]", gold) and not _NOT_FINITE.search(gold) and _NOT_FINITE.search(answer):
            return "not a finite number"
        if formulas and not is_plain_formula(answer):
            return "not a plain formula"
        if evaluates and not is_literal_or_nothing(answer):
            return "not a plain value"
        return ""

    return refuses


def _refuse_blind_scorer(name: str, verify: Callable[[Prompt, str], Score], prompts: tuple[Prompt, ...]) -> None:
    """Refuse a scorer that calls one meaningless answer right for nearly all of some problems whose answers differ."""
    for probe in _PROBES:
        tried = [prompt for prompt in prompts if str(prompt.answer) != probe]
        fooled = sum(bool(verify(prompt, f"<answer>{probe}</answer>").correct) for prompt in tried)
        if len({str(prompt.answer) for prompt in tried}) > 1 and fooled >= 0.75 * len(tried):
            raise DataError(
                f"reasoning-gym's scorer of '{name}' calls the answer '{probe}' right for {fooled} of {len(tried)} "
                f"problems, whose answers are others: nothing could be learned, choose another data set"
            )
