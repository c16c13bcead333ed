"""Stands between the adapter and a real API server, and makes the next call go wrong in a chosen way."""

from __future__ import annotations

import http.client
import json
import re
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

    def forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = urlsplit(self.server)
        context = ssl.create_default_context(cafile=str(self.certificate))
        assert target.hostname
        connection = http.client.HTTPSConnection(target.hostname, target.port, context=context, timeout=30)
        try:
            kept = {
                k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection", "content-length")
            }
            connection.request(handler.command, handler.path, body or None, kept)
            answer = connection.getresponse()
            content = answer.read()
            with self.lock:
                self.calls.append(Call(handler.command, handler.path, answer.status))
            return answer.status, answer.getheaders(), content
        finally:
            connection.close()


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
            return self._say(500, "refused by a test")
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
