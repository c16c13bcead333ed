"""Inventory: what its owner knows about a machine and its cluster doesn't tell. Pure; joined by node, id or serial."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, StringConstraints

from medevac.fleet.names import names_in
from medevac.fleet.node import Capability, Node
from medevac.model import Model

Word = Annotated[str, StringConstraints(strip_whitespace=True, max_length=253, pattern=r"^[^\s\x00-\x1f]*$")]
ACCOUNT_LABEL = "medevac.dev/account"
_BMC = re.compile(r"^(?:https?://)?(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?(?:/[!-~]*)?$")
_REFERENCE = re.compile(
    r"^(?:file:(?P<file>/[^\s]+)|env:(?P<env>[A-Za-z_][A-Za-z0-9_]*)|secret:(?P<secret>[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*))$"
)


class InventoryError(ValueError):
    """One line an error: `file:line: what; what to do`."""


class Source(StrEnum):
    FILE = "file"
    """Path of a mounted file."""
    ENV = "env"
    """Name of an environment variable."""
    SECRET = "secret"  # noqa: S105 - the kind of reference, not a secret
    """Kubernetes Secret, `namespace/name`."""


class Reference(NamedTuple):
    """Where a credential is found; never the credential."""

    source: Source
    name: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Raises `ValueError`, without the text: it may be a password that was written here by mistake."""
        match = _REFERENCE.match(text)
        if match is None:
            raise ValueError("is no reference; write `file:/path`, `env:NAME` or `secret:namespace/name`")
        source = Source(str(match.lastgroup))
        return cls(source, match[source.value])

    def __str__(self) -> str:
        return f"{self.source.value}:{self.name}"


class Record(Model):
    """One machine, as one row says or several together. Empty = not said."""

    origins: tuple[str, ...] = Field(min_length=1)
    """`file:line` of each row."""
    cluster: Word = ""
    node: Word = ""
    provider_id: Word = ""
    serial: Word = ""
    bmc: Word = ""
    """Address of its management controller: a host, or a URL."""
    bmc_credential: Reference | None = None
    rack: Word = ""
    pdu: Word = ""
    switch: Word = ""
    gpus: tuple[Word, ...] = ()
    """UUIDs and serials of its GPUs."""
    names: tuple[Word, ...] = ()
    """What else senders call it."""
    account: Word = ""
    """Of the cloud."""
    role: Word = ""
    """ARN of the role by which that account is reached."""
    support: Word = ""
    """Support contract."""
    warranty: date | None = None
    """Its last day."""

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """What joins it to a node, and rows to each other."""
        found = {
            "node": self.node and f"{self.cluster}/{self.node}",
            "id": _key(self.provider_id),
            "serial": self.serial,
        }
        return tuple((kind, value.lower()) for kind, value in found.items() if value)

    @property
    def where(self) -> str:
        return " and ".join(self.origins)

    @property
    def bmc_host(self) -> str:
        match = _BMC.match(self.bmc)
        return match["host"].strip("[]").lower() if match else ""

    def merged(self, other: Self) -> Self:
        """Raises `InventoryError` where the two contradict each other."""
        mine = self.model_dump(exclude={"origins"})
        theirs = other.model_dump(exclude={"origins"})
        for name, value in theirs.items():
            if value and mine[name] and _alike(name, value) != _alike(name, mine[name]):
                raise InventoryError(
                    f"{other.origins[0]}: `{name}` contradicts {self.where}: {_shown(value)} and {_shown(mine[name])}"
                    " for one machine; correct one of them"
                )
            mine[name] = mine[name] or value
        return self.model_copy(update={**mine, "origins": (*self.origins, *other.origins)})


class Joined(NamedTuple):
    """What is known about one node; `trouble` says why nothing may be believed."""

    record: Record | None
    trouble: str = ""


class Inventory:
    """Records of all files. Raises `InventoryError` for what contradicts itself or could be two machines."""

    def __init__(self, records: Iterable[Record] = (), clusters: Sequence[str] = ()) -> None:
        self.records, self._by_key = _united(_placed(records, clusters))
        _unique(self.records)

    def __bool__(self) -> bool:
        return bool(self.records)

    def join(self, node: Node) -> Joined:
        """Rows that speak of one node by different keys complement each other, unless they contradict."""
        machine = node.machine
        keys = (
            ("node", f"{node.cluster}/{node.name}"),
            ("id", machine.id),
            ("id", last(machine.id)),
            ("serial", machine.serial or ""),
        )
        found = dict.fromkeys(n for kind, name in keys if (n := self._by_key.get((kind, name.lower()))) is not None)
        told = Record(
            origins=(f"{node.cluster}/{node.name} itself",),
            cluster=node.cluster, node=node.name, provider_id=last(machine.id), serial=machine.serial or "",
        )  # fmt: skip
        try:
            known = told
            for n in found:
                known = self.records[n].merged(known) if known is told else known.merged(self.records[n])
        except InventoryError as error:
            return Joined(None, str(error))
        return Joined(known if found else None)

    def enrich(self, node: Node) -> Node:
        """With what its cluster doesn't tell: the cluster's own word stands."""
        record = self.join(node).record
        if record is None:
            return node
        places = {name: value for name in ("rack", "pdu", "switch") if (value := getattr(record, name))}
        names = (record.serial, record.bmc_host, *record.gpus, *record.names)
        labels = {ACCOUNT_LABEL: record.account} if record.account else {}
        return node.model_copy(
            update={
                "machine": node.machine.model_copy(update={"serial": node.machine.serial or record.serial or None}),
                "topology": places | node.topology,
                "labels": labels | node.labels,
                "gpu_ids": tuple(dict.fromkeys((*node.gpu_ids, *record.gpus))),
                "aliases": (*node.aliases, *(name for name in names if name and name not in node.aliases)),
            }
        )


