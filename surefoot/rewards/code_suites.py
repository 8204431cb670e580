"""Gold tests of programs, read from the shapes in which data sets have them.

============  =========================================================================================================
shape         keys
============  =========================================================================================================
pairs         a list of ``{"stdin": ..., "stdout": ...}``, or of ``input`` and ``output``
APPS          ``input_output`` (or ``inputs`` and ``outputs`` themselves), with ``fn_name`` where a function is called
LiveCodeBench ``public_test_cases`` and ``private_test_cases``: lists of ``input``, ``output``, ``testtype``; the name
              of the function in ``metadata``; private tests also in the packed form of the data set
HumanEval     ``test`` (defines ``check``) and ``entry_point``; ``prompt`` is the code that the completion continues
MBPP          ``test_list``, a list of assertions; ``test_setup_code`` or ``test_imports`` before them
============  =========================================================================================================
"""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import functools
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surefoot.errors import RewardError
from surefoot.rewards.values import one_line, short
from surefoot.types import Prompt

_SHAPES = (
    "inputs and outputs (two lists), a list of {stdin, stdout} or {input, output}, input_output, public_test_cases, test "
    "with entry_point, or test_list (a list of assert statements)"
)
_PAIRS = (("stdin", "stdout"), ("input", "output"))
_KEYS = ("input_output", "inputs", "public_test_cases", "private_test_cases", "test", "test_list")


@dataclass(frozen=True)
class Case:
    """One input with its expected output: text for a script, arguments and a value for a function."""

    given: Any
    expected: Any


@dataclass(frozen=True)
class Suite:
    """The tests of one problem.

    Attributes:
        cases: pairs that are compared here; empty where the tests are code.
        function: the function that the cases call; None where the program is a script.
        sources: tests that are code.
        setup: code before them.
        entry: the function that the tests are about (``check`` is called with it).
        header: code that a completion without a definition of ``entry`` continues.
    """

    cases: tuple[Case, ...] = ()
    function: str | None = None
    sources: tuple[str, ...] = ()
    setup: str = ""
    entry: str | None = None
    header: str = ""

    def __len__(self) -> int:
        return len(self.cases) + len(self.sources)

    @property
    def wanted(self) -> frozenset[str]:
        """The names that a program should define; none where it is a script."""
        if self.function or self.entry:
            return frozenset({self.function or self.entry or ""})
        return _called(self.sources)


def suite_of(prompt: Prompt) -> Suite:
    """The tests of a problem, from its gold answer (a mapping, a list, or either as JSON), else metadata.

    Raises:
        RewardError: no tests, or tests that cannot be read.
    """
    gold = _in_answer(prompt) or prompt.metadata
    try:
        suite = _read({**prompt.metadata, **gold}, prompt)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error, pickle.UnpicklingError) as error:
        raise RewardError(
            f"the tests of the problem {prompt.prompt_id} cannot be read ({type(error).__name__}: {error}): expected "
            f"{_SHAPES}"
        ) from None
    if not len(suite):
        raise RewardError(
            f"the problem {prompt.prompt_id} has no tests: its answer is {short(prompt.answer)}, its metadata has the "
            f"keys {', '.join(prompt.metadata) or '(none)'}; expected {_SHAPES}"
        )
    return suite


def with_tests_aside(prompt: Prompt) -> Prompt:
    """The prompt with the tests of its gold answer among the metadata, where ``suite_of`` finds them too."""
    gold = _in_answer(prompt)
    return prompt if gold is None else replace(prompt, answer=None, metadata={**prompt.metadata, **gold})


def _in_answer(prompt: Prompt) -> Mapping[str, Any] | None:
    """The tests that the gold answer holds; None where it is something else."""
    gold = _loaded(prompt.answer)
    if isinstance(gold, Mapping) and any(set(pair) <= set(gold) for pair in _PAIRS):
        gold = [gold]
    if isinstance(gold, (list, tuple)):
        gold = {"test_list": gold}
    return gold if isinstance(gold, Mapping) and any(key in gold for key in _KEYS) else None


