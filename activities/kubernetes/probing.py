"""Commands of the configuration file that tell when a job's last complete checkpoint was made."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime

from medevac.fleet.node import Workload

log = logging.getLogger(__name__)
LIMIT = 1024
"""Bytes of output that are looked at."""
INHERITED = ("PATH", "HOME", "LANG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The worker's other variables are none of its business: secrets are among them."""


def probe(commands: Mapping[str, tuple[str, ...]], name: str, workload: Workload, timeout_s: float) -> datetime | None:
    """The policy chooses a command by its name; what is run, and with which rights, is the operator's.

    No shell: whatever a job is called stays one argument. Only exit status 0 with one line, a past time with a zone,
    counts as a complete checkpoint.
    """
    command = commands.get(name)
    if not command:
        log.warning("checkpoint probe %r is not configured; known: %s", name, ", ".join(sorted(commands)) or "none")
        return None
    namespace, _, rest = workload.name.partition("/")
    said = {"namespace": namespace, "kind": workload.kind, "name": rest.partition("/")[2] or rest}
    argv = [_filled(part, said) for part in command]
    with tempfile.TemporaryFile() as output:
        try:
            # In a group of its own: what it has started ends with it.
            running = subprocess.Popen(  # noqa: S603 - argv of the operator's, no shell
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True,
                env={key: os.environ[key] for key in INHERITED if key in os.environ},
            )  # fmt: skip
        except OSError as error:
            log.warning("checkpoint probe %s: %s", name, error)
            return None
        try:
            status = running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            log.warning("checkpoint probe %s of %s took longer than %g s", name, workload.name, timeout_s)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        if status != 0:
            log.info("checkpoint probe %s of %s ended with %s", name, workload.name, status)
            return None
        output.seek(0)
        return past(output.read(LIMIT).decode(errors="replace").strip(), datetime.now(UTC))


def past(text: str, now: datetime) -> datetime | None:
    """A time without a zone, or in the future, proves nothing."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None and at <= now else None


def _filled(part: str, said: Mapping[str, str]) -> str:
    """Each placeholder once and by itself: what is put in is never looked at again."""
    for key, value in said.items():
        if part == f"{{{key}}}":
            return value
    return part