def lacking(node: Node, joined: Joined, rungs: Iterable[str], can: Iterable[Capability], today: date) -> list[str]:
    """What the node's ladder needs and nobody knows, in words. `node` is enriched; `can`: what its adapters can do."""
    rungs, able = set(rungs), {capability.value for capability in can}
    record, bare = joined.record, not node.machine.virtual
    found = [joined.trouble] if joined.trouble else []
    for rung in ("reboot", "reinstall"):
        if rung in rungs and rung not in able and bare and not (record and record.bmc):
            found.append(f"no BMC address (`bmc`), though its ladder has {rung} and nothing else here can do it")
        elif rung in rungs and rung not in able and bare:
            found.append(f"its ladder has {rung}, and no adapter here can do it")
    if record and record.bmc and record.bmc_credential is None:
        found.append("no reference to its BMC's credential (`bmc_credential`)")
    if "rack" not in node.topology:
        found.append("no rack: all such nodes share one budget")
    if "rma" in rungs:
        if not node.machine.serial:
            found.append("no serial, though its ladder has rma")
        if not (record and record.support):
            found.append("no support contract (`support`), though its ladder has rma")
        if record and record.warranty and record.warranty < today:
            found.append(f"its warranty ended on {record.warranty}")
    return found


def checked_bmc(text: str) -> str:
    """Raises `ValueError`. A name and password inside the address would end in logs."""
    if "@" in text:
        raise ValueError("holds a user or password; give the address alone, and the credential in `bmc_credential`")
    if text and not _BMC.match(text):
        raise ValueError("is no address; write a host, or https://host")
    return text


def last(provider_id: str) -> str:
    """`i-0abc` of `aws:///us-east-1a/i-0abc`; the whole where its end alone names no machine."""
    return next(iter(names_in(provider_id)), provider_id.rstrip("/"))


def _key(provider_id: str) -> str:
    """A VM's name is one in its resource group, or its zone, alone: with them said, no other's joins."""
    scheme, _, path = provider_id.rpartition("://")
    if scheme.lower() == "gce" or "/virtualmachines/" in path.lower():
        return path.strip("/")
    return last(provider_id)


def _placed(records: Iterable[Record], clusters: Sequence[str]) -> list[Record]:
    """Each in its cluster; in the only one where it names none."""
    placed, errors = [], []
    for record in records:
        if not record.keys:
            errors.append(f"{record.where}: names no machine; give `node`, `provider_id` or `serial`")
        elif record.cluster and clusters and record.cluster not in clusters:
            errors.append(f"{record.where}: no cluster is called {record.cluster}; there are: {', '.join(clusters)}")
        elif record.node and not record.cluster and len(clusters) != 1:
            errors.append(f"{record.where}: node {record.node} could be in several clusters; give `cluster`")
        elif record.node and not record.cluster:
            record = record.model_copy(update={"cluster": clusters[0]})
        placed.append(record)
    if errors:
        raise InventoryError("\n".join(errors))
    return placed


def _united(records: Iterable[Record]) -> tuple[list[Record], dict[tuple[str, str], int]]:
    """Rows that share a key speak of one machine."""
    groups: dict[int, Record] = {}
    owner: dict[tuple[str, str], int] = {}
    errors = []
    for number, record in enumerate(records):
        others = dict.fromkeys(owner[key] for key in record.keys if key in owner)
        try:
            for other in others:
                record = groups[other].merged(record)
        except InventoryError as error:
            errors.append(str(error))
            continue
        for other in others:
            del groups[other]
        groups[number] = record
        owner.update(dict.fromkeys(record.keys, number))
    if errors:
        raise InventoryError("\n".join(errors))
    united = list(groups.values())
    return united, {key: n for n, record in enumerate(united) for key in record.keys}


def _unique(records: Iterable[Record]) -> None:
    """A power call to a controller that two machines claim might reach the wrong one."""
    errors = []
    seen: dict[tuple[str, str], Record] = {}
    for record in records:
        for what, name in (("BMC", record.bmc.lower()), *(("GPU", serial.lower()) for serial in record.gpus)):
            if not name:
                continue
            first = seen.setdefault((what, name), record)
            if first is not record:
                errors.append(
                    f"{record.where}: {what} {name} is another machine's as well ({first.where}); correct one"
                )
    if errors:
        raise InventoryError("\n".join(errors))


def _alike(name: str, value: object) -> object:
    return last(str(value)).lower() if name == "provider_id" else str(value).lower()


def _shown(value: object) -> str:
    return str(value) if not isinstance(value, tuple) else ", ".join(map(str, value))
