"""An endpoint with the chat completions protocol, for tests of the judge: it answers as a test says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any], "Server"], Any]


class Server:
    """An endpoint. ``answer`` gives, for a request, the judge's text, or (status, body, headers)."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request, server: verdict(request, 7)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with server.lock:
                    server.requests.append(request)
                    server.headers.append({name.lower(): value for name, value in self.headers.items()})
                given = server.answer(request, server)
                status, body, headers = given if isinstance(given, tuple) else (200, reply(given), {})
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # the judge gave up
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


def reply(text: Any, **choice: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    return {"choices": [{"message": {"role": "assistant", "content": text}, **choice}], "usage": usage}


def mark(request: dict[str, Any]) -> str:
    """The name of the marks that the judge was told to use."""
    found = re.search(r"<(score-\w+)>", request["messages"][0]["content"])
    assert found
    return found[1]


def verdict(request: dict[str, Any], score: Any, before: str = "Good.") -> str:
    return f"{before} <{mark(request)}>{score}</{mark(request)}>"
