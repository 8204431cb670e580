"""Requests to an endpoint with the chat completions protocol: patience where it is busy, none where it refuses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.errors import RewardError
from surefoot.extras import require
from surefoot.rewards.judge.config import JudgeConfig
from surefoot.rewards.notes import Notes

# Too early, too many, or a fault on the other side: the same request may be answered later.
PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
LARGEST_REPLY = 2**20
LONGEST_WAIT = 60.0


class EndpointError(Exception):
    """The endpoint gave no reply that can be used."""


@dataclass(frozen=True)
class Reply:
    """The text of a reply, and the tokens of the request and of the reply, 0 where the endpoint does not say."""

    text: str
    tokens_in: int
    tokens_out: int


class Endpoint:
    """One model behind one address.

    Args:
        config: where it is, and how patient to be.
        notes: counts ``judge/requests`` and ``judge/retries``.

    Raises:
        RewardError: the environment variable with the key is not set.
        MissingExtraError: the HTTP client is not installed.
    """

    def __init__(self, config: JudgeConfig, notes: Notes) -> None:
        self.config, self.notes = config, notes
        self._http = require("httpx2", "judge", "a reward by a judge")
        self._key = os.environ.get(config.key_env, "") if config.key_env else ""
        if config.key_env and not self._key:
            raise RewardError(f"the judge's key_env = '{config.key_env}': set this environment variable to the key")
        self._client: Any = None
        self.trouble = ""  # why the last request had no reply; "" where it had one

    async def ask(self, messages: tuple[Mapping[str, str], ...], response_format: dict[str, Any] | None) -> Reply:
        """The reply to a chat, asked for again while the endpoint is busy, down or slow.

        Raises:
            EndpointError: it refused, or its last reply was of no use.
        """
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": [dict(message) for message in messages],
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
            **({"response_format": response_format} if response_format else {}),
            **self.config.body,
        }
        trouble, pause = "", 0.0
        for attempt in range(self.config.attempts):
            if attempt:
                self.notes.total("judge/retries")
                await asyncio.sleep(min(LONGEST_WAIT, max(pause, self.config.backoff * 2.0 ** (attempt - 1))))
            self.notes.total("judge/requests")
            try:
                async with asyncio.timeout(self.config.attempt_seconds):
                    status, headers, content = await self._post(body)
            except TimeoutError:
                trouble, pause = f"no reply within {self.config.attempt_seconds:g} s", 0.0
                self.trouble = trouble
                continue
            except self._http.RequestError as error:  # also a reply that cannot be unpacked
                trouble, pause = f"{type(error).__name__}: {error}", 0.0
                self.trouble = self.hidden(trouble)
                continue
            if status == 200:
                self.trouble = ""
                return self._read(content)
            trouble = f"HTTP {status}: {_message(content)}"
            self.trouble = self.hidden(trouble)
            if status not in PASSING:
                break
            pause = _seconds(headers.get("retry-after"))
        raise EndpointError(self.hidden(f"{self.config.base_url} gave no reply: {trouble}"))

    def hidden(self, text: str) -> str:
        """The text without the key, which an endpoint may quote."""
        return text.replace(self._key, "***") if self._key else text

    async def _post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = self._http.AsyncClient(headers=headers, timeout=self.config.attempt_seconds)
        request = self._client.stream("POST", f"{self.config.base_url}/chat/completions", json=body)
        async with request as response:
            content = b""
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LARGEST_REPLY:
                    raise EndpointError(f"the reply of {self.config.base_url} has more than {LARGEST_REPLY} bytes")
            return response.status_code, response.headers, content

    def _read(self, content: bytes) -> Reply:
        try:
            data = json.loads(content)
            choice = data["choices"][0]
            text = choice["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            text, choice, data = None, {}, {}
        if not isinstance(text, str):
            raise EndpointError(f"the reply of {self.config.base_url} is no chat completion with a text")
        if isinstance(choice, dict) and choice.get("finish_reason") == "length":
            raise EndpointError(f"the reply was cut after max_tokens = {self.config.max_tokens}: raise it")
        usage = data.get("usage") or {}
        tokens = [
            usage.get(name, 0) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")
        ]
        tokens_in, tokens_out = (count if isinstance(count, int) and 0 <= count < 2**53 else 0 for count in tokens)
        return Reply(text, tokens_in, tokens_out)


def _message(content: bytes) -> str:
    """What an endpoint says about an error, in one line."""
    try:
        error = json.loads(content)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError, RecursionError):
        text = content[:200].decode("utf-8", "replace")
    return " ".join(str(text).split())[:200] or "no message"


def _seconds(header: str | None) -> float:
    """The seconds of a Retry-After header; 0 where there is none, or a date."""
    try:
        return max(0.0, float(header or 0.0))
    except ValueError:
        return 0.0
