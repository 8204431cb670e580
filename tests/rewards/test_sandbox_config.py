"""Every key of the sandbox does something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot.config import load, validate
from surefoot.errors import ConfigError
from surefoot.rewards.sandbox import Ending, Limits, Sandbox, SandboxConfig
from surefoot.rewards.sandbox.backends import backend
from tests.rewards.sandboxes import LEVELS, at_each_level

# key: (value, program, how it ends with that value); with the default each of the programs ends well
LIMITS: dict[str, tuple[Any, str, Ending]] = {
    "seconds": (0.2, "import time\ntime.sleep(1)", Ending.TIMEOUT),
    "cpu_seconds": (1.0, "import time\nwhile time.process_time() < 1.2: pass", Ending.TIMEOUT),
    "memory_mb": (128, "x = bytearray(200 << 20)", Ending.MEMORY),
    "disk_mb": (1, "open('x', 'wb').write(bytes(2 << 20))", Ending.FAILED),
    "output_kb": (1, "print('x' * 2000)", Ending.OUTPUT),
    "threads": (
        0,
        "import threading, time\nfor _ in range(9): threading.Thread(target=time.sleep, args=(0.5,)).start()",
        Ending.FAILED,
    ),
}


@at_each_level
@pytest.mark.parametrize("key", LIMITS)
def test_each_limit_is_that_of_the_configuration(sandbox: Sandbox, key: str) -> None:
    value, program, ending = LIMITS[key]
    assert sandbox.run(program, limits=Limits(seconds=90.0)).ok
    with Sandbox(
        validate(SandboxConfig, {"isolation": sandbox.isolation, "workers": 1, "seconds": 90.0} | {key: value})
    ) as other:
        assert other.run(program).status is ending


def test_the_other_keys() -> None:
    assert load(SandboxConfig).isolation == "auto"
    config = SandboxConfig(isolation="rlimits", workers=3, preload=["numpy"], processes=2)
    assert Sandbox(config.model_copy(update={"processes": 1})).workers == 3
    assert config.limits().processes == 2
    assert backend("namespaces", config).walls["preload"] == ["numpy"]
    assert not SandboxConfig().preload and backend("namespaces", SandboxConfig()).walls["path"] == []


@pytest.mark.parametrize("key", ["image", "command"])
def test_the_keys_of_docker(key: str, tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    command = backend("docker", SandboxConfig(command=str(program), image="mine:1")).command
    assert {"image": "mine:1", "command": str(program)}[key] in command


@pytest.mark.parametrize(
    "values", [{"isolation": "none"}, {"seconds": 0}, {"processes": 0}, {"memory_mb": 1}, {"allow_weak": True}]
)
def test_values_that_mean_nothing_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        validate(SandboxConfig, values)


def test_no_worker_starts_before_it_is_needed() -> None:
    sandbox = Sandbox(isolation=LEVELS[0] if LEVELS else "rlimits")  # type: ignore[arg-type]
    assert not sandbox._started and sandbox.isolation in (*LEVELS, "rlimits")
