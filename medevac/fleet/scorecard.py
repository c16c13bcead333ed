"""How each provider does: what was asked of it and came, what broke and could be mended, and what that makes it cost.

Pure. A rate of few cases is drawn towards that of the whole fleet, so that one bad boot of two damns nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median
from typing import NamedTuple, TypeVar

from pydantic import Field

from medevac.faults.classes import FaultClass
from medevac.fleet.places import Offer, Place
from medevac.incident import End
from medevac.model import Model
from medevac.policy.plan import Rung

FEW = 20
"""Below so many cases a rate says little, and it is said so."""
BOOTS_PRIOR = 20.0
DAYS_PRIOR = 100.0
"""Weight of the whole fleet's rate in that of one row: boots, and node-days."""
COSTLY = frozenset({FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT})
"""Classes that take a node out of service; the others cost its owner nothing."""
MENDED = frozenset({End.RETURNED, End.REPLACED})


class Boot(Model):
    """One machine that was asked for. `booted_at` is when it was proved as a ready node."""

    place: Place
    asked_at: datetime
    booted_at: datetime | None = None
    over: bool = True
    """False while it may still come."""
    refused: bool = False
    """The provider had none to give."""


class Repair(Model):
    """One rung on one machine, whose incident has gone on since."""

    place: Place
    rung: Rung
    mended: bool
    """The incident ended well, and needed no further rung."""


class Trouble(Model):
    place: Place
    fault_class: FaultClass


class Support(Model):
    """One case. `answered_at`: the first reply by a person."""

    place: Place
    opened_at: datetime
    answered_at: datetime | None = None


P = TypeVar("P", Boot, Repair, Trouble, Support)


