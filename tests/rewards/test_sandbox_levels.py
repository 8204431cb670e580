"""The level of isolation is proved by probes; what fails one is not taken, and the weakest never by itself."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from surefoot.errors import SandboxError
from surefoot.rewards.sandbox import Ending, Limits, Sandbox, SandboxConfig
from surefoot.rewards.sandbox import levels as levels_module
from surefoot.rewards.sandbox.backends import AUTOMATIC, backend
from surefoot.rewards.sandbox.guest import landlock
from surefoot.rewards.sandbox.levels import broken, choose, self_test
from surefoot.rewards.sandbox.probes import Probe
from tests.rewards.sandboxes import LEVELS

HELD = (Probe("start", True, "fine"),)
LEAKS = (Probe("socket", False, "connected"),)
PROBES = ["socket", "read /etc/passwd", "read outside", "write outside", "datagram", "100 processes", "2 GiB"]
PROBES += ["memory beside", "nameless files", "endless loop"]


@pytest.mark.parametrize(
    "passing, chosen",
    [
        (("namespaces", "bubblewrap", "seccomp"), "namespaces"),
        (("bubblewrap", "seccomp"), "bubblewrap"),
        (("seccomp",), "seccomp"),
        (("docker",), None),
        ((), None),
    ],
)
def test_the_best_level_that_holds_is_chosen(
    passing: tuple[str, ...], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels_module, "self_test", lambda name, config: HELD if name in passing else LEAKS)
    if chosen is not None:
        assert choose(SandboxConfig()) == chosen
        return
    with pytest.raises(SandboxError, match=r"namespaces: socket: connected.*isolation = 'rlimits'"):
        choose(SandboxConfig())


@pytest.mark.parametrize("name", [*AUTOMATIC, "docker"])
def test_a_named_level_that_leaks_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels_module, "self_test", lambda name, config: LEAKS)
    with pytest.raises(SandboxError, match=f"'{name}'.*connected"):
        Sandbox(SandboxConfig.model_validate({"isolation": name}))


def test_this_machine_tells_what_each_probe_gave() -> None:
    for name in LEVELS:
        assert [probe.name for probe in self_test(name)] == PROBES
        assert broken(self_test(name)) is None
    for name in set(AUTOMATIC) - set(LEVELS):
        assert broken(self_test(name))


def test_the_probes_find_what_rlimits_lets_through() -> None:
    """The self-test is worth something: it fails where there is no sandbox."""
    probes = {probe.name: probe for probe in self_test("rlimits")}
    assert probes["socket"].evidence == "connected" and not probes["socket"].held
    for name in ("read /etc/passwd", "read outside", "write outside", "datagram", "100 processes", "memory beside"):
        assert not probes[name].held, probes[name]
    assert probes["2 GiB"].held and probes["endless loop"].held


def test_the_weakest_level_runs_when_asked_for() -> None:
    assert "rlimits" not in AUTOMATIC
    with Sandbox(isolation="rlimits", workers=1) as sandbox:
        assert sandbox.run("print(6 * 7)").stdout == "42\n"
        assert sandbox.run("while True: pass", limits=Limits(seconds=0.3)).status is Ending.TIMEOUT
        assert sandbox.run("x = bytearray(10**10)").status is Ending.MEMORY
        assert sandbox.run("while True: print('x' * 999)").status is Ending.OUTPUT
        daemon = "import os, time\npid = os.fork()\nif pid == 0:\n    os.setsid()\n    time.sleep(60)\nelse: print(pid)"
        result = sandbox.run(daemon)
        assert result.ok and result.seconds < 30
        assert not Path(f"/proc/{int(result.stdout)}").exists()


def stand_in(folder: Path) -> Path:
    """A docker that starts this interpreter in place of a container, and keeps what it was asked."""
    script = folder / "docker"
    script.write_text(
        f"#!/bin/sh\nprintf '%s ' \"$@\" >> {folder}/asked; echo >> {folder}/asked\n"
        'case "$1" in\nimage) test "$3" = there; exit $?;;\nkill) exit 0;;\nesac\n'
        f'while [ "$1" != there ]; do shift; done\nshift 2\nexec {os.path.realpath(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    return script


def test_docker_is_asked_for_a_closed_container(tmp_path: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir="/tmp"))
    (beside / "kept").write_text("whole")
    config = SandboxConfig(isolation="docker", image="there", command=str(stand_in(tmp_path)), workers=1)
    if landlock.version() < 3:
        with pytest.raises(SandboxError):  # the stand-in has no walls of a container's own
            Sandbox(config)
    else:
        with Sandbox(config) as sandbox:
            assert sandbox.isolation == "docker"
            assert sandbox.run("print(6 * 7)").stdout == "42\n"
            assert sandbox.run("while True: pass", limits=Limits(seconds=0.3)).status is Ending.TIMEOUT
    assert (beside / "kept").read_text() == "whole"  # the stand-in's /tmp is that of the machine
    shutil.rmtree(beside)
    asked = (tmp_path / "asked").read_text()
    for option in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--pids-limit", "--memory"):
        assert option in asked
    assert "--user 65534:65534" in asked and "--interactive" in asked


def test_docker_without_an_image_or_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no such image"):
        Sandbox(isolation="docker", image="absent", command=str(stand_in(tmp_path)))
    with pytest.raises(SandboxError, match=r"sandbox\.command"):
        Sandbox(isolation="docker", command="no-such-docker")


def test_bubblewrap_is_asked_for_new_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="bwrap"):
        backend("bubblewrap", SandboxConfig())
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    command = backend("bubblewrap", SandboxConfig()).command
    assert command[:2] == [str(program), "--unshare-all"] and "--die-with-parent" in command
    assert not any(word.startswith("--bind") for word in command)
    assert [command[n + 1] for n, word in enumerate(command) if word == "--dev-bind"] == ["/dev/null", "/dev/urandom"]
    assert (
        "--dev" not in command and "--size" not in command and command.index("--remount-ro") > command.index("--tmpfs")
    )


def test_bubblewrap_limits_the_file_system_where_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho '    --size BYTES   Set size of next argument (only for --tmpfs)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = " ".join(backend("bubblewrap", SandboxConfig(disk_mb=3)).command)
    assert f"--size {3 << 20} --tmpfs /tmp" in words
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(SandboxError, match="bubblewrap' needs Landlock"):
        backend("bubblewrap", SandboxConfig())


def test_several_processes_need_namespaces() -> None:
    assert backend("namespaces", SandboxConfig(processes=2)).walls["namespaces"]
    with pytest.raises(SandboxError, match=r"sandbox\.processes = 2"):
        backend("rlimits", SandboxConfig(processes=2))
