"""Every code block of the documentation is executed, page by page, as a reader would follow it.

The blocks of a page run in order in one temporary folder that holds the repository's ``examples``. What a block is
follows from the word after the fence:

========  ========================================================================================================
python    executed; the blocks of a page share their names
toml      validated as the configuration of a run; ``toml sft`` as one of ``surefoot sft``, ``toml experiment`` as one of
          ``surefoot compare``; ``toml name.toml`` is kept in that file for the blocks after it
csv       every line must have as many cells as the first; ``csv name.csv`` is written to that file
jsonl     every line must be JSON; ``jsonl name.jsonl`` is written to that file
json      must be JSON
bash      ``surefoot`` lines run, ``make`` lines must name a target, ``pip install`` lines extras that exist
text      output, not executed
========  ========================================================================================================

A block with the word ``foreign`` is another library's: Python must compile, nothing is run. A block under the comment
``<!-- slow -->`` runs in the slow suite only.
"""

from __future__ import annotations

import csv
import doctest
import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.cli.main import run
from surefoot.config import validate
from surefoot.methods.compare.experiment import make_experiment
from surefoot.training.config import RunConfig, SftConfig

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [page for page in (REPOSITORY / "README.md", REPOSITORY / "README.zh-CN.md") if page.exists()] + sorted(
    (REPOSITORY / "docs").glob("*.md")
)
LANGUAGES = ("python", "toml", "jsonl", "json", "csv", "bash", "text")
SHARED = ("examples", "benchmarks", "docs")
SLOW = "<!-- slow -->"
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, the words after the fence, its text."""

    page: str
    line: int
    info: tuple[str, ...]
    code: str
    slow: bool

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def file(self) -> str | None:
        """The file name after the language, if there is one."""
        return next((word for word in self.info[1:] if "." in word), None)

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}"


def blocks(text: str, page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order.

    Raises:
        ValueError: a fence that is never closed, or without a known language.
    """
    lines = text.split("\n")
    number, before = 0, ""
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            before = lines[number].strip() or before
            number += 1
            continue
        start, indent, fence = number, len(opening["indent"]), opening["fence"]
        number += 1
        while number < len(lines) and not re.fullmatch(rf" *{fence[0]}{{{len(fence)},}} *", lines[number]):
            number += 1
        if number == len(lines):
            raise ValueError(f"{page}, line {start + 1}: the fence is never closed")
        code = "".join(line[min(indent, len(line) - len(line.lstrip())) :] + "\n" for line in lines[start + 1 : number])
        block = Block(page, start + 1, tuple(opening["info"].split()), code, before == SLOW)
        if block.language not in LANGUAGES:
            raise ValueError(f"{block}: the fence says '{block.language}', expected one of {', '.join(LANGUAGES)}")
        yield block
        before = ""
        number += 1


class Reader:
    """Follows a page: executes its blocks one after another."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.names: dict[str, Any] = {"__name__": "__page__"}
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in SHARED:
            if (REPOSITORY / name).is_dir():
                (folder / name).symlink_to(REPOSITORY / name)

    def follow(self, block: Block) -> None:
        if "foreign" in block.info:
            if block.language == "python":
                compile(block.code, block.page, "exec")
            return
        getattr(self, f"_{block.language}")(block)
        if block.file and block.language != "text":
            (self.folder / block.file).write_text(block.code, encoding="utf-8")

    def _text(self, block: Block) -> None:
        pass

    def _python(self, block: Block) -> None:
        exec(compile("\n" * block.line + block.code, block.page, "exec"), self.names)

    def _toml(self, block: Block) -> None:
        values = tomllib.loads(block.code)
        if "experiment" in block.info:
            make_experiment(values)
        else:
            validate(SftConfig if "sft" in block.info else RunConfig, values)

    def _json(self, block: Block) -> None:
        json.loads(block.code)

    def _jsonl(self, block: Block) -> None:
        assert all(isinstance(json.loads(line), dict) for line in block.code.splitlines())

    def _csv(self, block: Block) -> None:
        assert len({len(row) for row in csv.reader(block.code.splitlines())}) == 1

    def _bash(self, block: Block) -> None:
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                self.monkeypatch.setenv(*words.pop(0).split("=", 1))
            if words:
                self._command(words, line, block)

    def _command(self, words: list[str], line: str, block: Block) -> None:
        if "|" in words or ">" in words or "&&" in words:
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block}: {line}\n{done.stderr}"
        elif words[0] == "surefoot":
            assert run(words[1:]) == 0, f"{block}: {line}"
        elif words[0] == "make":
            done = subprocess.run(
                ["make", "-n", *words[1:]], cwd=REPOSITORY, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block}: {line}\n{done.stderr}"
        elif words[:2] == ["pip", "install"]:
            check_extras(words[2:], f"{block}: {line}")
        elif words[0] == "python":
            done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block}: {line}\n{done.stderr}"
        else:
            assert words[0] in ("git", "cd"), f"{block}: nothing checks the command '{words[0]}'"


def check_extras(words: list[str], where: str) -> None:
    """``surefoot[a,b]`` and ``.[a]`` may name only extras of ``pyproject.toml``."""
    known = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        found = re.fullmatch(r"(?:surefoot|\.)\[([\w,]+)\]", word)
        for extra in found[1].split(",") if found else []:
            assert extra in known, f"{where}: there is no extra '{extra}'"


def follow_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    reader = Reader(folder, monkeypatch)
    for block in blocks(page.read_text(encoding="utf-8"), page.name):
        if slow or not block.slow:
            reader.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_quick_block_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_page(page, tmp_path, monkeypatch, slow=False)


SLOW_PAGES = [page for page in PAGES if SLOW in page.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", SLOW_PAGES, ids=lambda page: page.name)
def test_every_block_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_page(page, tmp_path, monkeypatch, slow=True)


def test_both_readmes_say_the_same_commands() -> None:
    """The translation has the same blocks; comments in them may be translated."""

    def bare(page: str) -> list[tuple[str, list[str]]]:
        found = blocks((REPOSITORY / page).read_text(encoding="utf-8"), page)
        return [(b.language, re.sub(r"(?m)\s*#.*$", "", b.code).split()) for b in found if b.language != "text"]

    assert bare("README.md") == bare("README.zh-CN.md")


def test_the_links_of_every_page_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not re.match(r"\w+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_example_is_a_valid_configuration() -> None:
    examples = sorted((REPOSITORY / "examples").glob("*.toml"))
    assert examples
    for example in examples:
        values = tomllib.loads(example.read_text(encoding="utf-8"))
        if "arms" in values:
            made = make_experiment(values)
            assert len({made.digest(job) for job in made.jobs()}) == len(list(made.jobs()))
        else:
            validate(RunConfig if "train" in values else SftConfig, values)


def test_the_examples_in_docstrings_are_true() -> None:
    failures = []
    for module in pkgutil.walk_packages(surefoot.__path__, "surefoot."):
        if module.name == "surefoot.__main__":
            continue
        runner = doctest.DocTestRunner(verbose=False)
        for test in doctest.DocTestFinder(recurse=True).find(importlib.import_module(module.name)):
            report: list[str] = []
            if runner.run(test, out=report.append).failed:
                failures.append("".join(report))
    assert failures == []


class TestReader:
    """The reader itself: what it finds, what it refuses."""

    PAGE = """
