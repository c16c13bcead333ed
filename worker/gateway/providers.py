"""How providers do: their scorecard over a window, and where a replacement would best be asked for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from activities.means import means
from activities.offers import unable
from activities.registry import Registry
from medevac.fleet.asking import asking, offered
from medevac.fleet.node import Capability, Node
from medevac.fleet.places import Offer
from medevac.fleet.scorecard import Card, Score
from medevac.model import Model
from medevac.policy.policy import Policy
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/providers", tags=["providers"])


class Row(Score):
    adjusted_price: float | None = None
    certified: bool
    """Proved on a real machine here; a simulated provider needs no proof."""
    proved: tuple[Capability, ...] = ()
    """What it was seen to do to one; people approve the rest."""


class Ranked(Model):
    provider: str
    adjusted_price: float | None
    why: str


class Providers(Model):
    days: float
    rows: tuple[Row, ...]
    pools: dict[str, tuple[Ranked, ...]]
    """Of each pool with `replacements` and each place of its machines: where plans ask for successors, best first."""


@router.get("", summary="Scorecard by provider, region, SKU and image")
async def providers(
    served: Served, person: SignedIn, days: Annotated[float, Query(ge=0.01, le=400)] = 30.0
) -> Providers:
    return await served.threads.run(_read, served, days)


def _read(served: Services, days: float) -> Providers:
    now = served.now()
    nodes = [node for cluster in served.registry.clusters() for node in cluster.nodes()]
    seen = served.stores.scorecards.observed(nodes, now - timedelta(days=days), now)
    card = Card(seen, served.scorecard.prices, served.scorecard.penalties)
    known = card.scores
    exempt = {one.name for one in served.registry.providers() if one.simulated}
    names = {score.place.provider for score in known}
    proofs, form = served.stores.certificates, served.registry.form
    proved = {name: proofs.proved(name, form(name)) for name in names if name not in exempt}
    policy = served.stores.policies.active().policy
    return Providers(
        days=days,
        rows=tuple(
            Row(
                **{name: getattr(score, name) for name in Score.model_fields},
                adjusted_price=score.adjusted,
                certified=score.place.provider in exempt or bool(proved[score.place.provider]),
                proved=tuple(sorted(proved.get(score.place.provider, ()))),
            )
            for score in known
        ),
        pools=_ranked(served.registry, policy, nodes, card),
    )


def _ranked(registry: Registry, policy: Policy, nodes: Iterable[Node], card: Card) -> dict[str, tuple[Ranked, ...]]:
    """By pool and where its machines are: one node stands for all of a place."""
    found: dict[str, tuple[Ranked, ...]] = {}
    for node in map(policy.place, nodes):
        pool, name = policy.pools.get(node.pool or ""), f"{node.pool} at {Offer.of(node)}"
        if pool is None or not pool.replacements or not node.gpus or name in found:
            continue
        able = means(registry, node.cluster, node.machine.provider).capabilities(node)
        known = node.model_copy(update={"machine": node.machine.model_copy(update={"capabilities": able})})
        cannot = unable(registry, known, offered(known, pool.replacements))
        choice = asking(known, pool.replacements, card, cannot=cannot)
        if Capability.REPLACE in choice.can(known).machine.capabilities:
            found[name] = tuple(
                Ranked(provider=str(one.source.offer), adjusted_price=one.adjusted, why=one.why)
                for one in choice.candidates
            )
    return found
