"""Rows of the world as the ports' models."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from activities.ports import MachineState
from medevac.faults.classes import Covers
from medevac.fleet.node import Machine, Node
from medevac.model import Model
from simulation.hazards import Behaviour, Effect, Manner
from simulation.moment import Moment

BEGUN = "begun_at"
LIVE = "node IS NOT NULL AND state IN ('running', 'terminating')"


class Logged(Model):
    """One physical call."""

    id: int
    at: datetime
    verb: Effect
    cluster: str
    node: str
    target: str
    tag: str
    pid: int
    applied: bool
    """Whether it began a transition; calls and transitions are counted apart."""
    manner: Manner | None = None
    detail: dict[str, JsonValue] = {}

    @property
    def begun_at(self) -> datetime:
        """When its caller began it, by the caller's clock; the world may have been busy until `at`."""
        begun = self.detail.get(BEGUN)
        return moment(float(begun)) if isinstance(begun, float) else self.at


class Injected(Model):
    """A fault of the hardware itself, whatever anybody has heard of it."""

    id: int
    cluster: str
    node: str
    machine_id: str
    code: str
    covers: tuple[Covers, ...]
    cure: tuple[Effect, ...]
    behaviour: Behaviour
    present: bool
    injected_at: datetime
    since: datetime
    """When it last appeared; later than `injected_at` where it came back."""
    cured_at: datetime | None = None
    cured_by: Effect | None = None


class Billed(Model):
    """A machine that costs money from its launch to its end."""

    machine_id: str
    provider: str
    cluster: str
    node: str | None
    requested_by: str | None
    since: datetime
    until: datetime | None


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def nodes(m: Moment, cluster: str) -> list[Node]:
    rows = m.all(f"SELECT * FROM machines WHERE cluster = ? AND {LIVE} ORDER BY node", cluster)  # noqa: S608
    return [node(m, row) for row in rows]


def one(m: Moment, cluster: str, name: str) -> Node | None:
    row = m.one(f"SELECT * FROM machines WHERE cluster = ? AND node = ? AND {LIVE}", cluster, name)  # noqa: S608
    return node(m, row) if row else None


def node(m: Moment, row: sqlite3.Row) -> Node:
    return Node(
        cluster=row["cluster"], name=row["node"], uid=row["uid"], pool=row["pool"], gpus=row["gpus"], sku=row["sku"],
        ready=bool(row["ready"]), reachable=bool(row["ready"]),
        schedulable=(row["marked_by"] is None or bool(row["uncordoned"])) and row["cordon"] is None,
        machine=Machine(
            provider=row["provider"], id=row["id"], serial=row["serial"], boot_id=row["boot_id"],
            virtual=bool(row["virtual"]), reserved=bool(row["reserved"]),
            capabilities=m.layout.providers[row["provider"]].capabilities,
            local_data_in_use=(row["local_data"],) if row["local_data"] else (),
        ),
        topology=json.loads(row["topology"]), labels=json.loads(row["labels"]), roles=tuple(json.loads(row["roles"])),
        marked_by=row["marked_by"], foreign_cordon=row["cordon"], hands_off=row["hands_off"], simulated=True,
    )  # fmt: skip


POWER: dict[str, Literal["on", "off", "unknown"]] = {"running": "on", "terminating": "unknown"}


def machine(m: Moment, provider: str, machine_id: str, tag: str) -> MachineState:
    row = m.one("SELECT * FROM machines WHERE id = ? AND state != 'gone'", machine_id)
    successor = m.one(
        "SELECT node, ready FROM machines WHERE requested_by = ? AND provider = ? AND state = 'running'"
        " ORDER BY launched_at, id LIMIT 1",
        tag, provider,
    )  # fmt: skip
    found = {"successor": successor["node"], "successor_ready": bool(successor["ready"])} if successor else {}
    if row is None:
        return MachineState(exists=False, **found)
    return MachineState(
        exists=True, power=POWER.get(row["state"], "off"), boot_id=row["boot_id"],
        image_mark=row["image_mark"], gpu_reset_mark=row["gpu_mark"], ready=bool(row["ready"]), **found,
    )  # fmt: skip


def logged(row: sqlite3.Row) -> Logged:
    return Logged(**dict(row) | {"at": moment(row["at"]), "detail": json.loads(row["detail"])})


def injected(row: sqlite3.Row) -> Injected:
    return Injected(
        id=row["id"], cluster=row["cluster"], node=row["node"], machine_id=row["machine"], code=row["code"],
        covers=json.loads(row["covers"]), cure=json.loads(row["cure"]),
        behaviour=Behaviour.model_validate_json(row["behaviour"]), present=bool(row["present"]),
        injected_at=moment(row["injected_at"]), since=moment(row["since"]),
        cured_at=None if row["cured_at"] is None else moment(row["cured_at"]), cured_by=row["cured_by"],
    )  # fmt: skip


def billed(row: sqlite3.Row) -> Billed:
    return Billed(
        machine_id=row["id"], provider=row["provider"], cluster=row["cluster"], node=row["node"],
        requested_by=row["requested_by"], since=moment(row["launched_at"]),
        until=None if row["ended_at"] is None else moment(row["ended_at"]),
    )  # fmt: skip
