"""BMCs: sushy-tools' emulator, whose machines it plays, and a proxy before it that counts and makes calls go wrong.

What the emulator lacks is added there: boots that are armed once, boot progress, event logs, the time of a reset.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
from sushy_tools.emulator.memoize import PersistentDict

from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration.served import Answer, Handler, Served
from worker.children import free_port

USER, PASSWORD = "admin", "correct horse"
SYSTEMS = "/redfish/v1/Systems/"
DOWN = ("GracefulShutdown", "ForceOff")
LOG = "/redfish/v1/Systems/{}/LogServices"


class Emulator:
    """One for all tests: a machine is a row of its state, which the tests write too."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        (folder / "htpasswd").write_bytes(f"{USER}:".encode() + bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)))
        (folder / "emulator.conf").write_text(
            "SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_FAKE_SYSTEMS = []\n"
            f"SUSHY_EMULATOR_STATE_DIR = {str(folder)!r}\nSUSHY_EMULATOR_AUTH_FILE = {str(folder / 'htpasswd')!r}\n"
        )
        self.state = PersistentDict()
        self.state.make_permanent(str(folder), "fakedriver")
        command = [
            str(Path(sys.executable).with_name("sushy-emulator")), "--config", str(folder / "emulator.conf"),
            "--fake", "--interface", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip
        with (folder / "emulator.log").open("wb") as log:
            environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._wait(folder / "emulator.log")

    def _wait(self, log: Path) -> None:
        for _ in range(2_400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.1).close()
                return
            except OSError:
                assert self.process.poll() is None, log.read_text()
                time.sleep(0.1)
        raise AssertionError(log.read_text())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@dataclass(frozen=True)
class Call:
    kind: str
    """`restart`, `install` (a restart that was armed), `off`, or the action's name."""
    machine: str
    how: str = ""


@dataclass
class Script:
    kind: str
    trouble: Trouble | Callable[[Call, str], bool]
    times: int = 1
    status: int = 400


@dataclass
class Bmcs(Served):
    """One address for all: each machine is a system of its own below it."""

    emulator: Emulator
    calls: list[Call] = field(default_factory=list)
    effects: list[Call] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By machine: what its BMC says beside what the emulator says."""
    once: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By machine: one-time boots, and from what."""
    heard: Callable[[Call], None] = lambda call: None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def respond(self, handler: Handler, body: bytes) -> Answer | None:
        given = json.loads(body) if body else {}
        forward = lambda: handler.forward("127.0.0.1", self.emulator.port, body)  # noqa: E731
        return self.answer(handler.command, handler.path, given or {}, forward)

    # -- machines ----------------------------------------------------------------------------------------------

    def rack(self) -> str:
        """A new machine that runs; its UUID."""
        id = str(uuid.uuid4())
        self.emulator.state[id] = {"uuid": id, "name": f"m-{id}", "power_state": "On", "nics": []}
        self.more[id] = {"SerialNumber": f"SN-{id[:8]}"}
        return id

    def power(self, id: str) -> str:
        return str(self.emulator.state[id]["power_state"])

    def turn(self, id: str, state: str) -> None:
        self.emulator.state[id] = {**self.emulator.state[id], "power_state": state, "pending_power": None}

    def hurry(self) -> None:
        """Power that was to change some seconds later has changed."""
        for id in list(self.emulator.state):
            if pending := self.emulator.state[id].get("pending_power"):
                self.turn(id, "Off" if pending["power_state"] == "Off" else "On")

    def script(
        self, kind: str, trouble: Trouble | Callable[[Call, str], bool], times: int = 1, status: int = 400
    ) -> None:
        with self._lock:
            self.scripts.append(Script(kind, trouble, times, status))

    def count(self, kind: str) -> int:
        return sum(call.kind == kind for call in self.calls)

    def done(self, kind: str) -> list[Call]:
        return [call for call in self.effects if call.kind == kind]

    # -- one call ----------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, body: dict[str, Any], forward: Callable[[], Answer]) -> Answer | None:
        """None = the connection is dropped."""
        machine = found[1] if (found := re.match(rf"{SYSTEMS}([^/?]+)", path)) else ""
        if method == "GET":
            return self._read(path, machine, forward)
        call = self._call(path, machine, body)
        with self._lock:
            self.calls.append(call)
            script = next((one for one in self.scripts if one.times and one.kind == call.kind), None)
            if script:
                script.times -= 1
        how = script.trouble if script else None
        if how is Trouble.TIMEOUT_BEFORE or (callable(how) and how(call, "before")):
            return None
        if how is Trouble.THROTTLE:
            return error(503, "Base.1.8.ServiceTemporarilyUnavailable", {"Retry-After": f"{RETRY_AFTER_S:.0f}"})
        if how is Trouble.REFUSE and script:
            return error(script.status, "Base.1.8.ActionNotSupported")
        if how is Trouble.LIE:
            return 204, {}, b""
        with self._lock:
            given = self._carry_out(call, body, forward)
        return None if how is Trouble.TIMEOUT_AFTER or (callable(how) and how(call, "after")) else given

    def _call(self, path: str, machine: str, body: dict[str, Any]) -> Call:
        how = str(body.get("ResetType", ""))
        if path.endswith("ComputerSystem.Reset"):
            armed = machine in self.once and how not in DOWN
            return Call("off" if how in DOWN else "install" if armed else "restart", machine, how)
        return Call(path.rsplit(".", 1)[-1] if "/Actions/" in path else "Boot", machine)

    def _carry_out(self, call: Call, body: dict[str, Any], forward: Callable[[], Answer]) -> Answer:
        if call.kind == "Boot":
            boot = body["Boot"]
            if boot.get("BootSourceOverrideEnabled") == "Disabled":
                self.once.pop(call.machine, None)
                return 204, {}, b""
            if boot.get("BootSourceOverrideEnabled") == "Once":
                self.once[call.machine] = ("Once", boot["BootSourceOverrideTarget"])
        was = self.power(call.machine) if call.kind == "off" else ""
        given = forward()
        if given[0] < 300 and (call.kind != "off" or was != "Off"):
            self.effects.append(call)
            self.heard(call)
            if call.kind in ("install", "restart"):
                self.once.pop(call.machine, None)
        return given

    def _read(self, path: str, machine: str, forward: Callable[[], Answer]) -> Answer | None:
        if path.startswith("/images/os.iso"):  # asked for by the emulator, in the middle of a call
            return 200, {}, b"an image"
        self.reads.append(path)
        with self._lock:
            script = next((one for one in self.scripts if one.times and one.kind == "read"), None)
            if script and machine:
                script.times -= 1
                return error(script.status, "Base.1.8.GeneralError") if script.trouble is Trouble.REFUSE else None
        if "/LogServices" in path:
            return self._log(path, machine)
        status, headers, content = forward()
        if path == f"{SYSTEMS}{machine}" and status == 200:
            said = json.loads(content)
            enabled, target = self.once.get(machine, ("Disabled", "None"))
            said["Boot"] |= {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}
            said |= {"LogServices": {"@odata.id": LOG.format(machine)}} | self.more.get(machine, {})
            content = json.dumps(said).encode()
        return status, headers, content

    def _log(self, path: str, machine: str) -> Answer:
        base, what = LOG.format(machine), path.partition("?")[0].rsplit("/", 1)[-1]
        said: dict[str, Any] = {
            "LogServices": {"Members": [{"@odata.id": f"{base}/SEL"}]},
            "SEL": {"Entries": {"@odata.id": f"{base}/SEL/Entries"}},
            "Entries": {"Members": [{"Id": str(n), "Message": f"event {n}"} for n in range(300)]},
        }[what]
        return 200, {"Content-Type": "application/json"}, json.dumps(said).encode()


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    said = {"MessageId": message, "Message": "said by a test", "Severity": "Critical"}
    body = {"error": {"code": message, "message": "said by a test", "@Message.ExtendedInfo": [said]}}
    return status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(body).encode()
