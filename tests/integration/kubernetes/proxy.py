"""Stands between the adapter and a real API server, and makes the next call go wrong in a chosen way."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration.served import Answer, Handler, Served, answered


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
class Proxy(Served):
    """Plain HTTP on a loopback port; the caller's own token goes on to the API server."""

    server: str
    certificate: Path
    calls: list[Call] = field(default_factory=list)
    """In the order of their ends; those that were dropped before the API server saw them are not among them."""
    scripts: list[Script] = field(default_factory=list)
    refusal: int = 500
    printed: dict[str, bytes] = field(default_factory=dict)
    """What pods printed, by a part of their names: their kubelet is played, and nobody else has their logs."""
    forgotten: int = 0
    """A watch that asks from a version before this one is told that it was forgotten."""
    watches: dict[http.client.HTTPSConnection, str] = field(default_factory=dict)
    """Those that are open, and what they asked for."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def respond(self, handler: Handler, body: bytes) -> Answer | Callable[[], None] | None:
        match trouble := self.trouble(handler.command, handler.path):
            case Trouble.TIMEOUT_BEFORE:
                return None
            case Trouble.THROTTLE:
                return _status(429, "throttled", {"Retry-After": f"{RETRY_AFTER_S:.0f}"})
            case Trouble.REFUSE:
                return _status(self.refusal, "refused by a test")
            case Trouble.LIE:
                return _status(200, "done, it says")
        if "watch=1" in handler.path:
            return lambda: self.stream(handler)
        given = self.forward(handler, body)
        return None if trouble is Trouble.TIMEOUT_AFTER else given

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

    def stream(self, handler: Handler) -> None:
        """A watch, passed on as it comes."""
        with self.lock:
            self.calls.append(Call(handler.command, handler.path, 200))
            forgotten = self.is_forgotten(handler.path)
        if forgotten:
            # As the API server puts it to who comes back after too long a time.
            status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
            line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            handler.say(200, {}, line)
            return
        connection, answer = self.ask(handler, b"")
        with self.lock:
            self.watches[connection] = handler.path
            if self.is_forgotten(handler.path):  # by now
                _shut(connection)
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
            with self.lock:
                del self.watches[connection]
                connection.close()

    def is_forgotten(self, path: str) -> bool:
        (version,) = parse_qs(urlsplit(path).query).get("resourceVersion", [""])
        return version.isdecimal() and int(version) < self.forgotten

    def watched(self, what: str) -> bool:
        """Somebody watches it now."""
        with self.lock:
            return any(f"/{what}?" in path for path in self.watches.values())

    def hang_up(self) -> None:
        """Every watch that is open loses its connection."""
        with self.lock:
            self._hang_up()

    def forget(self, newest: Callable[[], int]) -> None:
        """Every watch that is open loses its connection, and can't go on from where it was: each is told so once,
        as what it lists then is newer. `newest`: a version that none of them has heard of.
        """
        with self.lock:  # who comes back at once waits for it
            self._hang_up()
            self.forgotten = newest()

    def _hang_up(self) -> None:
        for connection in self.watches:
            _shut(connection)

    def forward(self, handler: Handler, body: bytes) -> Answer:
        connection, answer = self.ask(handler, body)
        try:
            given = answered(answer)
            for name, log in self.printed.items():
                if name in handler.path and "/log?" in handler.path and answer.status != 403:
                    return 200, {"Content-Type": "text/plain"}, log
            with self.lock:
                self.calls.append(Call(handler.command, handler.path, answer.status))
            return given
        finally:
            connection.close()

    def ask(self, handler: Handler, body: bytes) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        target = urlsplit(self.server)
        assert target.hostname
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(target.hostname, target.port, context=context, timeout=60)
        try:
            return connection, handler.pass_on(connection, body)
        except BaseException:
            connection.close()
            raise


def _shut(connection: http.client.HTTPSConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):  # the other side was faster
            connection.sock.shutdown(socket.SHUT_RDWR)


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    content = json.dumps({"kind": "Status", "status": "Failure", "code": code, "message": message}).encode()
    return code, {**(headers or {}), "Content-Type": "application/json"}, content