# Title
```python
x = 1
```
<!-- slow -->

  ```bash
  surefoot --version  # comment
    indented
  ```
~~~text
```not a fence
~~~
```toml sft
steps = 3
```
"""

    def test_finds_blocks(self) -> None:
        found = list(blocks(self.PAGE, "p"))
        assert [block.info for block in found] == [("python",), ("bash",), ("text",), ("toml", "sft")]
        assert [block.slow for block in found] == [False, True, False, False]
        assert [block.line for block in found] == [3, 8, 12, 15]
        assert found[1].code == "surefoot --version  # comment\n  indented\n"

    @pytest.mark.parametrize("text", ["```\nx\n```", "```pyhton\nx\n```", "```python\nx"])
    def test_refuses_fences_without_a_language_or_an_end(self, text: str) -> None:
        with pytest.raises(ValueError, match="p, line 1"):
            list(blocks(text, "p"))

    @pytest.mark.parametrize(
        "text",
        [
            "```python\nassert 1 == 2\n```",
            "```python\nx = 1\n```\n```python\nassert x == 2\n```",
            "```toml\n[train]\nstepz = 3\n```",
            "```toml sft\n[train]\nsteps = 3\n```",
            "```bash\nsurefoot train missing.toml\n```",
            "```bash\nsurefoot cards gropo\n```",
            "```bash\nmake coffee\n```",
            "```bash\npip install 'surefoot[everything]'\n```",
            "```bash\ncurl example\n```",
            "```bash\nfalse | cat\n```",
            "```json\n{,}\n```",
            "```jsonl\n{}\n[]\n```",
        ],
    )
    def test_sees_what_does_not_work(self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        page = tmp_path / "page.md"
        page.write_text(text)
        (tmp_path / "work").mkdir()
        with pytest.raises(Exception):  # noqa: B017 - whatever the block raises
            follow_page(page, tmp_path / "work", monkeypatch, slow=False)

    def test_follows_a_page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        page = tmp_path / "page.md"
        page.write_text(
            "```toml run.toml\nname = 'x'\n```\n```bash\nA=1 surefoot cards \\\n  grpo # one\nmake test\n"
            "pip install -e '.[report,gym]'\nsurefoot --version | grep -q surefoot\n```\n"
            "```python\nimport os, pathlib\nassert pathlib.Path('run.toml').exists() and os.environ['A'] == '1'\n```\n"
            f"{SLOW}\n```python\nraise RuntimeError\n```\n"
        )
        (tmp_path / "work").mkdir()
        follow_page(page, tmp_path / "work", monkeypatch, slow=False)
        shutil.rmtree(tmp_path / "work")
        (tmp_path / "work").mkdir()
        with pytest.raises(RuntimeError):
            follow_page(page, tmp_path / "work", monkeypatch, slow=True)


def test_the_reference_of_the_configuration_is_the_one_that_the_code_gives() -> None:
    from surefoot.cli.reference import reference

    assert (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8") == reference(), "run: make docs"


def test_the_words_of_other_libraries_are_those_of_the_code() -> None:
    from surefoot.cli.coming_from import PLACE, tables
    from surefoot.methods.pages import between

    page = (REPOSITORY / "docs" / "coming_from.md").read_text(encoding="utf-8")
    assert between(page, PLACE, tables()) == page, "run: make docs"
