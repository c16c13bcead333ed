"""Nodes that were out of service before medevac knew them: listed, and taken over only when a person says so."""

from __future__ import annotations

import uuid
from datetime import datetime

from fastapi import APIRouter
from pydantic import Field

from activities.planning import ADOPTED
from activities.registry import Registry
from activities.storage.ledger import Ledger
from medevac.events.event import HealthEvent, Kind
from medevac.faults.classes import ADOPTED as FAULT
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import IncidentView
from medevac.model import Model, digest
from medevac.policy.active import acting_since
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer
from worker.gateway.people import Right
from worker.gateway.services import Served, SignedIn
from worker.stores import Stores
from workflows.messages import node_workflow_id

router = APIRouter(prefix="/v1/adoptable", tags=["adopt"])

MOST = 10_000


class Adoptable(Model):
    cluster: str
    node: str
    pool: str | None
    why: str
    incident: str | None = None
    """Set where it has one that is only observed because it is older than the pool's present mode."""


class Adoption(Model):
    cluster: str | None = None
    """May be left out when only one cluster has a node of that name."""
    node: str = Field(min_length=1, max_length=253)
    reason: str = Field(default="", max_length=500)


@router.get("", summary="Nodes out of service that no incident explains, and trouble older than its pool's mode")
async def adoptable(served: Served, person: SignedIn) -> list[Adoptable]:
    return await served.threads.run(_adoptable, served.registry, served.stores)


@router.post("", status_code=202, summary="Take one over; one without an incident gets one, and no step by itself")
async def adopt(order: Adoption, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    listed = await served.threads.run(_adoptable, served.registry, served.stores)
    found = [one for one in listed if one.node == order.node and order.cluster in (None, one.cluster)]
    if not found:
        raise Problem(404, f"{order.node} is not there to be adopted; `medevac adopt` lists what is")
    if len(found) > 1:
        raise Problem(409, f"{order.node} is in {', '.join(one.cluster for one in found)}; say which cluster")
    one, now = found[0], served.now()
    note = f"{ADOPTED}{person.id}: {order.reason or one.why}"
    await served.threads.run(served.stores.ledger.note, one.cluster, one.node, note, now)
    if one.incident is not None:
        await served.engine.wake(node_workflow_id(one.cluster, one.node))
        return Answer(answer=f"{one.incident} is planned again, as one that may be acted on")
    event = HealthEvent(
        source="generic",
        sender=f"person:{person.id}",
        id=f"adopt-{uuid.uuid4().hex}",
        dedupe_key=digest(["adopt", one.cluster, one.node]),
        subject=one.node,
        cluster=one.cluster,
        kind=Kind.FAULT,
        fault=FAULT,
        fault_class=FaultClass.UNKNOWN,
        actionable=False,
        received_at=now,
        summary=f"{note}; it was {one.why}",
    )
    await served.engine.report(one.cluster, one.node, event)
    await served.threads.run(served.stores.ledger.see_events, [(event, one.node, f"accepted: {note}")])
    return Answer(answer=f"{one.cluster}/{one.node} has an incident now; nothing is done to it by itself")


def _adoptable(registry: Registry, stores: Stores) -> list[Adoptable]:
    open_now = {(view.cluster, view.node): view for view in stores.ledger.incidents(open_only=True, limit=MOST)}
    policy = stores.policies.active().policy
    applied = stores.policies.applied()
    found = []
    for cluster in registry.clusters():
        for node in map(policy.place, cluster.nodes()):
            view = open_now.get((node.cluster, node.name))
            if view is None and (why := _why(node)):
                found.append(Adoptable(cluster=node.cluster, node=node.name, pool=node.pool, why=why))
            if view is None or node.pool is None:
                continue
            since = acting_since(applied, node.pool)
            if since is not None and view.opened_at < since and not _adopted(stores.ledger, view, since):
                why = f"in trouble ({view.fault}) since before its pool's mode was raised"
                found.append(Adoptable(cluster=node.cluster, node=node.name, pool=node.pool, why=why, incident=view.id))
    return found


def _adopted(ledger: Ledger, view: IncidentView, since: datetime) -> bool:
    return any(note.text.startswith(ADOPTED) for note in ledger.notes(view.cluster, view.node, since))


def _why(node: Node) -> str:
    if node.marked_by is not None:
        return f"marked by {node.marked_by}, which is over"
    if node.foreign_cordon is not None:
        return f"cordoned by {node.foreign_cordon}"
    if not node.schedulable:
        return "not schedulable"
    return "" if node.ready else "not ready"
