"""Counts become rates that say how little they rest on, and prices that trouble makes dearer."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from medevac.faults.classes import FaultClass
from medevac.fleet.places import Offer, Place
from medevac.fleet.scorecard import (
    Boot,
    Observed,
    Penalties,
    Price,
    Repair,
    Score,
    Support,
    Trouble,
    choose,
    scores,
)
from medevac.policy.plan import Rung

NOW = datetime(2026, 5, 1, tzinfo=UTC)
A, B = Place("cloud-a", "west", "h100", "img-1"), Place("cloud-b", "west", "h100", "img-1")


def boot(place: Place, took_s: float | None = 150.0, **given: bool) -> Boot:
    return Boot(
        place=place, asked_at=NOW, booted_at=None if took_s is None else NOW + timedelta(seconds=took_s), **given
    )


def one(seen: Observed, place: Place = A, prices: tuple[Price, ...] = ()) -> Score:
    return next(score for score in scores(seen, prices) if score.place == place)


def test_what_was_asked_for_and_came_is_counted_with_its_time() -> None:
    boots = [boot(A, 100), boot(A, 200), boot(A, 300), boot(A, None)]
    boots += [boot(A, None, over=False), boot(A, None, refused=True)]
    score = one(Observed(days=7, boots=tuple(boots)))
    assert (score.boots.n, score.boots.of, score.pending, score.refused) == (3, 4, 1, 1)
    assert score.boot_s == 200
    assert score.few == ("4 boots",)


def test_faults_repairs_and_support_stand_with_their_counts() -> None:
    seen = Observed(
        days=10,
        nodes={A: 50},
        troubles=(Trouble(place=A, fault_class=FaultClass.CRITICAL),) * 2,
        repairs=(Repair(place=A, rung=Rung.REBOOT, mended=True), Repair(place=A, rung=Rung.REBOOT, mended=False)),
        support=(
            Support(place=A, opened_at=NOW, answered_at=NOW + timedelta(hours=3)),
            Support(place=A, opened_at=NOW),
        ),
    )
    score = one(seen)
    assert score.node_days == 500
    assert score.per_1000_node_days == {FaultClass.CRITICAL: 4.0}
    assert (score.repairs[Rung.REBOOT].n, score.repairs[Rung.REBOOT].of) == (1, 2)
    assert (score.cases, score.answered, score.answer_s) == (2, 1, 3 * 3_600)
    assert score.few == ("2 repairs", "2 cases")


def test_nothing_asked_is_no_rate() -> None:
    score = one(Observed(days=1, nodes={A: 1}))
    assert score.boots.share is None
    assert score.adjusted is None


def test_the_most_particular_price_counts() -> None:
    prices = (
        Price(provider="cloud-a", per_hour=2),
        Price(provider="cloud-a", region="west", sku="h100", per_hour=3),
        Price(provider="cloud-b", per_hour=9),
    )
    assert one(Observed(days=1, nodes={A: 1}), prices=prices).price == 3


def fleet(seed: int, boots: int, nodes: int) -> Observed:
    """Of four clouds: A cheapest and often silent after its yes, B with many faults, C hot, D good and dear."""
    chance = random.Random(seed)
    never = {"a": 0.2, "b": 0.004, "c": 0.004, "d": 0.004}
    daily = {"a": 0.004, "b": 0.12, "c": 0.05, "d": 0.004}
    places = {name: Place(f"cloud-{name}", "west", "h100", "img") for name in never}
    return Observed(
        days=30,
        nodes=dict.fromkeys(places.values(), nodes),
        boots=tuple(
            boot(place, None if chance.random() < never[name] else 150)
            for name, place in places.items()
            for _ in range(boots)
        ),
        troubles=tuple(
            Trouble(place=place, fault_class=FaultClass.CRITICAL)
            for name, place in places.items()
            for _ in range(nodes * 30)
            if chance.random() < daily[name]
        ),
    )


PRICES = tuple(
    Price(provider=f"cloud-{name}", per_hour=price)
    for name, price in {"a": 2.00, "b": 2.02, "c": 2.03, "d": 2.015}.items()
)
OFFERS = [Offer(provider=f"cloud-{name}") for name in "abcd"]


def test_the_chosen_order_changes_with_what_trouble_costs() -> None:
    seen = fleet(7, 500, 100)
    free = Penalties(boot_hours=0, fault_hours=0)
    assert [one.offer.provider[-1] for one in choose(OFFERS, scores(seen, PRICES, free))] == ["a", "d", "b", "c"]
    assert [one.offer.provider[-1] for one in choose(OFFERS, scores(seen, PRICES))] == ["d", "a", "c", "b"]


def test_the_ledgers_rates_come_to_those_that_were_put_in() -> None:
    found = {score.place.provider: score for score in scores(fleet(3, 5_000, 200))}
    share = found["cloud-a"].boots.share
    assert share == pytest.approx(0.8, abs=0.02)
    assert found["cloud-b"].per_1000_node_days[FaultClass.CRITICAL] == pytest.approx(120, rel=0.05)


def test_one_bad_boot_of_two_damns_nobody() -> None:
    many = tuple(boot(B) for _ in range(500))
    seen = Observed(days=30, nodes={A: 10, B: 10}, boots=(*many, boot(A), boot(A, None)))
    prices = (Price(provider="cloud-a", per_hour=2.0), Price(provider="cloud-b", per_hour=2.02))
    offers = [Offer(provider="cloud-b"), Offer(provider="cloud-a")]
    assert choose(offers, scores(seen, prices))[0].offer.provider == "cloud-a"


def test_who_has_just_not_delivered_comes_last() -> None:
    known = scores(fleet(7, 100, 100), PRICES)
    ranked = choose(OFFERS, known, not_again=OFFERS[3:])
    assert ranked[-1].offer.provider == "cloud-d"
    assert "has just not delivered" in ranked[-1].why


def test_without_a_price_nothing_is_compared() -> None:
    ranked = choose([Offer(provider="x"), OFFERS[3]], scores(fleet(7, 10, 10), PRICES))
    assert [one.offer.provider for one in ranked] == ["cloud-d", "x"]
    assert ranked[-1].adjusted is None
