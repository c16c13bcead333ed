"""How providers do: their scorecard over a window, and where a replacement would best be asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from medevac.fleet.node import Node
from medevac.fleet.scorecard import Offer, Score, choose, scores
from medevac.model import Model
from medevac.policy.policy import Policy
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/providers", tags=["providers"])


class Row(Score):
    adjusted_price: float | None = None
    certified: bool
    """Proved on a real machine here; a simulated provider needs no proof."""


class Ranked(Model):
    provider: str
    adjusted_price: float | None
    why: str


class Providers(Model):
    days: float
    rows: tuple[Row, ...]
    pools: dict[str, tuple[Ranked, ...]]
    """Of each pool with machines of several providers: where a replacement is best asked for first."""


@router.get("", summary="Scorecard by provider, region, SKU and image")
async def providers(
    served: Served, person: SignedIn, days: Annotated[float, Query(ge=0.01, le=400)] = 30.0
) -> Providers:
    return await served.threads.run(_read, served, days)


def _read(served: Services, days: float) -> Providers:
    now = served.now()
    nodes = [node for cluster in served.registry.clusters() for node in cluster.nodes()]
    seen = served.stores.scorecards.observed(nodes, now - timedelta(days=days), now)
    known = scores(seen, served.scorecard.prices, served.scorecard.penalties)
    exempt = {one.name for one in served.registry.providers() if one.simulated}
    names = {score.place.provider for score in known}
    certified = {name for name in names if name in exempt or served.stores.certificates.certified(name)}
    policy = served.stores.policies.active().policy
    return Providers(
        days=days,
        rows=tuple(
            Row(
                **{name: getattr(score, name) for name in Score.model_fields},
                adjusted_price=score.adjusted,
                certified=score.place.provider in certified,
            )
            for score in known
        ),
        pools={pool: _ranked(offers, known) for pool, offers in _offers(policy, nodes).items() if len(offers) > 1},
    )


def _offers(policy: Policy, nodes: list[Node]) -> dict[str, list[Offer]]:
    found: dict[str, dict[Offer, None]] = {}
    for node in map(policy.place, nodes):
        if node.pool in policy.pools and node.gpus:
            offer = Offer(node.machine.provider, node.topology.get("region"), node.sku)
            found.setdefault(node.pool or "", {})[offer] = None
    return {pool: sorted(offers, key=str) for pool, offers in found.items()}


def _ranked(offers: list[Offer], known: list[Score]) -> tuple[Ranked, ...]:
    return tuple(
        Ranked(provider="/".join(part for part in one.offer if part), adjusted_price=one.adjusted, why=one.why)
        for one in choose(offers, known)
    )
