"""The ``[evaluation]`` section: what is measured on held-out problems, and when."""

from __future__ import annotations

from pydantic import Field

from surefoot.config import Section
from surefoot.errors import ConfigError


class EvaluationConfig(Section):
    """What is measured on held-out problems, and when."""

    every: int = Field(
        10, ge=0, description="evaluate before every n-th step and after the last (0: only first and last)"
    )
    problems: int = Field(256, gt=0, description="held-out problems to use, at most")
    samples: int = Field(1, gt=0, description="samples per problem (k of avg@k, upper bound of k of pass@k)")
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling of the evaluation")
    seed: int = Field(0, description="seed of the evaluation's sampling, and of the bootstrap of differences")
    confidence: float = Field(0.95, gt=0, lt=1, description="level of the intervals")

    verifier: str = Field(
        "same",
        description="what judges held-out samples: 'same' (the reward that is trained with), 'auto' (the task's own), or the "
        "name of a verifier. One that the policy is not trained with shows whether it learned the task or a gap of the reward",
    )

    def check(self) -> None:
        """Refuse what would measure nothing.

        Raises:
            ConfigError: several samples per problem at temperature 0, which would all be the same.
        """
        if self.temperature == 0 and self.samples > 1:
            raise ConfigError(
                f"evaluation.samples is {self.samples} and evaluation.temperature is 0, so the samples of a problem would "
                "all be the same: set evaluation.temperature above 0, or evaluation.samples to 1"
            )
