"""Drills: the true ladder on one empty node, begun by a person who may operate."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from activities.ports import Unreadable
from activities.registry import Registry
from medevac.events.drill import drill_event
from medevac.model import Model
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer
from worker.gateway.people import Right
from worker.gateway.services import Served, SignedIn
from worker.intake.inventory import NotFound

router = APIRouter(prefix="/v1/drills", tags=["drills"])


class Drill(Model):
    node: str = Field(min_length=1, max_length=253)
    cluster: str | None = Field(default=None, max_length=100)
    fault: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


@router.post("", summary="Play a fault on an empty node", status_code=202)
async def begin(order: Drill, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    found = await served.threads.run(served.inventory.resolve, order.node, order.cluster)
    if isinstance(found, NotFound):
        raise Problem(404, found.text)
    cluster, name = found.cluster, found.node.name
    try:
        event = drill_event(cluster, name, order.fault, person.id, order.reason, served.now())
    except ValueError as error:
        raise Problem(422, str(error)) from None
    if view := await served.threads.run(served.stores.ledger.incidents, True, cluster, name, 1):
        raise Problem(409, f"{name} is in incident {view[0].id}; take another node")
    try:
        why_not = await served.threads.run(_unfit, served.registry, cluster, name)
    except Unreadable as error:
        raise Problem(503, f"{name} can't be read: {error}") from None
    if why_not:
        raise Problem(409, why_not)
    await served.engine.report(cluster, name, event)
    return Answer(answer=f"{order.fault} is played on {cluster}/{name}; `medevac incidents {name}` shows how it goes")


def _unfit(registry: Registry, cluster: str, name: str) -> str:
    """Why no drill may be held on the node as it is now; empty = it may."""
    node = registry.cluster(cluster).node(name)
    if node is None:
        return f"{name} is gone"
    if node.roles:
        return f"{name} is {', '.join(node.roles)}; take a node that nobody needs"
    if keeper := node.marked_by or node.foreign_cordon or node.hands_off:
        return f"{keeper} keeps {name} out of service; take another node"
    pods = [f"{pod.namespace}/{pod.name}" for pod in registry.cluster(cluster).pods(name) if pod.tier != "daemon"]
    if pods:
        return f"{len(pods)} pods run on {name} ({', '.join(pods[:3])}); a drill is for an empty node"
    return ""
