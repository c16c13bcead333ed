"""What people did to a node whose incident waits for them: noted in the ledger, and the incident looks again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import JsonValue

from activities.ports import HasOthers, Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.ledger import Ledger
from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator
from medevac.incident import IncidentView, Line, State, StepKey
from medevac.model import Model
from medevac.policy.yielding import followed, held_back

log = logging.getLogger(__name__)

MEANWHILE = "meanwhile"
WAITS_FOR_PEOPLE = frozenset({State.OBSERVED, State.HANDED_OVER, State.HELD})


class Facts(Model):
    """What a person's hand changes."""

    exists: bool
    uid: str | None = None
    machine: str | None = None
    boot_id: str | None = None
    in_service: bool = False
    cordoned_by: str | None = None
    marked: bool = False
    hands_off: str | None = None
    others: tuple[str, ...] = ()
    """Remediators that are seen to act on it."""

    @classmethod
    def of(cls, node: Node | None, others: Iterable[Remediator] = ()) -> Facts:
        if node is None:
            return cls(exists=False)
        return cls(
            exists=True,
            uid=node.uid,
            machine=node.machine.id,
            boot_id=node.machine.boot_id,
            in_service=node.schedulable and node.marked_by is None,
            cordoned_by=node.foreign_cordon,
            marked=node.marked_by is not None,
            hands_off=node.hands_off,
            others=tuple(one.name for one in others if one.acts),
        )


def changes(was: Facts, now: Facts) -> list[str]:
    """In words; empty when nothing changed."""
    if was.exists and not now.exists:
        return ["the node was removed from its cluster"]
    if not was.exists:
        return ["the node is back in its cluster"] if now.exists else []
    said = []
    if now.machine != was.machine or now.uid != was.uid:
        said.append(f"another machine answers under its name: {now.machine}")
    elif now.boot_id != was.boot_id:
        said.append("it was booted again")
    if was.marked and not now.marked:
        said.append("our mark was lifted")
    if now.cordoned_by and now.cordoned_by != was.cordoned_by:
        said.append(f"{now.cordoned_by} cordoned it")
    if was.cordoned_by and not now.cordoned_by:
        said.append("the cordon of someone else was lifted")
    if now.in_service and not was.in_service:
        said.append("it was put back into service, and no check of ours has passed")
    if now.hands_off and now.hands_off != was.hands_off:
        said.append(f"{now.hands_off} asked for hands off")
    said += [f"{name} repairs nodes here now" for name in now.others if name not in was.others]
    said += [f"{name} doesn't act here any more" for name in was.others if name not in now.others]
    return said


def _missed(lines: Sequence[Line], now: Facts) -> list[str]:
    """What the incident waited for may have been over before the first look."""
    if (who := followed(lines)) and now.exists and not now.cordoned_by:
        return [f"{who} is done with it"]
    return ["who else repaired nodes here doesn't act any more"] if held_back(lines) and not now.others else []


class Meanwhile:
    """Blocking. The last line of its kind in the incident's ledger is what was known before."""

    def __init__(self, registry: Registry, ledger: Ledger) -> None:
        self._registry = registry
        self._ledger = ledger

    def look(self, view: IncidentView, at: datetime) -> bool:
        """True when something was done to the node since the last look, which is now in the ledger."""
        try:
            cluster = self._registry.cluster(view.cluster)
            node = cluster.node(view.node)
            others = cluster.remediators(node) if node is not None and isinstance(cluster, HasOthers) else []
            now = Facts.of(node, others)
        except (Unreadable, NotConfigured) as error:
            log.warning("%s/%s can't be looked at: %s", view.cluster, view.node, error)
            return False
        lines = self._ledger.lines(view.id)
        known = [line for line in lines if line.kind == MEANWHILE]
        was = Facts.model_validate(known[-1].data) if known else None
        if was == now:
            return False
        did = changes(was, now) if was else _missed(lines, now)
        facts: dict[str, JsonValue] = now.model_dump(mode="json")
        # The key counts the looks that found something new: of all sweeps only one writes each.
        key = StepKey(incident=view.id, step=MEANWHILE, n=len(known) + 1)
        text = "; ".join(did) if did else f"as the incident left it: {'in service' if now.in_service else 'held out'}"
        line = Line(key=key, at=at, kind=MEANWHILE, text=text, data=facts)
        if not self._ledger.add_lines([line]) or not did:
            return False
        self._ledger.note(view.cluster, view.node, text, at)
        return True
