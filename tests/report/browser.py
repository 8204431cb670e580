"""Headless Chromium, where there is one: its binary, and a page that remembers what it asked for and what went wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

try:
    from playwright import sync_api
except ImportError:
    sync_api = None  # type: ignore[assignment]

needs_browser = pytest.mark.skipif(
    BINARY is None or sync_api is None, reason="needs Chromium (Debian: apt install chromium) and Python's playwright"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=BINARY, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page at an address. ``page.asked`` are the addresses that it asked for, ``page.troubles`` its errors."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options})
    context.set_default_timeout(180_000)  # of a machine that does much else
    context.set_default_navigation_timeout(180_000)
    page = context.new_page()
    page.asked, page.troubles = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("console", lambda said: page.troubles.append(said.text) if said.type == "error" else None)
    page.goto(address)
    try:
        yield page
    finally:
        context.close()


def renderers(browser: Any) -> list[tuple[float, float]]:
    """Processor seconds and the most memory held so far, in MB, of each process that shows a page."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    found = []
    for process in processes:
        if process["type"] == "renderer":
            status = Path(f"/proc/{int(process['id'])}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
            found.append((float(process["cpuTime"]), int(peak.split()[1]) / 1000))
    return found


def until(page: Any, condition: str) -> None:
    """Wait for an expression in the page to be true. The page's policy forbids what Playwright's own waiting does."""
    deadline = time.monotonic() + 180
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never came true: {condition}"
        page.wait_for_timeout(50)
