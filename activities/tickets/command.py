"""Tickets by the user's own program: one process a verb, JSON in and out.

Standard input: `{"verb": ..., "key": ..., ...}`. Standard output: one JSON object. Exit status, as in sysexits:
0 done · 75 surely not done, may be tried again (`{"retry_after_s": 30}`) · 77 not allowed, as wrong credentials ·
64 to 78 otherwise surely not done, and never will be · anything else, or no answer in time: nobody knows.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from activities.failures import redact
from activities.ports import NotAllowed, NotSent, Thread, TicketRef, Unclear, Unreadable
from activities.tickets.options import TicketOptions

TEMPORARY, NO_PERMISSION = 75, 77
SURELY_NOT = range(64, 79)
MOST_OUTPUT = 1_000_000


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
        try:
            status, answer, said = self._run(verb, given)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unreadable(f"{self.name}: {verb}: {_why(error)}") from None
        if status == 0:
            return answer
        kind = NotAllowed if status == NO_PERMISSION else Unreadable
        raise kind(f"{self.name}: {verb} ended with {status}: {said}")

    def _write(self, verb: str, **given: str) -> Mapping[str, Any]:
        try:
            status, answer, said = self._run(verb, given)
        except OSError as error:
            raise NotSent(f"{self.name}: {verb}: {_why(error)}", final=True) from None
        except (subprocess.TimeoutExpired, Unreadable) as error:
            raise Unclear(f"{self.name}: {verb}: {_why(error)}") from None
        if status == 0:
            return answer
        said = f"{self.name}: {verb} ended with {status}: {said}"
        if status == TEMPORARY:
            wish = answer.get("retry_after_s")
            raise NotSent(said, retry_after_s=float(wish) if isinstance(wish, int | float) else None)
        if status in SURELY_NOT:
            raise NotSent(said, final=True)
        raise Unclear(said)

    def _run(self, verb: str, given: Mapping[str, str]) -> tuple[int, Mapping[str, Any], str]:
        """Exit status, answer, and what it said of an error."""
        options = self._options
        names = {"PATH", "HOME", "LANG", *options.environment}
        done = subprocess.run(  # noqa: S603 - the installation's own program, no shell
            options.command,
            input=json.dumps({"verb": verb, **given}).encode(),
            capture_output=True,
            timeout=options.timeout_s,
            env={name: value for name, value in os.environ.items() if name in names},
            check=False,
        )
        said = redact(done.stderr.decode("utf-8", "replace").strip(), 200)
        try:
            answer = json.loads(done.stdout[:MOST_OUTPUT] or b"{}")
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            return done.returncode, answer, said
        if done.returncode == 0:
            raise Unreadable("its answer is no JSON object")
        return done.returncode, {}, said

    def _ref(self, answer: Mapping[str, Any]) -> TicketRef:
        return TicketRef(system=self.name, id=str(answer["id"])[:200], url=str(answer.get("url") or "")[:500])


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    return redact(str(error), 200)


def make(name: str, options: dict[str, Any]) -> CommandTickets:
    return CommandTickets(name, Options.model_validate(options))
