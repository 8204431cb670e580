"""``surefoot view``: what it serves, to whom, and that it keeps up with a run."""

from __future__ import annotations

import functools
import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.errors import ConfigError
from surefoot.report.live import run_news
from surefoot.report.server import Server, find_pages, is_loopback
from tests.report.browser import chromium, needs_browser, opened, until
from tests.report.comparisons import build_experiment
from tests.report.conftest import build_run

MakeRun = Callable[..., Path]


@contextmanager
def serving(*folders: Path) -> Iterator[Server]:
    with Server(folders) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_a_run_is_served_live_under_a_policy_that_lets_it_ask_home_only(make_run: MakeRun) -> None:
    with serving(make_run(steps=2)) as server:
        assert ask(server, "/")[:2] == (302, {**ask(server, "/")[1], "Location": "/0/"})
        status, headers, text = ask(server, "/0/")
        assert status == 200 and 'data-live="live.json"' in text and "connect-src &#39;self&#39;" in text
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
        assert "Access-Control-Allow-Origin" not in headers and headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert ask(server, "/0/", "HEAD")[2] == ""


@pytest.mark.parametrize(
    "path",
    [
        "/0/config.toml", "/0/../config.toml", "/../../../../etc/passwd", "/0/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
        "/0/samples/step-000001.jsonl", "/1/", "/-1/", "/00000000001/", "/0/live.json/x", "/%C2%B2/", "/report.html",
    ],
)  # fmt: skip
def test_nothing_but_its_pages_is_served(make_run: MakeRun, path: str) -> None:
    with serving(make_run(steps=1)) as server:
        status, _, text = ask(server, path)
        assert status == 404 and "root:" not in text and "dr_grpo" not in text


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:{port}", True), ("localhost:{port}", True), ("[::1]:{port}", True), ("127.0.0.1", True),
        ("evil.example", False), ("evil.example:{port}", False), ("localhost.evil.example:{port}", False),
        ("127.0.0.1.nip.io:{port}", False), ("", False), ("[", False),
    ],
)  # fmt: skip
def test_a_name_that_points_here_is_refused(make_run: MakeRun, host: str, allowed: bool) -> None:
    with serving(make_run(steps=1)) as server:
        status, _, text = ask(server, "/0/live.json", Host=host.format(port=server.server_address[1]))
        assert status == (200 if allowed else 421) and ("says" in text) == allowed


def test_only_reading_is_understood(make_run: MakeRun) -> None:
    with serving(make_run(steps=1)) as server:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(server, "/0/", method)[0] == 501


def test_what_cannot_be_shown_is_said_and_the_rest_is(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(steps=2)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "{half", lines[1], ""]))
    environment = json.loads((run / "environment.json").read_text()) | {"packages": {"surefoot": "0.0.1"}}
    (run / "environment.json").write_text(json.dumps(environment))
    (tmp_path / "empty").mkdir()
    with serving(run, tmp_path / "nowhere", tmp_path / "empty") as server:
        index = ask(server, "/")[2]
        assert "does not exist" in index and "holds no files of a run" in index and 'href="/0/"' in index
        page = ask(server, "/0/")[2]
        assert "1 of 3 lines of metrics.jsonl cannot be read" in page and "written by Surefoot 0.0.1" in page
        assert ask(server, "/1/")[0] == 404


def test_several_runs_show_where_their_settings_differ(make_run: MakeRun) -> None:
    with serving(make_run("a", steps=2), make_run("b", steps=3)) as server:
        page = ask(server, "/1/")[2]
        assert "Where this run and the others differ" in page and "train.steps" in page


def test_an_experiment_leads_to_its_runs(tmp_path: Path) -> None:
    with serving(build_experiment(tmp_path / "x")) as server:
        page = ask(server, ask(server, "/")[1]["Location"])[2]
        assert "Surefoot comparison" in page and 'href="/3/"' in page
        assert "Surefoot run" in ask(server, "/3/")[2]
        news = json.loads(ask(server, "/0/live.json?mark=old")[2])
        assert news["says"] == "Live: 2 runs finished, 1 under way" and news["reload"]
    assert [page.kind for page in find_pages([tmp_path / "x"])] == ["experiment", "run", "run", "run"]


