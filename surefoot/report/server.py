"""``surefoot view``: the pages of runs and experiments on this machine, live while they go on.

The server answers for a fixed list of pages and for nothing else: no part of an address is ever used as a path of a
file. Requests that name another host are refused, so that a page of somebody else's, whose name was made to point here
(DNS rebinding), can read nothing; no answer may be read or framed by other sites.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from surefoot.errors import ConfigError, RunFolderError, SurefootError
from surefoot.report.comparison_page import comparison_page
from surefoot.report.experiment import is_experiment, read_experiment
from surefoot.report.live import experiment_news, run_news, signature
from surefoot.report.page import run_page
from surefoot.report.reading import Record, read_run
from surefoot.report.render import render

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Shown:
    """One page: of a run or of an experiment; ``trouble`` says why it cannot be shown."""

    name: str
    folder: Path
    kind: str
    trouble: str = ""


def find_pages(folders: Sequence[Path]) -> list[Shown]:
    """The pages of run folders and experiments' folders; a folder that is neither is listed with the reason, and with what
    may have been meant.

    An experiment is followed by its runs.
    """
    pages: list[Shown] = []
    for folder in map(Path, folders):
        if is_experiment(folder):
            files = read_experiment(folder)
            pages.append(Shown(files.name, folder, "experiment"))
            pages += [Shown(f"{run.arm}, {run.task}, {run.seed}", run.folder, "run") for run in files.runs]
            continue
        try:
            pages.append(Shown(read_run(folder).title, folder, "run"))
        except RunFolderError as error:
            pages.append(Shown(str(folder), folder, "run", str(error)))
    return pages


class Site:
    """The pages and their addresses.

    Args:
        folders: run folders and experiments' folders.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._lock = threading.Lock()
        self._made: dict[int, tuple[str, str]] = {}

    def answer(self, path: str, query: dict[str, str]) -> tuple[HTTPStatus, str, str]:
        """Status, kind of content and content for an address."""
        pages = find_pages(self.folders)
        parts = path.strip("/").split("/") if path.strip("/") else []
        if not parts:
            only = len(pages) == 1 and not pages[0].trouble
            if only or (pages and pages[0].kind == "experiment" and len(self.folders) == 1):
                return HTTPStatus.FOUND, "location", "/0/"
            return HTTPStatus.OK, "text/html", self._index(pages)
        number = int(parts[0]) if parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 6 else -1
        if not 0 <= number < len(pages) or parts[1:] not in ([], ["live.json"]):
            return HTTPStatus.NOT_FOUND, "text/plain", "There is no such page.\n"
        if not parts[1:] and not path.endswith("/"):
            return HTTPStatus.FOUND, "location", f"/{number}/"
        shown = pages[number]
        if shown.trouble:
            return HTTPStatus.NOT_FOUND, "text/plain", shown.trouble + "\n"
        if parts[1:]:
            news = experiment_news if shown.kind == "experiment" else run_news
            return HTTPStatus.OK, "application/json", json.dumps(news(shown.folder, query), allow_nan=False)
        return HTTPStatus.OK, "text/html", self._page(number, shown, pages)

    def _page(self, number: int, shown: Shown, pages: list[Shown]) -> str:
        """The page, made anew only where its folder has changed; one at a time, for they are large."""
        with self._lock:
            mark = f"{shown.folder} {signature(shown.folder)} {len(pages)}"
            if self._made.get(number, ("", ""))[0] != mark:
                self._made = {number: (mark, self._make(shown, pages))}
            return self._made[number][1]

    def _make(self, shown: Shown, pages: list[Shown]) -> str:
        if shown.kind == "experiment":
            links = {page.folder: f"/{i}/" for i, page in enumerate(pages) if page.kind == "run"}
            return comparison_page(read_experiment(shown.folder), links, live=True)
        given = {Path(folder) for folder in self.folders}
        others = [page.folder for page in pages if not page.trouble and page.kind == "run" and page.folder in given]
        return run_page(shown.folder, others=[folder for folder in others if folder != shown.folder], live=True)

    def _index(self, pages: list[Shown]) -> str:
        entries: list[Record] = []
        for number, page in enumerate(pages):
            entries.append({"page": page, "link": f"/{number}/", "state": "" if page.trouble else _state(page)})
        return render("index.html", (), plots=False, entries=entries)


def _state(page: Shown) -> str:
    try:
        news: Record = (experiment_news if page.kind == "experiment" else run_news)(
            page.folder, {"after": "0", "train": str(2**60), "heldout": str(2**60)}
        )
        return str(news["says"])
    except SurefootError as error:
        return str(error)
    except Exception as error:  # its page says more; the other entries are shown
        return f"cannot be shown ({type(error).__name__}: {error})"


class _Handler(BaseHTTPRequestHandler):
    server_version = "Surefoot"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: Server

    def do_GET(self) -> None:
        self._answer(True)

    def do_HEAD(self) -> None:
        self._answer(False)

    def _answer(self, body: bool) -> None:
        if not self.server.allows(self.headers.get("Host", "")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "This server does not go by that name.\n", body)
            return
        try:
            address = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is no such page.\n", body)
            return
        try:
            found = self.server.site.answer(address.path, dict(parse_qsl(address.query)))
        except SurefootError as error:
            found = HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n"
        except Exception as error:  # whoever asked gets an answer, whatever a folder holds
            said = f"The page cannot be made ({type(error).__name__}: {error})."
            self.server.complain(f"{address.path}: {said}")
            found = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{said}\n"
        self._send(*found, body)

    def _send(self, status: HTTPStatus, kind: str, content: str, body: bool) -> None:
        data = b"" if kind == "location" else content.encode("utf-8", "replace")
        self.send_response(status)
        if kind == "location":
            self.send_header("Location", content)
        else:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):  # whoever asked has gone
                self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: the terminal shows the address, and Ctrl-C."""


class Server(ThreadingHTTPServer):
    """A server that is bound and not yet running: ``with Server(...) as server: server.serve_forever()``.

    Args:
        folders: run folders and experiments' folders.
        host: where to listen; "127.0.0.1" is this machine alone.
        port: 0 takes a free one.

    Raises:
        ConfigError: a host or port on which nothing can listen here.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folders: Sequence[Path], host: str = "127.0.0.1", port: int = 0) -> None:
        self.site = Site(folders)
        self.host = host
        self._complaints: set[str] = set()
        if ":" in host:
            import socket

            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"cannot listen on {host}, port {port} ({reason}): give another --port, 0 for a free one, or another --host"
            ) from error

    @property
    def url(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.server_address[1]}/"

    def allows(self, host: str) -> bool:
        """Whether a request may name this host: the one that was given, localhost, or an address in numbers.

        A name that somebody else controls is refused, wherever it points; numbers cannot be made to point elsewhere.
        """
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name:
            return False
        return name in ("localhost", self.host.lower()) or is_address(name)

    def complain(self, words: str) -> None:
        """A line on standard error, once however often a page asks."""
        if words not in self._complaints:
            self._complaints.add(words)
            line = "".join(c if c.isprintable() else "?" for c in words)
            print(f"surefoot: warning: {line}", file=sys.stderr, flush=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is not worth a word."""


def is_address(name: str) -> bool:
    """Whether a host is given in numbers."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def serve(server: Server, ready: Callable[[], None] = lambda: None) -> None:
    """Answer until Ctrl-C, and end without a trace of it."""
    ready()
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
