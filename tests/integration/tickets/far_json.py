"""Far sides that speak JSON over HTTP: one server, what it is asked for, and misfortunes on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration import served
from tests.integration.served import Handler, Served


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = tuple[int, Any]


@dataclass
class FarJson(Served):
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

    def respond(self, handler: Handler, body: bytes) -> served.Answer | None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, parts.path, query, headers, json.loads(body) if body else None)
        if (given := self.answer(asked)) is None:
            return None
        status, more, said = given
        content = b"" if status == 204 else json.dumps(said).encode()
        return status, {"Content-Type": "application/json", **more}, content

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
