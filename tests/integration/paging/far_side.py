"""PagerDuty's Events API v2 and Opsgenie's alerts API, as far as we call them, and a plain address for the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
GENIE_KEY = "6f1d2a34-1111-2222-3333-444455556666"


@dataclass
class FarSide:
    url: str = ""
    throttled: int = 0
    """So many calls more are answered 429."""
    failing: bool = False
    open: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Key or alias → what stands."""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.calls.append((path, body))
        if self.throttled:
            self.throttled -= 1
            return 429, {"message": "Throttled"}
        if self.failing:
            return 503, {"message": "down"}
        where = urlsplit(path)
        if where.path == "/v2/enqueue":
            return self._event(body)
        if where.path.startswith("/v2/alerts"):
            return self._alert(where.path, parse_qs(where.query), headers, body)
        return 200, {}

    def _event(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        problems = []
        if body.get("routing_key") != ROUTING_KEY:
            problems.append(f"Invalid routing key {body.get('routing_key')}")
        action, payload, key = body.get("event_action"), body.get("payload", {}), body.get("dedup_key", "")
        if action not in ("trigger", "acknowledge", "resolve"):
            problems.append("'event_action' is invalid")
        if len(key) > 255 or (action != "trigger" and not key):
            problems.append("'dedup_key' is missing or too long")
        if action == "trigger":
            problems += [f"'payload.{name}' is missing" for name in ("summary", "source") if not payload.get(name)]
            if len(payload.get("summary", "")) > 1024:
                problems.append("'payload.summary' is too long")
            if payload.get("severity") not in ("critical", "warning", "error", "info"):
                problems.append("'payload.severity' is invalid")
        if problems:
            return 400, {"status": "invalid event", "message": "Event object is invalid", "errors": problems}
        if action == "trigger":
            self.open[key] = body
        elif action == "resolve":
            self.open.pop(key, None)
        return 202, {"status": "success", "message": "Event processed", "dedup_key": key}

    def _alert(
        self, path: str, query: dict[str, list[str]], headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if headers.get("authorization") != f"GenieKey {GENIE_KEY}":
            return 401, {"message": "Could not authenticate"}
        if path == "/v2/alerts":
            if not body.get("message") or len(body["message"]) > 130:
                return 422, {
                    "message": "Request body is not processable",
                    "errors": {"message": "is empty or too long"},
                }
            self.open[body["alias"]] = body
        else:
            alias, _, verb = path.removeprefix("/v2/alerts/").rpartition("/")
            if verb != "close" or query.get("identifierType") != ["alias"]:
                return 404, {"message": "not found"}
            self.open.pop(unquote(alias), None)
        return 202, {"result": "Request will be processed", "took": 0.1, "requestId": "1"}


@contextmanager
def far_side() -> Iterator[FarSide]:
    far = FarSide()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = far.answer(self.path, headers, json.loads(raw or b"{}"))
            sent = json.dumps(answer).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "7")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    far.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield far
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
