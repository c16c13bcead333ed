"""Tickets by the user's own program: one process a verb, run and judged as `activities/program.py` says.

Standard input: `{"verb": ..., "key": ..., ...}`. Standard output: one JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from activities.ports import Thread, TicketRef, Unclear, Unreadable
from activities.program import Program
from activities.tickets.options import TicketOptions


class Options(TicketOptions):
    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments; no shell."""
    environment: tuple[str, ...] = ()
    """Names of variables that the program is given; besides them only PATH, HOME and LANG."""


class CommandTickets:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.share = options.share
        self._options = options

    def find(self, key: str) -> TicketRef | None:
        answer = self._read("find", key=key)
        return self._ref(answer) if answer.get("id") else None

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        answer = self._write("open", key=key, title=title, body=body, provider=provider)
        if not answer.get("id"):
            raise Unclear(f"{self.name}: its program said done and named no ticket")
        return self._ref(answer)

    def thread(self, ref: TicketRef, key: str) -> Thread:
        try:
            return Thread.model_validate(self._read("thread", key=key, id=ref.id))
        except ValidationError as error:
            first = error.errors()[0]
            raise Unreadable(f"{self.name}: thread: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    def comment(self, ref: TicketRef, key: str, token: str, text: str) -> None:
        self._write("comment", key=key, id=ref.id, token=token, text=f"{text}\n\n[{token}]")

    def close(self, ref: TicketRef, key: str) -> None:
        self._write("close", key=key, id=ref.id)

    def missing_rights(self) -> list[str]:
        """Asks the program by the verb `check`. Raises `Unreadable`."""
        lacks = self._read("check").get("missing", [])
        return [str(one) for one in lacks] if isinstance(lacks, list) else [str(lacks)]

    # -- one process -------------------------------------------------------------------------------------------

    def _read(self, verb: str, **given: str) -> Mapping[str, Any]:
        return self._program(verb).read({"verb": verb, **given})

    def _write(self, verb: str, **given: str) -> Mapping[str, Any]:
        return self._program(verb).write({"verb": verb, **given})

    def _program(self, verb: str) -> Program:
        options = self._options
        return Program(f"{self.name}: {verb}", options.command, options.environment, options.timeout_s)

    def _ref(self, answer: Mapping[str, Any]) -> TicketRef:
        return TicketRef(system=self.name, id=str(answer["id"])[:200], url=str(answer.get("url") or "")[:500])


def make(name: str, options: dict[str, Any]) -> CommandTickets:
    return CommandTickets(name, Options.model_validate(options))
