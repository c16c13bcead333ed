"""Far sides of the tests: a server on a loopback port whose answers they give, and connections that are dropped."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Answer = tuple[int, dict[str, str], bytes]
DROPPED = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})
"""Of an answer that is passed on: they are of that connection."""


class Served:
    def respond(self, handler: Handler, body: bytes) -> Answer | Callable[[], None] | None:
        """None = the connection is dropped; a callable says it itself."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._http = _Server(("127.0.0.1", 0), type("Served", (Handler,), {"far": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    far: Served

    def handle_one(self) -> None:
        answer = self.far.respond(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        if answer is None:
            self.close_connection = True
            self.connection.close()
        elif callable(answer):
            answer()
        else:
            self.say(*answer)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_one

    def say(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def pass_on(self, to: http.client.HTTPConnection, body: bytes) -> http.client.HTTPResponse:
        """The request as it came, with its own credentials."""
        kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")}
        to.request(self.command, self.path, body or None, kept)
        return to.getresponse()

    def forward(self, host: str | None, port: int | None, body: bytes) -> Answer:
        to = http.client.HTTPConnection(host or "", port, timeout=60)
        try:
            return answered(self.pass_on(to, body))
        finally:
            to.close()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # who asked was killed meanwhile
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def answered(given: http.client.HTTPResponse) -> Answer:
    return given.status, {k: v for k, v in given.getheaders() if k.lower() not in DROPPED}, given.read()
