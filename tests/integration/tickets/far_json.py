"""Far sides that speak JSON over HTTP: one server, what it is asked for, and misfortunes on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.contracts.rigs import RETRY_AFTER_S, Trouble


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = tuple[int, Any]


@dataclass
class FarJson:
    answers: Callable[[Asked], Answer]
    writes: Callable[[Asked], bool]
    """Whether this one opens a ticket: the next such meets `trouble`."""
    refusal: Callable[[Trouble], tuple[int, dict[str, str], Any]] = lambda trouble: (
        (429, {"Retry-After": f"{RETRY_AFTER_S:.0f}"}, {})
        if trouble is Trouble.THROTTLE
        else (400, {}, {"errorMessages": ["no; token=abcdefghijkl"]})
    )
    asked: list[Asked] = field(default_factory=list)
    trouble: Trouble | None = None
    unreadable: bool = False
    """Of the next read."""
    denied: int = 0
    """Status of every answer, where it isn't 0."""

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"far": self}))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], Any] | None:
        """None = the connection is dropped."""
        self.asked.append(asked)
        if self.denied:
            return self.denied, {}, {"errorMessages": ["who are you?"]}
        if not self.writes(asked):
            if self.unreadable:
                self.unreadable = False
                return None
            return self._plain(asked)
        trouble, self.trouble = self.trouble, None
        if trouble is Trouble.TIMEOUT_BEFORE:
            return None
        if trouble in (Trouble.REFUSE, Trouble.THROTTLE):
            return self.refusal(trouble)
        given = self._plain(asked)
        return None if trouble is Trouble.TIMEOUT_AFTER else given

    def _plain(self, asked: Asked) -> tuple[int, dict[str, str], Any]:
        status, body = self.answers(asked)
        return status, {}, body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    far: FarJson

    def handle_one(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        given = self.far.answer(Asked(self.command, parts.path, query, headers, json.loads(raw) if raw else None))
        if given is None:
            self.close_connection = True
            self.connection.close()
            return
        status, more, body = given
        content = b"" if status == 204 else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **more}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = handle_one

    def log_message(self, *_: object) -> None:
        pass
