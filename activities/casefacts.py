"""All that is known of an incident's machine, for a case: from the ledger, the cluster and the inventory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from activities.failures import Bounded, redact
from activities.ports import Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.ledger import Ledger
from medevac.cases import machines, parts
from medevac.cases.case import Known, Subject
from medevac.cases.letter import Facts
from medevac.fleet.node import Node
from medevac.incident import IncidentView, Line, StepKey

MOST_LINES = 40
READ_S = 1.0
WORDS = {
    "mark": "taken out of service",
    "evacuate": "emptied of work",
    "verify": "checked",
    "lift": "given back",
}
"""Of steps, as an outsider may read them. Texts of the ledger itself may name jobs and people."""


class CaseFacts:
    def __init__(self, registry: Registry, ledger: Ledger, bounded: Bounded | None = None) -> None:
        """`bounded`: for a caller that can't wait for a cluster's own time-outs."""
        self._registry = registry
        self._ledger = ledger
        self._bounded = bounded

    def of(
        self, incident: str, provider: str, reasons: Iterable[str] = (), entities: Iterable[str] = ()
    ) -> tuple[Facts, Subject]:
        """`entities`: of the fault. Raises `Unreadable` where the ledger can't be read; a node that can't be leaves
        its facts out."""
        view = self._ledger.incident(incident)
        if view is None:
            raise Unreadable(f"incident {incident} isn't in the ledger yet")
        lines = self._ledger.lines(incident)
        node = self.node(view.cluster, view.node)
        known = self.known(node) if node else Known(machine_id=view.machine_id or "")
        record = self._registry.inventory.join(node).record if node else None
        contract = ""
        if record and (record.support or record.warranty):
            until = f"warranty until {record.warranty}" if record.warranty else ""
            contract = ", ".join(filter(None, (record.support, until)))
        there = self._parts(node, known, lines, entities)
        facts = Facts(
            machine_id=known.machine_id or view.machine_id or "",
            serial=known.serial or "",
            parts=tuple(f"{one}{' (at fault)' if one.faulty else ''}" for one in there if one.kind == parts.GPU),
            sku=(node.sku or "") if node else "",
            fault=view.fault or "",
            first_seen=view.opened_at,
            timeline=_timeline(lines),
            attempts=_attempts(lines),
            reasons=tuple(redact(reason, 500) for reason in reasons),
            evidence=_evidence(lines),
            node=f"{view.cluster}/{view.node}",
            rack=node.topology.get("rack", "") if node else "",
            contract=contract,
        )
        subject = Subject(
            incident=incident, cluster=view.cluster, node=view.node, fault=view.fault or "", was=known, parts=there
        )
        return facts, subject

    def node(self, cluster: str, node: str) -> Node | None:
        """None where it is gone or can't be read."""
        try:
            return self._read(cluster, node)
        except (Unreadable, NotConfigured):
            return None

    def _read(self, cluster: str, node: str) -> Node | None:
        read = self._registry.cluster(cluster).node
        return self._bounded.call(READ_S, read, node) if self._bounded else read(node)

    def known(self, node: Node) -> Known:
        """The inventory's serial is in it: every node that the registry's clusters give is joined with it."""
        machine = node.machine
        return Known(machine_id=machine.id, serial=machine.serial or None, boot_id=machine.boot_id)

    def seen(self, subject: Subject) -> machines.Seen | None:
        """The incident's machine as it is now; None where it can't be read, or the ledger doesn't know the incident."""
        view = self.view(subject.incident)
        if view is None:
            return None
        try:
            node = self._read(view.cluster, view.node)
        except Unreadable:
            return None
        except NotConfigured:  # its cluster is nobody's any more
            node = None
        now = self.known(node) if node else None
        there = self._parts(node, now, self._ledger.lines(subject.incident)) if now and view.end else ()
        return machines.Seen(incident_state=view.state, end=view.end, now=now, parts=there)

    def _parts(
        self, node: Node | None, known: Known, lines: Sequence[Line], entities: Iterable[str] = ()
    ) -> tuple[parts.Part, ...]:
        record = self._registry.inventory.join(node).record if node else None
        listed = record.gpus if record else ()
        return parts.known(known.serial or "", parts.checked(lines), listed, entities)

    def write(self, incident: str, n: int, text: str, at: datetime) -> None:
        """A line of the incident's, or case's, about its parts. The same one twice is one."""
        self._ledger.add_lines(
            [Line(key=StepKey(incident=incident, step="parts", n=n), at=at, kind="parts", text=text)]
        )

    def view(self, incident: str) -> IncidentView | None:
        return self._ledger.incident(incident)


def _timeline(lines: Sequence[Line]) -> tuple[str, ...]:
    said = []
    for line in lines:
        words = WORDS.get(str(line.data.get("step", ""))) if line.kind == "step" else None
        if words:
            said.append(f"{line.at:%Y-%m-%d %H:%M} UTC {words}: {_outcome(line)}")
    return tuple(said[-MOST_LINES:])


def _attempts(lines: Sequence[Line]) -> tuple[str, ...]:
    said = []
    for line in lines:
        if line.kind == "step" and line.key.step.startswith("act-"):
            verb = line.key.step.removeprefix("act-").replace("_", " ")
            said.append(f"{line.at:%Y-%m-%d %H:%M} UTC {verb}: {_outcome(line)}")
    return tuple(said[-MOST_LINES:])


def _outcome(line: Line) -> str:
    result = line.data.get("result")
    return str(result.get("outcome", "")) if isinstance(result, dict) else ""


def _evidence(lines: Sequence[Line]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        result = line.data.get("result")
        proof = result.get("proof") if isinstance(result, dict) else None
        evidence = proof.get("evidence") if isinstance(proof, dict) else None
        pieces = evidence.get("pieces") if isinstance(evidence, dict) else None
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict) and piece.get("url"):
                found.append(str(piece["url"]))
    return tuple(dict.fromkeys(found))[:MOST_LINES]
