"""What the page of a large run costs: making it, opening it in Chromium, searching all of its texts.

``python -m benchmarks.page`` writes a run of 5,000 samples with 2,000 tokens each into a temporary folder and prints a line for
each time that its page was opened. Needs what the page's tests need: Chromium, and Python's playwright.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from surefoot.report.page import write_report
from tests.report.browser import chromium, opened, renderers, until
from tests.report.large import build_large

READ = "#reader-sample .sample-title"
FOUND = "document.getElementById('reader-status').textContent.includes(' of ')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=2000, help="of each sample")
    parser.add_argument("--times", type=int, default=5, help="how often it is opened, each time by a new browser")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = build_large(Path(place) / "large", given.samples, given.tokens)
        begin = time.process_time()
        page = write_report(folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(
            f"{given.samples} samples of {given.tokens} tokens: {page.stat().st_size / 1e6:.0f} MB, "
            f"made in {time.process_time() - begin:.1f} s of the processor with at most {peak:.0f} MB\n"
        )
        print("opened, s | processor, s | MB | MB after a search")
        for _ in range(given.times):
            print(" | ".join(f"{number:.2f}" for number in measured(page)), flush=True)


def measured(page: Path) -> tuple[float, float, float, float]:
    """Until the first sample is shown: seconds, and of the processor; the page's memory in MB then, and after a search."""
    with chromium() as browser:
        begin = time.perf_counter()
        with opened(browser, page.as_uri(), offline=True) as found:
            found.wait_for_selector(READ)
            seconds = time.perf_counter() - begin
            processor, memory = map(max, zip(*renderers(browser), strict=True))
            found.fill("[name=text]", "therefore answer carry")
            until(found, FOUND)
            return seconds, processor, memory, max(used for _, used in renderers(browser))


if __name__ == "__main__":
    main()
