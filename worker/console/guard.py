"""Budgets and what blocks: limits in use, the line, breakers, freezes; and the button that stops everything."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from medevac.fleet.census import domain_key
from medevac.fleet.guard_queue import allowed_at_once, units
from medevac.fleet.guard_state import Lease
from medevac.fleet.node import Node
from medevac.policy.policy import Policy
from worker.console.entering import Here, Posted, Served
from worker.console.fleet import read_nodes
from worker.console.pages import PageRoute, go, page
from worker.gateway import fences as api
from worker.gateway.services import Services

router = APIRouter(prefix="/guard", route_class=PageRoute, include_in_schema=False)


class Used(NamedTuple):
    """A domain in which something is disrupted now."""

    domain: str
    used: int
    limit: int
    size: int


@router.get("")
async def guard(request: Request, served: Served, here: Here) -> HTMLResponse:
    return await served.threads.run(_guard, request, served, here)


@router.post("/freeze")
async def freeze(request: Request, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    wish = api.Freeze(
        scope=fields.get("scope", "").strip(),
        reason=fields.get("reason", "").strip(),
        marks=fields.get("marks") == "on",
    )
    return go(request, here, "/guard", (await api.freeze(wish, served, here.person)).answer)


@router.post("/thaw")
async def thaw(request: Request, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    wish = api.Thaw(scope=fields.get("scope", ""), reason=fields.get("reason", "").strip())
    return go(request, here, "/guard", (await api.thaw(wish, served, here.person)).answer)


@router.post("/breaker")
async def breaker(request: Request, served: Served, here: Here, fields: Posted) -> RedirectResponse:
    wish = api.Closing(cluster=fields.get("cluster", ""), cause=fields.get("cause", ""))
    return go(request, here, "/guard", (await api.close_breaker(wish, served, here.person)).answer)


def _guard(request: Request, served: Services, here: Here) -> HTMLResponse:
    version = served.stores.policies.active()
    nodes, unread = read_nodes(served, version.policy)
    leases = served.stores.guard.leases()
    return page(
        request, served, here, "guard.html",
        version=version, limits=version.policy.limits, unread=unread, leases=leases,
        used=in_use(version.policy, leases, nodes), queue=served.stores.views.queue(),
        breakers=served.stores.guard.weighed_breakers(served.now()), fences=served.stores.fences.weighed(served.now()),
    )  # fmt: skip


def in_use(policy: Policy, leases: list[Lease], nodes: list[Node]) -> list[Used]:
    """Of every domain that a lease counts in and the policy limits; a gang counts once."""
    sizes: Counter[str] = Counter()
    for node in nodes:
        sizes.update(domain_key(kind, value) for kind, value in policy.domains(node).items())
    held: dict[tuple[str, str], list[Lease]] = {}
    for lease in leases:
        for kind, domain in lease.domains.items():
            held.setdefault((domain, kind), []).append(lease)
    found = []
    for (domain, kind), those in sorted(held.items(), key=lambda one: one[0]):
        share = policy.limits.at_once.get(kind)
        if share is not None:
            limit = allowed_at_once(share, sizes[domain])
            found.append(Used(domain, len(units(kind, those)), limit, sizes[domain]))
    return found