def _read(gold: Mapping[str, Any], prompt: Prompt) -> Suite:
    if gold.get("input_output") or "inputs" in gold:
        return _apps(_loaded(gold.get("input_output") or gold))
    if gold.get("public_test_cases") or gold.get("private_test_cases"):
        return _livecodebench(gold)
    if "entry_point" in gold and gold.get("test"):
        header = str(gold.get("prompt", prompt.text))
        header = header if f"def {gold['entry_point']}" in header else ""
        return Suite(sources=(str(gold["test"]),), setup=header, entry=str(gold["entry_point"]), header=header)
    setup = gold.get("test_setup_code") or gold.get("test_imports") or ""
    setup = setup if isinstance(setup, str) else "\n".join(setup)
    tests = _loaded(gold.get("test_list") or gold.get("test") or ())
    tests = (tests,) if isinstance(tests, (str, Mapping)) else tuple(tests)
    if any(isinstance(_loaded(test), Mapping) for test in tests):
        return _pairs([_loaded(test) for test in tests], gold)
    for test in tests:
        _check_assertion(test)
    return Suite(sources=tests, setup=setup)


def _pairs(tests: Sequence[Any], gold: Mapping[str, Any]) -> Suite:
    """Tests that are mappings with what is given and what is expected."""
    if any(isinstance(test, Mapping) and "testtype" in test for test in tests):
        return _livecodebench({**gold, "public_test_cases": tests})
    for given, expected in _PAIRS:
        if all(isinstance(test, Mapping) and given in test and expected in test for test in tests):
            inputs, outputs = [test[given] for test in tests], [test[expected] for test in tests]
            return _apps({**gold, "inputs": inputs, "outputs": outputs})
    raise ValueError(f"a test is {short(tests[0])}")


def _check_assertion(test: Any) -> None:
    """Refuse a test that asserts nothing: every program would pass it."""
    if not isinstance(test, str):
        raise ValueError(f"a test is {short(test)} ({type(test).__name__}), which is no assert statement")
    try:
        tree = ast.parse(test)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the test {short(test)} is no Python ({one_line(error)})") from None
    if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        raise ValueError(f"the test {short(test)} has no assert statement, so that every program would pass it")


def _apps(gold: Mapping[str, Any]) -> Suite:
    inputs, outputs, function = gold["inputs"], gold["outputs"], gold.get("fn_name") or None
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs, {len(outputs)} outputs")
    if function is None:
        return Suite(tuple(Case(_lines(given), _lines(out)) for given, out in zip(inputs, outputs, strict=True)))
    cases = []
    as_json = all(_is_json(text) for given, out in zip(inputs, outputs, strict=True) for text in _texts(given, out))
    for given, expected in zip(inputs, outputs, strict=True):
        if not isinstance(given, str):  # arguments as they are; so is the value
            cases.append(Case(tuple(given), expected))
        elif as_json:
            cases.append(Case(tuple(map(json.loads, given.split("\n"))), _loaded(expected)))
        else:
            cases.append(Case(tuple(given.split("\n")), expected))
    return Suite(tuple(cases), function=str(function))


def _texts(given: Any, expected: Any) -> list[str]:
    """The texts of a case whose arguments are lines, which are JSON in the form of LiveCodeBench."""
    if not isinstance(given, str):
        return []
    return [*given.split("\n"), *([expected] if isinstance(expected, str) else [])]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _livecodebench(gold: Mapping[str, Any]) -> Suite:
    tests: list[Mapping[str, Any]] = []
    for key in ("public_test_cases", "private_test_cases"):
        tests += _unpacked(gold.get(key) or [])
    if not any(test.get("testtype") == "functional" for test in tests):
        return Suite(tuple(Case(test["input"], test["output"]) for test in tests))
    metadata = _loaded(gold.get("metadata") or {})
    function = metadata.get("func_name") or gold.get("func_name")
    if not function:
        raise ValueError("functional tests without metadata.func_name")
    cases = (
        Case(tuple(json.loads(line) for line in test["input"].split("\n") if line), json.loads(test["output"]))
        for test in tests
    )
    return Suite(tuple(cases), function=str(function).rpartition(".")[2])


def _unpacked(tests: Any) -> Sequence[Mapping[str, Any]]:
    """A list of tests, as it is, as JSON, or as JSON in pickle in zlib in base 64."""
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError:
            tests = json.loads(_TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(tests)))).load())
    return list(tests)


class _TextOnly(pickle.Unpickler):
    """Reads a pickled text; anything that names a class is refused, so nothing is executed."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a pickle that holds {module}.{name}, expected a text")


def _loaded(value: Any) -> Any:
    """A text that is JSON as its value; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


@functools.lru_cache(1024)
def _called(sources: tuple[str, ...]) -> frozenset[str]:
    """The names in tests that the tests do not define themselves."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return frozenset({node.id for node in names} - stored - set(dir(builtins)))


def _lines(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    return "\n".join(str(line) for line in value)
