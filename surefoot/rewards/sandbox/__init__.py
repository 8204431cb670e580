"""Running what a model wrote: no network, no files but its own, limits on everything, and a pool that survives it.

>>> from surefoot.rewards.sandbox import Sandbox
>>> with Sandbox() as sandbox:  # doctest: +SKIP
...     sandbox.run("print(int(input()) + 1)", stdin="41").stdout
'42\\n'
"""

from surefoot.rewards.sandbox.config import SandboxConfig
from surefoot.rewards.sandbox.limits import Limits
from surefoot.rewards.sandbox.pool import Sandbox
from surefoot.rewards.sandbox.results import Call, Checks, Ending, Job, Result

__all__ = ["Call", "Checks", "Ending", "Job", "Limits", "Result", "Sandbox", "SandboxConfig"]
