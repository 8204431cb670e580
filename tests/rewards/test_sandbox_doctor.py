"""The doctor says at which level programs run, and what each probe gave."""

from __future__ import annotations

import pytest

from surefoot.methods import doctor
from surefoot.rewards.sandbox.probes import Probe
from tests.rewards.sandboxes import LEVELS


def test_this_machine() -> None:
    outcome, evidence = doctor.sandbox()
    if LEVELS:
        assert outcome == "ok" and f"'{LEVELS[0]}'" in evidence
        for probe in (
            "socket: ",
            "read /etc/passwd: ",
            "datagram: Operation not permitted",
            "100 processes: 0",
            "memory beside: ",
            "nameless files: ",
            "2 GiB: MemoryError",
            "endless loop: timeout",
        ):
            assert probe in evidence
        assert "Errno" not in evidence
    else:
        assert outcome == "warn"


def test_a_machine_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "self_test", lambda name: (Probe("socket", name == "none", "connected"),))
    outcome, evidence = doctor.sandbox()
    assert outcome == "warn"
    assert "namespaces: socket: connected" in evidence and "sandbox.isolation = 'rlimits'" in evidence


def test_a_lower_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "self_test", lambda name: (Probe("socket", name == "seccomp", "refused"),))
    assert doctor.sandbox() == ("ok", "programs run at the level 'seccomp' (socket: refused)")
