"""Errors a person can mend: one line that says what was given, what was expected and what to change.

The command line prints the message of any :class:`SurefootError` alone, without a traceback, and exits with code 2.
Anything else that is raised is a defect of Surefoot and keeps its traceback.
"""

from __future__ import annotations


class SurefootError(Exception):
    """Base of every error that the user of the library can mend."""

    exit_code = 2


class ConfigError(SurefootError):
    """A configuration that is missing, malformed, or has a key or value that nothing understands."""


class DataError(SurefootError):
    """A task or data file that cannot be used: missing, empty, a row without a prompt, a prompt that is too long."""


class ModelError(SurefootError):
    """A model or tokenizer that is missing, malformed, or lacks something that was asked of it."""


class AlgorithmError(SurefootError):
    """Parts of an objective that contradict each other, or numbers outside their range."""


class RewardError(SurefootError):
    """A reward function that does not keep its contract (wrong number of rewards, wrong type)."""


class RunFolderError(SurefootError):
    """A run folder that is in use, unwritable, full, or damaged."""


class MissingExtraError(SurefootError):
    """An optional dependency that is not installed."""


class NonFiniteError(SurefootError):
    """A log-probability, loss or gradient of the trainer that is not finite; the step was not taken."""


class SandboxError(SurefootError):
    """No sandbox of the kind that was asked for can be had on this machine."""
