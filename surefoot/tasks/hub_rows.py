"""From rows as well-known data sets have them to ``prompt``, ``answer``, ``completion`` and metadata.

Each function takes a row and gives the mended one, or None where it holds no answer that could be graded. The tests of
programs lie in ``tests``, in one of three shapes:

=============  =============================================================================================
``kind``       further entries
=============  =============================================================================================
``stdin``      ``inputs`` and ``outputs``: what a program reads and must print
``call``       ``function``, ``inputs`` (lists of arguments) and ``outputs`` (what it must return)
``asserts``    ``code`` that is run behind the program, and ``prefix`` before it; it must not raise
=============  =============================================================================================
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from surefoot.errors import DataError
from surefoot.seeds import generator
from surefoot.tasks.columns import LETTERS, lettered
from surefoot.tasks.extraction import boxed

Record = Mapping[str, Any]

_CALCULATION = re.compile(r"<<[^<>]*>>")
_LEVELS = {"introductory": 1, "interview": 2, "competition": 3, "easy": 1, "medium": 2, "hard": 3}
# The instruction around the problem: a paragraph before it, a reminder of the form of the answer behind it.
_DAPO = re.compile(
    r"\s*Solve the following math problem[^\n]*\n\s*(.*?)(?:\n\s*Remember to put your answer[^\n]*)?\s*", re.DOTALL
)


def gsm8k(row: Record) -> Record | None:
    """``question``, and ``answer`` as a solution with marks of a calculator that ends in "#### n"."""
    answer = row["answer"]
    if not isinstance(answer, str):  # a copy with answers alone, or with lists of accepted ones
        return {"prompt": row["question"], "answer": _each(answer, lambda text: _stated(text) or text.strip())}
    number = _stated(answer)
    if not number:
        return None
    return {"prompt": row["question"], "answer": number, "completion": _CALCULATION.sub("", answer).strip()}


def _stated(solution: str) -> str:
    """What a solution has behind its last "####", without commas; "" where it has nothing there."""
    _, mark, answer = solution.rpartition("####")
    return answer.strip().replace(",", "") if mark else ""


def _each(answer: Any, mend: Callable[[str], str]) -> Any:
    """The answer with its text mended, or the text of each accepted one; what is no text or whole number stays as it is."""
    if isinstance(answer, (list, tuple)):
        return [_each(one, mend) for one in answer]
    return mend(str(answer)) if isinstance(answer, (str, int)) and not isinstance(answer, bool) else answer


def math(row: Record) -> Record | None:
    """``problem`` with ``answer``, or with a ``solution`` that has it in a box; ``level`` is "Level 5" or 5."""
    solution = row.get("solution")
    answer = row.get("answer")
    if answer is None and solution is not None:
        answer = boxed(solution)
    if answer is None or not str(answer).strip():
        return None
    mended = {"prompt": row["problem"], "answer": _each(answer, str.strip), "completion": solution or None}
    for name in ("subject", "type", "unique_id"):
        if row.get(name) is not None:
            mended["subject" if name == "type" else name] = row[name]
    digits = re.findall(r"\d+", str(row.get("level", "")))
    return {**mended, "difficulty": int(digits[0])} if digits else mended


def dapo(row: Record) -> Record | None:
    """``prompt`` as one message with an instruction around the problem, and ``reward_model.ground_truth``."""
    answer = row["reward_model"]["ground_truth"]
    text = row["prompt"][-1]["content"]
    inner = _DAPO.fullmatch(text)
    index = (row.get("extra_info") or {}).get("index")
    return {"prompt": inner[1] if inner else text, "answer": _each(answer, str), "index": index}


def aime(row: Record) -> Record | None:
    """``problem`` (``Problem``, ``question``), ``answer`` from 0 to 999, written as a number or as three digits."""
    folded = {str(key).lower(): value for key, value in row.items()}
    answer = folded.get("answer")
    if answer is None:
        return None
    problem = folded.get("problem", folded.get("question"))
    if problem is None:
        raise KeyError("problem")
    mended = {"prompt": problem, "answer": _each(answer, _plain)}
    for name in ("solution", "id", "year", "url"):
        if folded.get(name) is not None:
            mended["completion" if name == "solution" else name] = folded[name]
    return mended


def _plain(answer: str) -> str:
    """An answer without blanks around it, a whole number without zeros before it."""
    text = answer.strip()
    return str(int(text)) if text.isdigit() else text


def mmlu(row: Record) -> Record | None:
    """``question`` with ``choices`` (``options``) and the number of the right one, or its letter, as ``answer``."""
    choices = row.get("choices", row.get("options"))
    if choices is None:
        raise KeyError("choices")
    numbers = [
        LETTERS.index(answer) if isinstance(answer, str) and answer in LETTERS and answer else int(answer)
        for answer in _listed(row["answer"])
    ]
    return _choice(row["question"], choices, numbers, subject=row.get("subject", row.get("category")))


def arc(row: Record) -> Record | None:
    """``question`` with ``choices`` as two lists, ``text`` and ``label``, and the label of the right one."""
    labels = list(row["choices"]["label"])
    keys = _listed(row["answerKey"])
    if not set(keys) <= set(labels):
        return None
    return _choice(row["question"], row["choices"]["text"], [labels.index(key) for key in keys])


def gpqa(row: Record) -> Record | None:
    """``Question``, ``Correct Answer`` and three ``Incorrect Answer``s; their order follows from the question."""
    choices = [row["Correct Answer"], *(row[f"Incorrect Answer {i}"] for i in (1, 2, 3))]
    order = generator("gpqa", row["Question"]).permutation(len(choices)).tolist()
    shuffled = [str(choices[i]).strip() for i in order]
    return _choice(row["Question"], shuffled, [order.index(0)], subject=row.get("High-level domain"))


def _listed(answer: Any) -> list[Any]:
    """The accepted answers."""
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]


def _choice(question: str, choices: Sequence[Any], numbers: Sequence[int], subject: Any = None) -> Record | None:
    """A question with the letters of its choices before them; ``numbers`` are those of the right ones, from 0."""
    choices = [str(choice) for choice in choices]
    if not all(0 <= number < len(choices) for number in numbers):
        return None
    letters = [LETTERS[number] for number in numbers]
    prompt = f"{question.strip()}\n{lettered(choices)}"
    return {
        "prompt": prompt,
        "answer": letters[0] if len(letters) == 1 else letters,
        "choices": choices,
        "subject": subject,
    }


def humaneval(row: Record) -> Record | None:
    """``prompt`` with the head of a function, ``test`` that defines ``check``, ``entry_point``."""
    tests = {"kind": "asserts", "code": f"{row['test']}\ncheck({row['entry_point']})\n", "prefix": ""}
    solution = row.get("canonical_solution")
    return {
        "prompt": row["prompt"],
        "tests": tests,
        "entry_point": row["entry_point"],
        "starter": row["prompt"],
        "completion": None if solution is None else row["prompt"] + solution,
        "task_id": row.get("task_id"),
    }


def mbpp(row: Record) -> Record | None:
    """``text`` (``prompt``), ``test_list`` of assertions, ``test_setup_code`` (``test_imports``)."""
    asserts = list(row["test_list"])
    before = row.get("test_setup_code") or "\n".join(row.get("test_imports") or [])
    problem = row["text"] if row.get("text") is not None else row["prompt"]
    # The assertions are part of the problem: they say what the function is called.
    prompt = "\n".join([problem.strip(), "", "Your code must pass these tests:", *asserts])
    tests = {"kind": "asserts", "code": "\n".join(asserts) + "\n", "prefix": before}
    return {"prompt": prompt, "tests": tests, "completion": row.get("code"), "task_id": row.get("task_id")}


def apps(row: Record) -> Record | None:
    """``question``, ``input_output`` as JSON text, ``starter_code``, ``solutions`` as JSON text."""
    if not row.get("input_output"):
        return None
    tests = json.loads(row["input_output"])
    if not tests.get("inputs"):
        return None
    name = tests.get("fn_name")
    shape = {"kind": "call", "function": name} if name else {"kind": "stdin"}
    solutions = json.loads(row["solutions"]) if row.get("solutions") else []
    return {
        "prompt": _with_starter(row["question"], row.get("starter_code")),
        "tests": {**shape, "inputs": tests["inputs"], "outputs": tests["outputs"]},
        "completion": solutions[0] if solutions else None,
        **_level(row.get("difficulty")),
    }


def livecodebench(row: Record) -> Record | None:
    """``question_content``, ``public_test_cases`` and ``private_test_cases``, ``starter_code``, ``metadata`` with the name
    of the function; the function's cases hold one argument a line, as JSON."""
    cases = [*_cases(row["public_test_cases"]), *_cases(row.get("private_test_cases") or "[]")]
    if not cases:
        return None
    about = row.get("metadata") or {}
    name = (json.loads(about) if isinstance(about, str) else about).get("func_name")
    if name:
        inputs: list[Any] = [[json.loads(line) for line in case["input"].split("\n") if line.strip()] for case in cases]
        tests = {
            "kind": "call",
            "function": name,
            "inputs": inputs,
            "outputs": [json.loads(c["output"]) for c in cases],
        }
    else:
        tests = {"kind": "stdin", "inputs": [c["input"] for c in cases], "outputs": [c["output"] for c in cases]}
    prompt = _with_starter(row["question_content"], row.get("starter_code"))
    about = {name: row[name] for name in ("question_id", "platform", "contest_date") if row.get(name) is not None}
    return {"prompt": prompt, "tests": tests, **about, **_level(row.get("difficulty"))}


def _with_starter(problem: str, starter: str | None) -> str:
    return f"{problem.strip()}\n\n{starter.strip()}" if starter and starter.strip() else problem.strip()


def _level(name: Any) -> dict[str, Any]:
    return {"level": name, "difficulty": _LEVELS[name]} if name in _LEVELS else {}


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise DataError(f"the packed test cases name {module}.{name}: plain text was expected, the file is not trusted")


def _cases(text: Any) -> list[dict[str, Any]]:
    """Test cases: JSON text, or JSON text that is pickled, compressed and in base64."""
    if not isinstance(text, str):
        return list(text)
    if not text.lstrip().startswith("["):
        text = _PlainUnpickler(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
    return list(json.loads(text))
