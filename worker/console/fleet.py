"""The fleet as a map: who stands in which rack of which pool, and in what state, told by letter as well as colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from activities.storage.views import Listed
from medevac.fleet.node import Node
from medevac.incident import State
from medevac.policy.policy import Policy
from worker.console.entering import Here, Served
from worker.console.pages import PageRoute, page
from worker.gateway.services import Services

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Look:
    letter: str
    colour: str
    """Class of the style sheet."""
    words: str


WELL = Look("·", "well", "in service")
SPARE = Look("s", "well", "in service, spare")
OTHERS = Look("C", "others", "cordoned by others")
NOT_READY = Look("N", "sick", "not ready")
SILENT = Look("U", "sick", "unreachable")
LOOKS = {
    State.HEARD: Look("M", "marked", "heard of a fault"),
    State.PLANNED: Look("M", "marked", "planned"),
    State.MARKED: Look("M", "marked", "marked"),
    State.WATCHING: Look("M", "marked", "watched"),
    State.WAITING_LEASE: Look("W", "waiting", "waits for its turn"),
    State.WAITING_APPROVAL: Look("?", "waiting", "waits for people's yes"),
    State.EVACUATING: Look("E", "working", "being evacuated"),
    State.ACTING: Look("A", "working", "being repaired"),
    State.PROVING: Look("P", "working", "remedy being proved"),
    State.VERIFYING: Look("V", "working", "being checked"),
    State.PROBATION: Look("B", "marked", "back on probation"),
    State.HELD: Look("H", "people", "held by a person"),
    State.OBSERVED: Look("o", "others", "faulty, only observed"),
    State.HANDED_OVER: Look("!", "people", "handed over to people"),
}
LEGEND = tuple(
    {(one.letter, one.words): one for one in (WELL, SPARE, *LOOKS.values(), OTHERS, NOT_READY, SILENT)}.values()
)


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    look: Look
    incident: str = ""
    why: str = ""


@dataclass(slots=True)
class Rack:
    name: str
    places: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Pool:
    cluster: str
    name: str
    racks: dict[str, Rack] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    """Nodes by what they look like, in words."""

    @property
    def size(self) -> int:
        return sum(self.count.values())


def look(node: Node, incident: Listed | None) -> Look:
    if incident is not None and incident.state in LOOKS:
        return LOOKS[incident.state]
    if not node.reachable:
        return SILENT
    if node.foreign_cordon is not None:
        return OTHERS
    if not node.ready:
        return NOT_READY
    return SPARE if "medevac.dev/spare" in node.labels else WELL


def arrange(nodes: Iterable[Node], incidents: Mapping[tuple[str, str], Listed]) -> list[Pool]:
    """`nodes` as the policy has placed them. Racks and nodes by name; incidents of nodes that are gone are left out."""
    pools: dict[tuple[str, str], Pool] = {}
    for node in sorted(nodes, key=lambda one: (one.cluster, one.pool or "~", one.name)):
        key = (node.cluster, node.pool or "in no pool")
        pool = pools.setdefault(key, Pool(*key))
        rack = pool.racks.setdefault(name := node.topology.get("rack", "unknown"), Rack(name))
        incident = incidents.get((node.cluster, node.name))
        found = look(node, incident)
        pool.count[found.words] += 1
        why = (incident.waiting_for or incident.summary) if incident else (node.foreign_cordon or "")
        rack.places.append(Place(node.name, found, incident.id if incident else "", why))
    for pool in pools.values():
        pool.racks = dict(sorted(pool.racks.items()))
    return list(pools.values())


def read_nodes(served: Services, policy: Policy) -> tuple[list[Node], list[str]]:
    """Of all clusters, lately read; and which clusters can't be. Blocking."""
    nodes, unread = served.inventory.all_nodes()
    return [policy.place(node) for node in nodes], unread


@router.get("/")
async def fleet(request: Request, served: Served, here: Here) -> HTMLResponse:
    return await served.threads.run(_fleet, request, served, here)


def _fleet(request: Request, served: Services, here: Here) -> HTMLResponse:
    nodes, unread = read_nodes(served, served.stores.policies.active().policy)
    incidents = served.stores.views.by_node()
    pools = arrange(nodes, incidents)
    known = {(node.cluster, node.name) for node in nodes}
    lost = [one for key, one in incidents.items() if key not in known]
    fences = served.stores.fences.active()
    return page(
        request, served, here, "fleet.html", pools=pools, unread=unread, lost=lost, fences=fences, legend=LEGEND
    )
