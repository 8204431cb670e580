"""``python -m surefoot`` is the command ``surefoot``."""

import sys

from surefoot.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
