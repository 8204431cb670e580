"""The options of a judge."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from surefoot.config import Section


class JudgeConfig(Section):
    """Which model judges, by what, and how it is asked."""

    base_url: str = Field(pattern=r"^https?://", description="of the endpoint, for instance 'http://localhost:8000/v1'")
    model: str = Field(min_length=1, description="name of the model, as the endpoint knows it")
    rubric: str = Field(
        min_length=1,
        description="by what it judges; {question}, {answer} and any key of a problem's metadata in braces are filled in",
    )
    reply: Literal["tag", "json"] = Field(
        "tag", description="how it gives its verdict: a number between marks, or JSON after a schema that is sent along"
    )
    low: float = Field(0.0, description="the lowest score that it may give, worth 0")
    high: float = Field(10.0, description="the highest score that it may give, worth 1")
    right_at_least: float | None = Field(
        None, description="score from which an answer counts as right (none: the judge does not say)"
    )
    show_answer: bool = Field(True, description="whether it sees the gold answer, where there is one")
    temperature: float = Field(0.0, ge=0, description="of its sampling")
    max_tokens: int = Field(1024, gt=0, description="tokens of its reply")
    body: dict[str, Any] = Field({}, description="further fields of the request, for instance {seed = 1}")
    key_env: str = Field(
        "",
        pattern=r"^(|[A-Za-z_][A-Za-z0-9_]*)$",
        description="name of the environment variable with the key of the endpoint; the key itself is in no file",
    )
    attempts: int = Field(4, gt=0, description="requests for one judgement, where the endpoint is busy, down or slow")
    attempt_seconds: float = Field(30.0, gt=0, description="seconds after which a request is given up")
    backoff: float = Field(
        1.0, ge=0, description="seconds before the second request; twice as many before every further one"
    )
    price_in: float = Field(0.0, ge=0, description="price of a million tokens of requests, for the metric judge/cost")
    price_out: float = Field(0.0, ge=0, description="price of a million tokens of replies")

    @field_validator("base_url")
    @classmethod
    def _holds_no_password(cls, value: str) -> str:
        if "@" in value.split("://", 1)[1].split("/", 1)[0]:
            raise ValueError(
                "a user name or password in the address would be written into the run's files: use key_env"
            )
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_a_range(self) -> JudgeConfig:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} is not below high = {self.high:g}")
        return self
