"""A language model as a judge, behind any endpoint that speaks the chat completions protocol of OpenAI."""

from surefoot.rewards.judge.config import JudgeConfig
from surefoot.rewards.judge.judge import Judge, make_judge

__all__ = ["Judge", "JudgeConfig", "make_judge"]
