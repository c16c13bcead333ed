"""`CommandProvider`: the machine port by programs of the user's. Published as kind `command` of `medevac.providers`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from activities.last_look import last_look
from activities.ports import NEEDS, MachineState, NotSent, Unreadable, Verb
from activities.program import Program
from activities.registry import ConfigurationError, complaints
from medevac.fleet.node import Capability, Machine, Node
from medevac.model import Model

POLL_S = 15.0
"""How often `proceed` is run while a proof is waited for."""
MANY = 4096
Name = Literal[
    "state", "reboot", "reinstall", "request", "terminate", "proceed", "release", "locate", "evidence", "check"
]
VERBS = {Verb.REBOOT: "reboot", Verb.REINSTALL: "reinstall", Verb.REQUEST: "request", Verb.TERMINATE: "terminate"}


class Options(Model):
    commands: dict[Name, tuple[str, ...]] = Field(min_length=1)
    """Program and arguments of each; no shell. What isn't there, the provider can't."""
    environment: tuple[str, ...] = ()
    """Names of variables that they are given, such as that of a token; besides them only PATH, HOME and LANG."""
    timeout_s: float = Field(30.0, gt=0, le=600)
    reboot_moves: bool = False
    """Their reboot is a stop and a start, which loses local disks: it asks people in any mode."""
    elsewhere: bool = False
    """They also make successors of others' machines: `state`, `request`, `proceed` and `release` are then told a
    machine without an id."""
    dry_run: bool = False
    """Programs that change something are not run."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if "state" not in self.commands:
            raise ValueError("`state` is needed: without it nothing can be proved")
        if any(not argv for argv in self.commands.values()):
            raise ValueError("a command is empty")
        if "request" in self.commands and "release" not in self.commands:
            raise ValueError("`request` needs a `release`: what never comes up is paid for until it is ended")
        return self


class Said(Model):
    """What `state` may say; what it doesn't know, it leaves out."""

    exists: bool
    power: Literal["on", "off", "unknown"] = "unknown"
    image_mark: str | None = Field(None, max_length=500)
    ready: bool = False
    successor_id: str | None = Field(None, max_length=500)
    successor_ready: bool = False


class CommandProvider:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._proceeded: dict[tuple[str, str, Verb], float] = {}

    # -- reading -----------------------------------------------------------------------------------------------

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """Those whose program is there."""
        can = {NEEDS[verb] for verb, name in VERBS.items() if self._there(name)}
        if self._there("state"):
            can.add(Capability.POWER_STATE)
        if self._there("evidence"):
            can.add(Capability.SERIAL)
        if self.options.reboot_moves and Capability.REBOOT in can:
            can.add(Capability.REBOOT_MOVES)
        return frozenset(can)

    def cannot_make(self, node: Node) -> str:
        if not self.options.elsewhere:
            return "its programs aren't said to make successors of others' machines (`elsewhere: true`)"
        return "" if self._there("request") else "it has no program for `request`"

    def state(self, node: Node, tag: str) -> MachineState:
        answer = self._program("state").read(_about("state", node, tag))
        try:
            said = Said.model_validate(answer)
        except ValidationError as error:
            raise Unreadable(f"{self.name}: state: {_first(error)}") from None
        return MachineState.model_validate(said.model_dump())

    def locate(self, machine_id: str) -> Machine | None:
        """None also where no program could tell."""
        if not self._there("locate"):
            return None
        answer = self._program("locate").read({"verb": "locate", "machine": {"id": machine_id}})
        if not answer.get("exists"):
            return None
        try:
            return Machine(
                provider=self.name, id=machine_id, serial=answer.get("serial"), virtual=answer.get("virtual", True)
            )
        except ValidationError as error:
            raise Unreadable(f"{self.name}: locate: {_first(error)}") from None

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        if self._there("evidence"):
            pieces = self._program("evidence").read(_about("evidence", node, incident)).get("pieces") or {}
            if not isinstance(pieces, dict):
                raise Unreadable(f"{self.name}: evidence: `pieces` is no mapping of names to texts")
            for name, text in pieces.items():
                yield str(name), str(text).encode()

    def missing_rights(self) -> list[str]:
        """Programs that aren't there, and what `check` says. Raises `Unreadable`."""
        missing = [
            f"{argv[0]}, for {name}, is not there or can't be run"
            for name, argv in self.options.commands.items()
            if not self._there(name)
        ]
        if self._there("check"):
            lacks = self._program("check").read({"verb": "check"}).get("missing") or []
            missing += [str(one) for one in lacks] if isinstance(lacks, list) else [str(lacks)]
        return missing

    # -- acting ------------------------------------------------------------------------------------------------

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        if verb not in VERBS or not self._there(VERBS[verb]):
            raise NotSent(f"{self.name} can't {verb} {node.name}", final=True)
        if not node.machine.id and (verb is not Verb.REQUEST or self.cannot_make(node)):
            raise NotSent(f"{self.name} can't {verb} a machine that isn't its own", final=True)
        program = self._program(VERBS[verb])
        if self.options.dry_run:
            raise NotSent(f"dry run, nothing was done: it would be {' '.join(program.argv)}", final=True)
        last_look()
        answer: JsonValue = program.write(_about(VERBS[verb], node, tag)).get("answer", "done")
        return answer

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        now, key = time.monotonic(), (node.machine.id, tag, verb)
        if self.options.dry_run or not self._there("proceed"):
            return None
        if now - self._proceeded.get(key, float("-inf")) < POLL_S:
            return None
        if len(self._proceeded) > MANY:
            self._proceeded.clear()
        last_look()
        self._proceeded[key] = now
        did = self._program("proceed").write({**_about("proceed", node, tag), "of": verb.value}).get("did")
        return str(did) if did else None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        if not tag:
            raise NotSent("nothing is released without the tag of what asked for it", final=True)
        if self.options.dry_run or "release" not in self.options.commands:
            return ()
        last_look()
        answer = self._program("release").write({**_about("release", node, tag), "joined": sorted(joined)})
        released = answer.get("released") or []
        return tuple(str(one) for one in released) if isinstance(released, list) else (str(released),)

    # -- parts -------------------------------------------------------------------------------------------------

    def _there(self, name: str) -> bool:
        argv = self.options.commands.get(name)  # type: ignore[call-overload]
        return argv is not None and shutil.which(argv[0]) is not None

    def _program(self, name: str) -> Program:
        argv: tuple[str, ...] = self.options.commands[name]  # type: ignore[index]
        return Program(f"{self.name}: {name}", argv, self.options.environment, self.options.timeout_s)


def _about(verb: str, node: Node, tag: str) -> dict[str, JsonValue]:
    """What a program is told: whose machine it is, and the incident as its tag."""
    machine = node.machine
    told: dict[str, JsonValue] = {
        "id": machine.id, "serial": machine.serial, "boot_id": machine.boot_id, "image": machine.image,
        "reserved": machine.reserved,
    }  # fmt: skip
    return {
        "verb": verb,
        "tag": tag,
        "machine": told,
        "node": node.name,
        "cluster": node.cluster,
        "pool": node.pool,
        "sku": node.sku,
        "topology": dict(node.topology),
    }


def _first(error: ValidationError) -> str:
    one = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, one['loc']))}: {one['msg']}"


def make(name: str, options: dict[str, Any]) -> CommandProvider:
    """Raises `ConfigurationError`."""
    try:
        return CommandProvider(name, Options.model_validate(options))
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"provider {name}: {said}") from None