class Observed(Model):
    """All of one window. Drills aren't among it."""

    days: float = Field(gt=0)
    nodes: dict[Place, int] = {}
    """As the clusters have them now; node-days are these times `days`."""
    boots: tuple[Boot, ...] = ()
    repairs: tuple[Repair, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    support: tuple[Support, ...] = ()


class Price(Model):
    """Of one machine and hour, in any one currency. What is left out fits everything."""

    provider: str
    region: str | None = None
    sku: str | None = None
    per_hour: float = Field(gt=0)

    def fits(self, place: Place) -> bool:
        return Offer(provider=self.provider, region=self.region, sku=self.sku).takes(place)


class Penalties(Model):
    """What trouble costs, in hours of a machine."""

    boot_hours: float = Field(default=1.0, ge=0)
    """Lost with each machine that was asked for and never came."""
    held_hours: float = Field(default=24.0, gt=0)
    """How long a machine is held that was asked for: what a lost boot is spread over."""
    fault_hours: float = Field(default=4.0, ge=0)
    """Lost with each fault that takes a node out of service, the work on it included."""


class Rate(Model):
    n: int
    of: int

    @property
    def share(self) -> float | None:
        return self.n / self.of if self.of else None


class Score(Model):
    place: Place
    nodes: int = 0
    node_days: float = 0.0
    boots: Rate
    """Came, of those asked for and over."""
    pending: int = 0
    refused: int = 0
    boot_s: float | None = None
    """Median, from asking to a ready node."""
    faults: dict[FaultClass, int] = {}
    per_1000_node_days: dict[FaultClass, float] = {}
    repairs: dict[Rung, Rate] = {}
    cases: int = 0
    answered: int = 0
    answer_s: float | None = None
    """Median, from opening a case to the first reply."""
    price: float | None = None
    penalty: float | None = None
    few: tuple[str, ...] = ()
    """What there are too few cases of to say much."""

    @property
    def adjusted(self) -> float | None:
        """Price plus penalty; None where no price is configured."""
        return None if self.price is None or self.penalty is None else self.price + self.penalty


@dataclass(frozen=True)
class Card:
    """The scorecard of one window."""

    seen: Observed
    prices: Sequence[Price]
    penalties: Penalties

    @cached_property
    def scores(self) -> list[Score]:
        """One for each place, by provider, region, SKU and image."""
        seen = self.seen
        boots, repairs = _by_place(seen.boots), _by_place(seen.repairs)
        troubles, support = _by_place(seen.troubles), _by_place(seen.support)
        places = sorted({*seen.nodes, *boots, *repairs, *troubles, *support})
        return [
            self._priced(_counted(place, seen, boots[place], repairs[place], troubles[place], support[place]))
            for place in places
        ]

    def known(self, places: Mapping[Offer, Place]) -> list[Score]:
        """All scores, and for offers of which none speaks, that of the whole fleet at their own price."""
        new = [at for offer, at in places.items() if not any(offer.takes(score.place) for score in self.scores)]
        return [*self.scores, *(self._priced(_counted(place, self.seen, (), (), (), ())) for place in new)]

    def _priced(self, score: Score) -> Score:
        price = price_of(score.place, self.prices)
        penalty = None if price is None else price * _lost_share(score, *self._rates, self.penalties)
        return score.model_copy(update={"price": price, "penalty": penalty})

    @cached_property
    def _rates(self) -> tuple[float, float]:
        """Of the whole fleet: boots that never came, and costly faults of a day."""
        over = [boot for boot in self.seen.boots if boot.over and not boot.refused]
        node_days = sum(self.seen.nodes.values()) * self.seen.days
        costly = sum(one.fault_class in COSTLY for one in self.seen.troubles)
        return _share(sum(boot.booted_at is None for boot in over), len(over)), _share(costly, node_days)


def scores(seen: Observed, prices: Sequence[Price] = (), penalties: Penalties | None = None) -> list[Score]:
    return Card(seen, prices, penalties or Penalties()).scores


def price_of(place: Place, prices: Iterable[Price]) -> float | None:
    """The most particular one that fits."""
    fitting = [price for price in prices if price.fits(place)]
    best = max(fitting, key=lambda p: (p.region is not None) + (p.sku is not None), default=None)
    return None if best is None else best.per_hour


class Choice(NamedTuple):
    offer: Offer
    adjusted: float | None
    why: str


def choose(offers: Sequence[Offer], known: Sequence[Score], not_again: Collection[Offer] = ()) -> list[Choice]:
    """Cheapest first by adjusted price; what has just not delivered (`not_again`) comes last.

    Without a price nothing is compared: such offers keep the order that they were given in, after the others.
    """
    ranked = [_choice(offer, [score for score in known if offer.takes(score.place)], not_again) for offer in offers]
    return sorted(
        ranked,
        key=lambda one: (one.offer in not_again, one.adjusted is None, one.adjusted or 0.0),
    )


def _choice(offer: Offer, scores: Sequence[Score], not_again: Collection[Offer]) -> Choice:
    priced = [score for score in scores if score.adjusted is not None]
    just = " it has just not delivered;" if offer in not_again else ""
    if not priced:
        return Choice(offer, None, f"{offer}:{just} no price is configured, so it isn't compared")
    weights = [score.nodes + score.boots.of + 1 for score in priced]
    mean = sum((score.adjusted or 0.0) * w for score, w in zip(priced, weights, strict=True)) / sum(weights)
    price = sum((score.price or 0.0) * w for score, w in zip(priced, weights, strict=True)) / sum(weights)
    return Choice(offer, mean, f"{offer}:{just} {price:.2f} and a penalty of {mean - price:.2f} an hour")


def _counted(
    place: Place, seen: Observed, boots: Sequence[Boot], repairs: Sequence[Repair], troubles: Sequence[Trouble],
    support: Sequence[Support],
) -> Score:  # fmt: skip
    over = [boot for boot in boots if boot.over and not boot.refused]
    times = [(boot.booted_at - boot.asked_at) for boot in over if boot.booted_at]
    answers = [one.answered_at - one.opened_at for one in support if one.answered_at]
    node_days = seen.nodes.get(place, 0) * seen.days
    faults = Counter(one.fault_class for one in troubles)
    tried, mended = Counter(one.rung for one in repairs), Counter(one.rung for one in repairs if one.mended)
    counts = {"boots": len(over), "repairs": len(repairs), "cases": len(support), "node-days": node_days}
    return Score(
        place=place,
        nodes=seen.nodes.get(place, 0),
        node_days=node_days,
        boots=Rate(n=len(times), of=len(over)),
        pending=sum(not boot.over and not boot.refused for boot in boots),
        refused=sum(boot.refused for boot in boots),
        boot_s=_median(times),
        faults=dict(faults),
        per_1000_node_days={kind: 1_000 * n / node_days for kind, n in faults.items()} if node_days else {},
        repairs={rung: Rate(n=mended[rung], of=of) for rung, of in tried.items()},
        cases=len(support),
        answered=len(answers),
        answer_s=_median(answers),
        few=tuple(f"{n:g} {what}" for what, n in counts.items() if 0 < n < FEW),
    )


def _lost_share(score: Score, lost: float, daily: float, penalties: Penalties) -> float:
    """Of the time that is paid for, how much buys nothing."""
    missing = score.boots.of - score.boots.n
    never = (missing + BOOTS_PRIOR * lost) / (score.boots.of + BOOTS_PRIOR)
    costly = sum(n for kind, n in score.faults.items() if kind in COSTLY)
    faults = (costly + DAYS_PRIOR * daily) / (score.node_days + DAYS_PRIOR)
    return never * penalties.boot_hours / penalties.held_hours + faults * penalties.fault_hours / 24


def _by_place(those: Iterable[P]) -> Mapping[Place, list[P]]:
    found: defaultdict[Place, list[P]] = defaultdict(list)
    for one in those:
        found[one.place].append(one)
    return found


def _share(n: float, of: float) -> float:
    return n / of if of else 0.0


def _median(times: Iterable[timedelta]) -> float | None:
    seconds = [time.total_seconds() for time in times]
    return median(seconds) if seconds else None
