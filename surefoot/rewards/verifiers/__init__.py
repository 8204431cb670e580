"""Verifiers: rewards that compare a completion with what can be known about a right one."""

from surefoot.rewards.verifiers.base import Verifier, gold_text
from surefoot.rewards.verifiers.final import is_number, same_number, same_text
from surefoot.rewards.verifiers.registry import VERIFIERS, make_verifier

__all__ = ["VERIFIERS", "Verifier", "gold_text", "is_number", "make_verifier", "same_number", "same_text"]
