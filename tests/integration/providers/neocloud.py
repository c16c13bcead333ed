"""A small cloud of our own for the command provider: its API, its machines, and calls that go wrong in chosen ways."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration.served import Answer, Handler, Served

TOKEN = "a-token-of-the-tests"
Said = tuple[int, dict[str, str], dict[str, Any]]


@dataclass
class Neocloud(Served):
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    """`reboot`, `reinstall`, `request`, `terminate`, `read`."""
    effects: list[tuple[str, str]] = field(default_factory=list)
    scripts: list[tuple[str, Trouble]] = field(default_factory=list)
    given: list[dict[str, Any]] = field(default_factory=list)
    heard: Callable[[str, str], None] = lambda what, id: None
    _keys: dict[str, str] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def respond(self, handler: Handler, body: bytes) -> Answer | None:
        headers, given = dict(handler.headers), json.loads(body) if body else {}
        if (answer := self.answer(handler.command, handler.path, headers, given)) is None:
            return None
        status, more, said = answer
        return status, more, json.dumps(said).encode()

    def launch(self, tag: str = "") -> str:
        id = f"m-{next(self._numbers)}"
        self.machines[id] = {
            "id": id, "status": "running", "type": "h100x8", "zone": "a", "tag": tag, "installed_at": f"t-{id}",
        }  # fmt: skip
        return id

    def answer(self, method: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> Said | None:
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {}, {"error": "who are you?"}
        what = _what(method, path, body)
        with self._lock:
            self.calls.append(what)
            self.given.append(body)
            script = next((one for one in self.scripts if one[0] == what), None)
            if script:
                self.scripts.remove(script)
            match script[1] if script else None:
                case Trouble.TIMEOUT_BEFORE:
                    return None
                case Trouble.REFUSE:
                    return 422, {}, {"error": "not this one"}
                case Trouble.THROTTLE:
                    return 429, {"Retry-After": f"{RETRY_AFTER_S:.0f}"}, {"error": "slowly"}
                case Trouble.LIE:
                    return 202, {}, {"id": "m-0"}
                case Trouble.TIMEOUT_AFTER:
                    self._carry_out(what, path, headers, body)
                    return None
                case _:
                    return self._carry_out(what, path, headers, body)

    def _carry_out(self, what: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> Said:
        place, query = urlsplit(path).path.strip("/").split("/"), parse_qs(urlsplit(path).query)
        if what == "request":
            key = headers["Idempotency-Key"]
            if key not in self._keys:
                self._keys[key] = self.launch(body["tag"])
                self._effect(what, self._keys[key])
            return 201, {}, {"id": self._keys[key]}
        if len(place) == 2:
            wanted = [one for one in self.machines.values() if one["tag"] == query["tag"][0]]
            return 200, {}, {"machines": [one for one in wanted if one["status"] not in ("terminating", "terminated")]}
        found = self.machines.get(place[2])
        if found is None or (what != "read" and found["status"] == "terminated"):
            return 404, {}, {}
        if what == "read":
            return 200, {}, {"text": "boot"} if place[-1] == "console" else found
        if what == "terminate" and found["status"] == "terminating":
            return 202, {}, {}
        if what == "terminate":
            found["status"] = "terminating"
        self._effect(what, place[2])
        return 202, {}, {}

    def _effect(self, what: str, id: str) -> None:
        self.effects.append((what, id))
        self.heard(what, id)


def _what(method: str, path: str, body: dict[str, Any]) -> str:
    if path.endswith("/actions"):
        return str(body["type"])
    return {"GET": "read", "POST": "request", "DELETE": "terminate"}[method]