def test_news_are_what_came_since(tmp_path: Path) -> None:
    short = build_run(tmp_path / "short", steps=40, finished=False)
    first = run_news(short, {"after": "-1", "train": "40", "heldout": "40"})
    assert first["whole"] and "samples" not in first and first["says"] == "Live: step 40 of 40"
    again = run_news(short, {"after": "40", "mark": first["seen"]["mark"], "train": "40", "heldout": "40"})
    assert set(again) == {"says", "over"}
    longer = build_run(tmp_path / "short", steps=43, finished=False)
    seen = {"after": "40", "mark": first["seen"]["mark"], "train": "40", "heldout": "40"}
    news = run_news(longer, seen)
    entropy = news["figures"]["entropy"]["data"][0]
    assert entropy["x"][-1] == 43 and len(entropy["x"]) < 12 and entropy["x"][0] <= 40
    fields = news["samples"]["fields"]
    assert {row[fields.index("step")] for row in news["samples"]["rows"]} == {41, 42, 43}
    assert news["seen"]["train"] == 43


@pytest.mark.parametrize(
    "seen", [{}, {"after": "x", "train": "1e9", "heldout": "--", "mark": "z"}, {"after": "9" * 400}]
)
def test_any_question_is_answered(make_run: MakeRun, seen: dict[str, str]) -> None:
    assert run_news(make_run(steps=2), seen)["figures"]


def test_addresses_that_cannot_be_listened_on_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        Server([], port=1 << 17)
    with pytest.raises(ConfigError, match="cannot listen"):
        Server([], host="no.such.host.invalid")


def test_loopback_is_told_from_the_rest() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(
        is_loopback(host) for host in ("0.0.0.0", "192.168.0.7", "::", "example.org", "localhost.example.org")
    )


def test_the_command_says_its_address_and_ends_with_ctrl_c(make_run: MakeRun) -> None:
    command = [sys.executable, "-m", "surefoot", "view", str(make_run(steps=1)), str(make_run().parent / "gone")]
    # Whoever runs the tests in the background has them ignore the signal, and what they start as well.
    hearing = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hearing)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    connection = http.client.HTTPConnection(line.split("/")[2], timeout=60)
    connection.request("GET", "/0/live.json")
    assert connection.getresponse().status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out == ""
    assert err.count("warning") == 1 and "does not exist" in err and "Traceback" not in err


@needs_browser
@pytest.mark.timeout(600)
def test_the_page_keeps_up_with_the_run(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", steps=12, every=5, finished=False)
    with serving(run) as server, chromium() as browser, opened(browser, server.url) as page:
        until(page, "document.getElementById('live-status').textContent === 'Live: step 12 of 12'")
        until(page, "document.querySelector('#reader-tools [name=step]').options.length === 13")
        build_run(run, steps=15, every=5)
        until(page, "document.getElementById('live-status').textContent === 'Finished after 15 steps'")
        until(page, "document.querySelector('#reader-tools [name=step]').options.length === 16")
        assert page.inner_text("#live-steps") == "15"
        page.locator("#figure-entropy").scroll_into_view_if_needed()
        last = "document.querySelector('#figure-entropy .plot').data?.[0].x"
        until(page, f"{last} && {last}[{last}.length - 1] === 15 && {last}.length === 15")
        until(page, "Boolean(document.getElementById('live-reload'))")
        assert page.troubles == [] and all(address.startswith(server.url) for address in page.asked)
        assert page.evaluate("fetch('https://example.org').then(() => 'read', () => 'refused')") == "refused"


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "soon"
    with serving(folder) as server:
        assert "does not exist" in ask(server, "/")[2]
        build_run(folder, steps=1)
        assert ask(server, "/")[0] == 302
