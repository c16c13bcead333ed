"""Where a successor is asked for: where the policy says, the cheapest useful hour first, never twice in vain."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from medevac.fleet.asking import Asking, asking
from medevac.fleet.node import Capability, Machine, Node
from medevac.fleet.places import Offer, Place, Source
from medevac.fleet.scorecard import Boot, Card, Observed, Penalties, Price

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NODE = Node(
    cluster="c", name="n-1", gpus=8, sku="h100", topology={"region": "west", "rack": "r1"},
    machine=Machine(provider="aws", id="i-1", capabilities=frozenset({Capability.TERMINATE})),
)  # fmt: skip
OWN = Offer(provider="aws", region="west", sku="h100")
NEO, METAL = Offer(provider="neo", region="north"), Offer(provider="metal")
PRICES = (Price(provider="aws", per_hour=30), Price(provider="neo", per_hour=24), Price(provider="metal", per_hour=40))


def card(*boots: Boot, prices: tuple[Price, ...] = PRICES) -> Card:
    seen = Observed(days=30, nodes={Place("aws", "west", "h100"): 50}, boots=boots)
    return Card(seen, prices, Penalties())


def asked(listed: tuple[Offer, ...] = (NEO, METAL), of: Card | None = None, **given: Any) -> Asking:
    return asking(NODE, listed, of or card(), **{"cannot": {}, **given})


def order(found: Asking) -> list[str]:
    return [one.source.offer.provider for one in found.candidates]


def test_the_cheapest_useful_hour_comes_first_also_where_nothing_was_ever_asked_for() -> None:
    found = asked()
    assert order(found) == ["neo", "aws", "metal"]
    assert found.candidates[0].source == Source(offer=NEO, own=False)
    assert "24.00 and a penalty of" in found.candidates[0].why
    assert [one.source.own for one in found.candidates] == [False, True, False]


def test_a_provider_that_loses_many_is_dearer_than_its_price() -> None:
    at = Place("neo", "north", "h100")
    came = [Boot(place=Place("aws", "west", "h100"), asked_at=NOW, booted_at=NOW) for _ in range(200)]
    lost = [*came, *(Boot(place=at, asked_at=NOW) for _ in range(60))]
    cheap = (Price(provider="aws", per_hour=30), Price(provider="neo", per_hour=29.5))
    assert order(asked((NEO,), card(prices=cheap))) == ["neo", "aws"]
    assert order(asked((NEO,), card(*lost, prices=cheap))) == ["aws", "neo"]


def test_what_listed_is_where_the_machine_is_stands_once() -> None:
    assert order(asked((Offer(provider="aws", region="west"), NEO, NEO))) == ["neo", "aws"]


def test_where_nothing_came_is_not_asked_again_while_another_is_left() -> None:
    found = asked(nothing_came=(NEO,))
    assert (order(found), found.again) == (["aws", "metal"], True)
    assert "nothing came from neo/north in this incident" in found.notes
    over = asked(nothing_came=(NEO, OWN, METAL))
    assert not over.again
    assert len(over.candidates) == 3, "the ladder may still ask as it always did"


def test_where_one_may_still_come_nobody_else_is_asked() -> None:
    here = Source(offer=METAL, own=False)
    assert order(asked(asked=here, nothing_came=(NEO,))) == ["metal"]
    assert not asked(asked=here, nothing_came=(NEO,)).again


def test_who_cannot_is_left_out_and_says_why() -> None:
    found = asked(cannot={NEO: "no template", OWN: "aws can't replace this machine"})
    assert order(found) == ["metal"]
    assert "neo/north is not asked: no template" in found.notes
    assert Capability.REPLACE in found.can(NODE).machine.capabilities
    kept = NODE.model_copy(update={"machine": Machine(provider="aws", id="i-1")})
    assert found.can(kept) == kept, "what can't be ended isn't replaced"


def test_without_a_scorecard_its_own_provider_comes_first_and_it_is_said() -> None:
    found = asking(NODE, (NEO, METAL), None, cannot={})
    assert order(found) == ["aws", "neo", "metal"]
    assert any("scorecard can't be read" in note for note in found.notes)


def test_by_adjusted_price_useful_hours_are_cheaper_than_from_the_first_in_the_list() -> None:
    """A thousand replacements, each held for a day; one that never comes costs an hour and is asked for again."""
    boots = {"aws": 0.98, "neo": 0.70, "metal": 0.96}
    prices = {"aws": 30.4, "neo": 30.0, "metal": 29.8}
    offers = {"aws": OWN, "neo": NEO, "metal": METAL}
    priced = tuple(Price(provider=name, per_hour=price) for name, price in prices.items())

    def cost_of_an_hour(*, chosen: bool) -> float:
        chance, seen, paid, useful = random.Random(11), [], 0.0, 0.0
        for n in range(1_000):
            failed: list[Offer] = []
            while True:
                if chosen:
                    found = asked(of=card(*seen, prices=priced), nothing_came=failed)
                    at = found.candidates[0].source.offer
                else:
                    at = next(one for one in (NEO, OWN, METAL) if one not in failed)
                name = next(name for name, offer in offers.items() if offer == at)
                came = chance.random() < boots[name]
                place = Place(name, at.region or "unknown", "h100")
                when = NOW + timedelta(minutes=n)
                seen.append(Boot(place=place, asked_at=when, booted_at=when if came else None))
                if came:
                    paid, useful = paid + 24 * prices[name], useful + 24
                    break
                paid += prices[name]
                failed = [*failed, at] if len(failed) < 2 else []
        return paid / useful

    assert cost_of_an_hour(chosen=True) < cost_of_an_hour(chosen=False) - 0.2
