"""From the reply of a worker to a Result. What the program itself wrote is read as text that may be anything."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from surefoot.rewards.sandbox.guest.values import Unencodable, decode
from surefoot.rewards.sandbox.limits import Limits
from surefoot.rewards.sandbox.results import Ending, Result

_OUTCOMES = {"timeout": Ending.TIMEOUT, "output": Ending.OUTPUT, "disk": Ending.DISK}
_OUTCOMES |= {"threads": Ending.FAILED, "processes": Ending.FAILED}
_KINDS = {"compile": Ending.COMPILE, "memory": Ending.MEMORY, "raised": Ending.FAILED}


def read_reply(reply: Mapping[str, Any], mode: str, limits: Limits) -> Result:
    """The result of a job that was run as ``mode`` ('script', 'call' or 'tests')."""
    code = int(reply["code"])
    report = _frame(reply["report"])
    result = Result(
        _OUTCOMES.get(reply["outcome"], Ending.OK if code == 0 else Ending.FAILED),
        stdout=_text(reply["stdout"]),
        stderr=_text(reply["stderr"]),
        code=code,
        seconds=reply["seconds"],
        cpu_seconds=reply["cpu"],
    )
    if reply["outcome"] in ("threads", "processes"):
        result = replace(result, text=f"too many {reply['outcome']}")
    elif result.status is Ending.FAILED:
        result = replace(result, status=_why(code, result.cpu_seconds, report, limits))
    if mode == "tests":
        return _tested(result, _frame(reply["verdict"]), report, cut=reply["outcome"] != "exited")
    if mode == "call" and result.ok:
        result = _valued(result, report)
    return result if result.ok else replace(result, text=result.text or _reason(result))


def _why(code: int, cpu: float, report: Mapping[str, Any], limits: Limits) -> Ending:
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu >= limits.cpu_seconds):
        return Ending.TIMEOUT
    return _KINDS.get(str(report.get("kind")), Ending.FAILED)


def _valued(result: Result, report: Mapping[str, Any]) -> Result:
    if report.get("kind") != "value":
        return replace(result, status=Ending.FAILED, text="the program ended before the function returned")
    try:
        return replace(result, value=decode(report["value"]), changed=decode(report.get("changed")), returned=True)
    except (Unencodable, KeyError, RecursionError) as error:
        return replace(result, status=Ending.FAILED, text=f"the function returned no plain value: {error}")


def _tested(result: Result, verdict: Mapping[str, Any], report: Mapping[str, Any], *, cut: bool) -> Result:
    """The verdict comes from the process of the tests alone; the program's report only says what kind of failure."""
    kind, text = verdict.get("kind"), str(verdict.get("text", ""))
    passed = tuple(bool(one) for one in verdict.get("passed", ()))
    result = replace(result, passed=passed)
    if cut:
        return replace(result, passed=(), text=_reason(result))
    if kind in ("suite", "unsupported"):
        return replace(result, status=Ending.ERROR, text=f"the tests cannot be run: {text}")
    if kind in ("", "assertion"):
        return replace(result, status=Ending.OK, code=0, text=text)
    if kind == "raised":
        return replace(result, status=Ending.FAILED, text=text)
    status = result.status if result.status is Ending.TIMEOUT else _KINDS.get(str(report.get("kind")), Ending.FAILED)
    last = _last_line(result.stderr)
    return replace(result, status=status, text=f"{text}: {last}" if text and last else text or last or "it ended")


def _reason(result: Result) -> str:
    """One line on why a program ended badly."""
    last = _last_line(result.stderr)
    if result.status in (Ending.FAILED, Ending.COMPILE, Ending.MEMORY) and last:
        return last
    if result.code < 0 and result.status is Ending.FAILED:
        return f"ended by signal {-result.code}"
    return f"exit code {result.code}" if result.status is Ending.FAILED else str(result.status)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else ""


def _frame(data: str) -> Mapping[str, Any]:
    """The first message in what a process wrote; an empty one where there is none."""
    raw = data.encode("latin-1")
    size = int.from_bytes(raw[:4], "big")
    try:
        message = json.loads(raw[4 : 4 + size])
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _text(data: str) -> str:
    return data.encode("latin-1").decode("utf-8", "replace")
