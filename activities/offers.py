"""Where successors could be asked for, as policy, providers and scorecard say; read where a policy gives a choice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta

from activities.clock import Clock, utcnow
from activities.failures import Bounded
from activities.ports import MakesElsewhere, Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.scorecards import Scorecards
from medevac.fleet.asking import Asking, asking, offered
from medevac.fleet.node import Capability, Node
from medevac.fleet.places import Offer, Source
from medevac.fleet.scorecard import Card, Observed, Penalties, Price

WINDOW = timedelta(days=30)
FRESH_S = 600.0
WAIT_S = 1.0
"""What a plan waits for the scorecard; the next one finds it read."""


class RecentCard:
    """The scorecard as it was a few minutes ago at most, read once for all who ask. Thread-safe."""

    def __init__(
        self, registry: Registry, scorecards: Scorecards, prices: Sequence[Price], penalties: Penalties,
        bounded: Bounded, clock: Clock = utcnow, wait_s: float = WAIT_S,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._scorecards = scorecards
        self._prices = prices
        self._penalties = penalties
        self._bounded = bounded
        self._clock = clock
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._reading: Future[Card] | None = None
        self._known: Card | None = None

    def card(self) -> Card:
        """Without prices nothing is compared, and nothing read. Raises `Unreadable` where it never could be read."""
        if not self._prices:
            return Card(Observed(days=1), (), self._penalties)
        with self._lock:
            if self._known is not None and time.monotonic() - self._read_at < FRESH_S:
                return self._known
            reading = self._reading = self._reading or self._bounded.start(self._read)
        try:
            return reading.result(self._wait_s)
        except Exception as error:
            if self._known is not None:
                return self._known
            raise Unreadable(f"the scorecard: {error}") from None
        finally:
            if reading.done():
                with self._lock:
                    self._reading = None if self._reading is reading else self._reading

    def _read(self) -> Card:
        now = self._clock()
        nodes = [node for cluster in self._registry.clusters() for node in cluster.nodes()]
        seen = self._scorecards.observed(nodes, now - WINDOW, now)
        found = Card(seen, self._prices, self._penalties)
        with self._lock:
            self._known, self._read_at = found, time.monotonic()
        return found


class Offers:
    def __init__(self, registry: Registry, recent: RecentCard, certified: Callable[[str, str], bool]) -> None:
        """`certified` is asked with a provider's name and form."""
        self._registry = registry
        self._recent = recent
        self._certified = certified

    def asking(
        self, node: Node, listed: Sequence[Offer], asked: Source | None, nothing_came: Collection[Offer]
    ) -> Asking:
        """`node` with what its own adapters can do."""
        offers = offered(node, listed)
        others, form = {offer.provider for offer in offers[1:]}, self._registry.form
        try:
            card: Card | None = self._recent.card()
        except Unreadable:
            card = None
        return asking(
            node,
            listed,
            card,
            cannot=unable(self._registry, node, offers),
            asked=asked,
            nothing_came=nothing_came,
            uncertified={name for name in others if not node.simulated and not self._certified(name, form(name))},
        )


def unable(registry: Registry, node: Node, offers: Iterable[Offer]) -> dict[Offer, str]:
    """Who can't make a successor of the node, and why. `node` with what its own adapters can do."""
    return {offer: why for offer in offers if (why := _cannot(registry, node, offer))}


def _cannot(registry: Registry, node: Node, offer: Offer) -> str:
    if offer == Offer.of(node):
        able = Capability.REPLACE in node.machine.capabilities
        return "" if able else f"{offer.provider} can't replace this machine"
    try:
        provider = registry.provider(offer.provider)
    except NotConfigured as error:
        return str(error)
    if not isinstance(provider, MakesElsewhere):
        return f"{offer.provider} makes successors of its own machines only"
    return provider.cannot_make(offer.asked(node))
