"""Nodes that were out of service before medevac knew them: listed, and taken over only when a person says so."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from activities.planning import ADOPTED
from activities.registry import Registry
from activities.storage.ledger import Ledger
from medevac.fleet.node import Node
from medevac.incident import IncidentView
from medevac.model import Model
from medevac.policy.active import acting_since
from worker.adoption import adoption
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
    by: str | None = None
    """Who took it out of service, where somebody says so."""
    incident: str | None = None
    """Set where it has one that is only observed because it is older than the pool's present mode."""


class Adoption(Model):
    """Which of the listed nodes; everything that is given must fit, and nothing given is an error."""

    cluster: str | None = None
    """With `node` it may be left out when only one cluster has a node of that name."""
    node: str | None = Field(default=None, min_length=1, max_length=253)
    pool: str | None = Field(default=None, min_length=1, max_length=253)
    by: str | None = Field(default=None, min_length=1, max_length=253)
    reason: str = Field(default="", max_length=500)
    dry_run: bool = False
    """Only says which nodes it would be."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.cluster or self.node or self.pool or self.by):
            raise ValueError("an empty selector never means all nodes; give `node`, `by`, `pool` or `cluster`")
        return self

    def takes(self, one: Adoptable) -> bool:
        wanted = ((self.cluster, one.cluster), (self.node, one.node), (self.pool, one.pool), (self.by, one.by))
        return all(want in (None, has) for want, has in wanted)


class Adopted(Answer):
    nodes: tuple[Adoptable, ...] = ()


@router.get("", summary="Nodes out of service that no incident explains, and trouble older than its pool's mode")
async def adoptable(served: Served, person: SignedIn) -> list[Adoptable]:
    return await served.threads.run(_adoptable, served.registry, served.stores)


@router.post("", status_code=202, summary="Take them over; each without an incident gets one, and no step by itself")
async def adopt(order: Adoption, served: Served, person: SignedIn) -> Adopted:
    person.require(Right.OPERATE)
    listed = await served.threads.run(_adoptable, served.registry, served.stores)
    found = [one for one in listed if order.takes(one)]
    what = order.node or "what you name"
    if not found:
        raise Problem(404, f"{what} is not there to be adopted; `medevac adopt` lists what is")
    if order.node and len(found) > 1:
        raise Problem(409, f"{order.node} is in {', '.join(one.cluster for one in found)}; say which cluster")
    if order.dry_run:
        return Adopted(answer=f"{len(found)} node(s) would be adopted", nodes=tuple(found))
    answers = [await _adopt(one, order.reason, served, person) for one in found]
    said = answers[0] if len(found) == 1 else f"{len(found)} nodes are adopted; nothing is done to them by itself"
    return Adopted(answer=said, nodes=tuple(found))


async def _adopt(one: Adoptable, reason: str, served: Served, person: SignedIn) -> str:
    now = served.now()
    note = f"{ADOPTED}{person.id}: {reason or one.why}"
    await served.threads.run(served.stores.ledger.note, one.cluster, one.node, note, now)
    if one.incident is not None:
        await served.engine.wake(node_workflow_id(one.cluster, one.node))
        return f"{one.incident} is planned again, as one that may be acted on"
    summary = f"{note}; it was {one.why}"
    event = adoption(one.cluster, one.node, f"person:{person.id}", f"adopt-{uuid.uuid4().hex}", summary, now)
    await served.engine.report(one.cluster, one.node, event)
    await served.threads.run(served.stores.ledger.see_events, [(event, one.node, f"accepted: {note}")])
    return f"{one.cluster}/{one.node} has an incident now; nothing is done to it by itself"


def _adoptable(registry: Registry, stores: Stores) -> list[Adoptable]:
    open_now = {(view.cluster, view.node): view for view in stores.ledger.incidents(open_only=True, limit=MOST)}
    policy = stores.policies.active().policy
    applied = stores.policies.applied()
    found = []
    for cluster in registry.clusters():
        for node in map(policy.place, cluster.nodes()):
            view = open_now.get((node.cluster, node.name))
            if view is None and (why := _why(node)):
                by = node.foreign_cordon
                found.append(Adoptable(cluster=node.cluster, node=node.name, pool=node.pool, why=why, by=by))
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
