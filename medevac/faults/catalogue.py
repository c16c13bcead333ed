"""The fault catalogue: what each code means, from package data with a source on every row.

`data/*.csv` hold one row a code; a code that ends in `/*` speaks for the rest of its namespace. Classes are the
shipped defaults; a policy may name codes of its own, nothing else changes a class but the rules in `classify`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from medevac.events.event import HealthEvent, Kind, Severity
from medevac.faults import nvlink4, nvlink5, recovery
from medevac.faults.classes import Covers, FaultClass
from medevac.model import Model

TABLES = ("xid.csv", "sxid.csv", "dcgm.csv", "conditions.csv", "senders.csv")


class Row(Model):
    code: str
    name: str
    fault_class: FaultClass
    covers: tuple[Covers, ...] = ()
    """What a check must cover to prove it gone."""
    first_rung: str
    """Name of the rung that the source asks for first; the policy's ladder decides."""
    source: str
    severity: Severity | None = None
    """`critical` where all published tables treat the code as hardware."""
    note: str = ""


def _load() -> tuple[Mapping[str, Row], Mapping[str, str]]:
    found: dict[str, Row] = {}
    alias: dict[str, str] = {}
    for table in TABLES:
        with files("medevac.faults").joinpath("data", table).open(encoding="utf-8") as f:
            for line in csv.DictReader(f):
                row = Row(
                    code=line["code"],
                    name=line["name"],
                    fault_class=FaultClass(line["class"]),
                    covers=tuple(Covers(c) for c in line["covers"].split()),
                    first_rung=line["first_rung"],
                    source=line["source"],
                    severity=Severity(line["severity"]) if line["severity"] else None,
                    note=line["note"],
                )
                if row.code in found:
                    raise ValueError(f"{table}: {row.code} has two rows")
                found[row.code] = row
                if line["alias"]:
                    alias[line["alias"]] = row.code
    return MappingProxyType(found), MappingProxyType(alias)


_ROWS, _ALIAS = _load()


def rows() -> Mapping[str, Row]:
    return _ROWS


@cache
def _unknown() -> Row:
    return Row(
        code="*",
        name="A code that no table knows",
        fault_class=FaultClass.UNKNOWN,
        first_rung="escalate",
        source="default",
    )


def lookup(code: str) -> Row:
    """Never fails: the row (a DCGM number finds its name's), else its namespace's, else an `unknown` one."""
    found = _ROWS.get(code) or _ROWS.get(_ALIAS.get(code, ""))
    if found is not None:
        return found
    space = code
    while "/" in space:
        space = space.rpartition("/")[0]
        if (row := _ROWS.get(f"{space}/*")) is not None:
            return row.model_copy(update={"code": code})
    return _unknown().model_copy(update={"code": code})


def classify(event: HealthEvent) -> HealthEvent:
    """Fills `fault_class`, `covers`, `advice` and `note` from the catalogue and what the driver itself says.

    Raises a class above its row only for: the word Fatal in a switch's line where the guide leaves it open,
    the NVLink 5 decode (whose rows are `unknown` until decoded), and Xid 154's recommendation. Lowers it only where
    the registers of an Xid 74 say that operation goes on. A worse class that is already there (a policy's threshold or
    rule put it) is kept.
    """
    if event.fault is None:
        return event
    row = lookup(event.fault)
    fault_class, covers, advice, note = row.fault_class, row.covers, row.first_rung, ""
    if event.fault.startswith("sxid/"):
        open_by_guide = fault_class is FaultClass.UNKNOWN or row.note.startswith("critical where")
        if open_by_guide and event.detail.get("driver_word") == "fatal":
            fault_class, advice, note = FaultClass.CRITICAL, "reboot", "the driver's line says Fatal"
            covers = covers or (Covers.LINK,)
    elif (decoded := nvlink5.decode_event(event)) is not None:
        fault_class, advice, note = decoded.fault_class, decoded.first_rung, decoded.note
    elif (link := nvlink4.decode_event(event)) is not None:
        fault_class, advice, note = link.fault_class or fault_class, link.first_rung or advice, link.note
    elif event.fault == "xid/154" and (wanted := recovery.read(event.detail.get("recovery_action"))) is not None:
        fault_class, covers, advice, note = wanted.fault_class, wanted.covers, wanted.rung, wanted.note
    if event.kind is Kind.PLANNED and not fault_class.latched and fault_class is not FaultClass.RECORD:
        fault_class = FaultClass.PLANNED
        covers = covers or (Covers.MAINTENANCE,)
        advice = advice if row.fault_class is FaultClass.PLANNED else "wait"
    if event.fault_class is not None and event.fault_class.rank < fault_class.rank:
        fault_class = event.fault_class
    return event.model_copy(update={"fault_class": fault_class, "covers": covers, "advice": advice, "note": note})
