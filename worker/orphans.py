"""Marks of ours that no open incident stands behind: after a lost write, a restored store, a workflow ended by hand.

One is lifted only where its incident's own end says that it was to be, or where the node has been checked and returned
since. Anything else is a person's: it is paged once, never lifted by guess, and `medevac adopt` lists it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.ports import Cluster, NotSent, Unclear, Unreadable
from activities.registry import Registry
from activities.storage.ledger import LedgerLine
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, Line, Outcome, State, StepKey
from medevac.policy.plan import Mode
from worker import metrics
from worker.adoption import adoption
from worker.engine import Engine
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

ORPHAN_MARK = "orphan-mark"
YOUNG = timedelta(seconds=60)
"""An incident that ended within it may have lifted its mark a moment ago, and the list of nodes may lag."""
TOLD = frozenset((ORPHAN_MARK, "orphan"))
Page = tuple[StepKey, str]


@dataclass(frozen=True, slots=True)
class Orphan:
    cluster: Cluster
    node: Node
    """Read by itself."""
    incident: str
    """Whose mark it is."""
    view: IncidentView | None
    """None where no incident of that name was ever here."""
    lines: Sequence[LedgerLine]
    newest: IncidentView | None
    """Of this node, whatever its name."""

    @property
    def told_at(self) -> datetime | None:
        """When people were told of it, or that its incident's workflow is gone."""
        return next((line.at for line in self.lines if line.kind == "page" and line.key.step in TOLD), None)


class OrphanMarks:
    def __init__(self, registry: Registry, stores: Stores, engine: Engine, threads: Threads) -> None:
        self._registry = registry
        self._stores = stores
        self._engine = engine
        self._threads = threads

    async def reconcile(self, now: datetime) -> list[Page]:
        """What people must be told; each is a line that is new once."""
        found = await self._threads.run(self._find, now)
        metrics.ORPHAN_MARKS.set(len(found))
        pages = []
        for orphan in found:
            if page := await self._settle(orphan, now):
                pages.append(page)
        return pages

    def _find(self, now: datetime) -> list[Orphan]:
        found = []
        for cluster in self._registry.clusters():
            try:
                found += [one for node in cluster.nodes() if (one := self._orphan(cluster, node, now))]
            except Unreadable as error:
                log.warning("cluster %s is not searched for marks: %s", cluster.name, error)
        return found

    def _orphan(self, cluster: Cluster, listed: Node, now: datetime) -> Orphan | None:
        ledger, incident = self._stores.ledger, listed.marked_by
        if incident is None:
            return None
        view = ledger.incident(incident)
        if view is not None and (_is_open(view) or now - view.updated_at < YOUNG):
            return None
        node = cluster.node(listed.name)
        if node is None or node.marked_by != incident:
            return None
        newest = next(iter(ledger.incidents(open_only=False, cluster=cluster.name, node=node.name, limit=1)), None)
        return Orphan(cluster, node, incident, view, ledger.lines(incident), newest)

    async def _settle(self, orphan: Orphan, now: datetime) -> Page | None:
        node, where = orphan.node, f"{orphan.node.cluster}/{orphan.node.name}"
        key = StepKey(incident=orphan.incident, step=ORPHAN_MARK)
        left = "it is left as it is"
        why = lifts(orphan)
        may: bool = await self._threads.run(self._may_write, node)
        if why and may:
            try:
                await self._threads.run(orphan.cluster.lift, node.name, orphan.incident)
            except (NotSent, Unclear) as error:
                left = f"it was to be lifted ({why}), and was not: {error}"
            else:
                text = f"{where} still carried the mark of {orphan.incident}; lifted: {why}"
                log.warning(text)
                line = Line(key=key, at=now, kind="state", text=text)
                await self._threads.run(self._stores.ledger.add_lines, [line])
                metrics.ORPHAN_MARKS_LIFTED.inc()
                return None
        if orphan.told_at is not None:
            return None
        whose = _what_became_of(orphan.view)
        if orphan.view is None and not (orphan.newest and _is_open(orphan.newest)):
            event = adoption(
                node.cluster,
                node.name,
                "medevac:sweep",
                f"{ORPHAN_MARK}-{orphan.incident}-{node.uid}",
                f"it carries the mark of {orphan.incident}, {whose}",
                now,
            )
            await self._engine.report(node.cluster, node.name, event)
            await self._threads.run(self._stores.ledger.see_events, [(event, node.name, "accepted: an orphan mark")])
        return key, f"{where} carries the mark of {orphan.incident}, {whose}; {left}, see `medevac adopt`"

    def _may_write(self, node: Node) -> bool:
        """Nothing at all is written where a pool is only observed."""
        policy = self._stores.policies.active().policy
        pool = policy.pools.get(policy.place(node).pool or "")
        return pool is not None and pool.mode is not Mode.OBSERVE


def lifts(orphan: Orphan) -> str:
    """Why the mark may go, in words; empty where nothing says so."""
    view, newest = orphan.view, orphan.newest
    since = view.updated_at if view else orphan.told_at
    if newest and newest.id != orphan.incident and newest.end is End.RETURNED and since and newest.opened_at >= since:
        return f"{newest.id} has checked and returned the node since" if _same(newest, orphan.node) else ""
    if view is None or not _same(view, orphan.node):
        return ""
    if view.end is End.RETURNED:
        return "its incident returned the node"
    if view.end is not End.WITHDRAWN:
        return ""
    last = next((line for line in reversed(orphan.lines) if _step(line) in ("mark", "lift")), None)
    if last is not None and _step(last) == "lift":
        return "its incident was withdrawn and had lifted it" if _ok(last) else ""
    decided = [line.text for line in orphan.lines if line.kind == "decision"]
    return "its incident was withdrawn: nothing was wrong" if decided and decided[-1].startswith("withdraw ") else ""


def _same(view: IncidentView, node: Node) -> bool:
    return view.machine_id == node.machine.id


def _is_open(view: IncidentView) -> bool:
    return view.end is None and view.state is not State.ENDED


def _step(line: Line) -> str:
    return str(line.data.get("step", "")) if line.kind == "step" else ""


def _ok(line: Line) -> bool:
    result = line.data.get("result")
    return isinstance(result, dict) and Outcome(str(result.get("outcome"))).ok


def _what_became_of(view: IncidentView | None) -> str:
    if view is None:
        return "which no ledger here knows"
    return f"which ended ({view.end or 'from outside'}) without saying that it may go"
