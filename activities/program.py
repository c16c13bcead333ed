"""One run of the installation's own program: JSON in and out, bounded in time and size, no shell.

Its exit status, as in sysexits: 0 done · 75 surely not done, may be tried again (`{"retry_after_s": 30}`) · 77 not
allowed, as wrong credentials · 64 to 78 otherwise surely not done, and never will be · anything else, or no answer in
time: nobody knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from activities.failures import redact
from activities.ports import NotAllowed, NotSent, Unclear, Unreadable

TEMPORARY, NO_PERMISSION = 75, 77
SURELY_NOT = range(64, 79)
MOST_OUTPUT = 1_000_000
MOST_SAID = 2_000
"""Of its errors."""
INHERITED = ("PATH", "HOME", "LANG")
"""The worker's other variables are none of its business: secrets are among them."""
LOOK_S = 0.1
"""How often its output's size is looked at."""
END_S = 1.0
"""What an ended program may take to be gone; one that has become another user's can't be ended."""
SECRET = re.compile(r"token|key|secret|pass|pwd|cred|auth", re.IGNORECASE)
"""In the name of a variable: what it holds is blanked wherever the program says it."""
SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    answer: dict[str, Any]
    said: str
    """Of an error, in its own words."""


@dataclass(frozen=True, slots=True)
class Program:
    """`who` is named in errors."""

    who: str
    argv: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """Names of variables that it is given beside `INHERITED`."""
    timeout_s: float = 30.0

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Raises `Unreadable`, also as `NotAllowed`."""
        try:
            ended = self._run(given)
        except (OSError, _Broken) as error:
            raise Unreadable(f"{self.who}: {_why(error)}") from None
        if ended.status == 0:
            return ended.answer
        kind = NotAllowed if ended.status == NO_PERMISSION else Unreadable
        raise kind(f"{self.who} ended with {ended.status}: {ended.said}")

    def write(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Raises `NotSent` or `Unclear`."""
        try:
            ended = self._run(given)
        except OSError as error:  # it was never started
            raise NotSent(f"{self.who}: {_why(error)}", final=True) from None
        except _Broken as error:
            raise Unclear(f"{self.who}: {_why(error)}") from None
        if ended.status == 0:
            return ended.answer
        said = f"{self.who} ended with {ended.status}: {ended.said}"
        if ended.status == TEMPORARY:
            raise NotSent(said, retry_after_s=_seconds(ended.answer.get("retry_after_s")))
        if ended.status in SURELY_NOT:
            raise NotSent(said, final=True)
        raise Unclear(said)

    def _run(self, given: Mapping[str, Any]) -> Ended:
        names = {*INHERITED, *self.environment}
        env = {name: value for name, value in os.environ.items() if name in names}
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            said.write(json.dumps(given).encode())
            said.seek(0)
            # In a group of its own: what it has started ends with it.
            running = subprocess.Popen(  # noqa: S603 - the installation's own program, no shell
                self.argv, stdin=said, stdout=out, stderr=err, start_new_session=True, env=env
            )
            try:
                status = self._wait(running, (out, err))
                words, answer = _blanked(_text(err, MOST_SAID), env), _blanked(_text(out, MOST_OUTPUT), env)
            except OSError as error:
                raise _Broken(_why(error)) from None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(END_S)
            return Ended(status, _object(status, answer), redact(words.decode("utf-8", "replace").strip(), 200))

    def _wait(self, running: subprocess.Popen[bytes], outputs: Sequence[IO[bytes]]) -> int:
        until = time.monotonic() + self.timeout_s
        while True:
            if any(os.fstat(one.fileno()).st_size > MOST_OUTPUT for one in outputs):
                raise _Broken(f"it says more than {MOST_OUTPUT} bytes")
            left = until - time.monotonic()
            if left <= 0:
                raise _Broken(f"no answer within {self.timeout_s:g} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return running.wait(min(LOOK_S, left))


class _Broken(Exception):
    """It was started, and nobody knows what came of it."""


def _object(status: int, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if status == 0:
        raise _Broken("its answer is no JSON object")
    return {}


def _text(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)


def _blanked(raw: bytes, env: Mapping[str, str]) -> bytes:
    for name, value in env.items():
        if SECRET.search(name) and len(value) >= SHORTEST_SECRET:
            raw = raw.replace(os.fsencode(value), b"[redacted]")
    return raw


def _seconds(said: object) -> float | None:
    return min(3600.0, float(said)) if isinstance(said, int | float) and said > 0 else None


def _why(error: Exception) -> str:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return redact(text, 200)
