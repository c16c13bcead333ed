"""Stands between the adapter and a real API server, and makes the next call go wrong in a chosen way."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tests.contracts.rigs import RETRY_AFTER_S, Trouble


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    status: int


@dataclass
class Script:
    method: str
    path: re.Pattern[str]
    trouble: Trouble
    times: int = 1


@dataclass
class Proxy:
    """Plain HTTP on a loopback port; the caller's own token goes on to the API server."""

    server: str
    certificate: Path
    calls: list[Call] = field(default_factory=list)
    """In the order of their ends; those that were dropped before the API server saw them are not among them."""
    scripts: list[Script] = field(default_factory=list)
    refusal: int = 500
    printed: dict[str, bytes] = field(default_factory=dict)
    """What pods printed, by a part of their names: their kubelet is played, and nobody else has their logs."""
    expired: int = 0
    """So many watches to come are told that what they ask for was forgotten."""
    watches: list[http.client.HTTPSConnection] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def script(self, method: str, path: str, trouble: Trouble, times: int = 1) -> None:
        with self.lock:
            self.scripts.append(Script(method, re.compile(path), trouble, times))

    def trouble(self, method: str, path: str) -> Trouble | None:
        with self.lock:
            for script in self.scripts:
                if script.times and script.method == method and script.path.search(path):
                    script.times -= 1
                    return script.trouble
        return None

    def stream(self, handler: BaseHTTPRequestHandler) -> None:
        """A watch, passed on as it comes."""
        with self.lock:
            self.calls.append(Call(handler.command, handler.path, 200))
        if self.expired:
            # As the API server puts it to who comes back after too long a time.
            self.expired -= 1
            status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
            line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(line)))
            handler.end_headers()
            handler.wfile.write(line)
            return
        connection, answer = self.ask(handler, b"")
        with self.lock:
            self.watches.append(connection)
        try:
            handler.send_response(answer.status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while part := answer.read1(65_536):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.write(b"0\r\n\r\n")
        except (OSError, ValueError, http.client.HTTPException):
            handler.close_connection = True  # one of the two sides has hung up
        finally:
            connection.close()

    def hang_up(self) -> None:
        """Every watch that is open loses its connection."""
        with self.lock:
            watches, self.watches = self.watches, []
        for connection in watches:
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)

    def forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection, answer = self.ask(handler, body)
        try:
            content = answer.read()
            for name, log in self.printed.items():
                if name in handler.path and "/log?" in handler.path and answer.status != 403:
                    return 200, [("Content-Type", "text/plain")], log
            with self.lock:
                self.calls.append(Call(handler.command, handler.path, answer.status))
            return answer.status, answer.getheaders(), content
        finally:
            connection.close()

    def ask(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        target = urlsplit(self.server)
        assert target.hostname
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(target.hostname, target.port, context=context, timeout=60)
        kept = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection", "content-length")}
        try:
            connection.request(handler.command, handler.path, body or None, kept)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        trouble = self.proxy.trouble(self.command, self.path)
        if trouble is Trouble.TIMEOUT_BEFORE:
            return self._drop()
        if trouble is Trouble.THROTTLE:
            return self._say(429, "throttled", {"Retry-After": f"{RETRY_AFTER_S:.0f}"})
        if trouble is Trouble.REFUSE:
            return self._say(self.proxy.refusal, "refused by a test")
        if trouble is Trouble.LIE:
            return self._say(200, "done, it says")
        if "watch=1" in self.path:
            return self.proxy.stream(self)
        status, headers, content = self.proxy.forward(self, body)
        if trouble is Trouble.TIMEOUT_AFTER:
            return self._drop()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_one

    def _say(self, code: int, message: str, headers: dict[str, str] | None = None) -> None:
        content = json.dumps({"kind": "Status", "status": "Failure", "code": code, "message": message}).encode()
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        pass
