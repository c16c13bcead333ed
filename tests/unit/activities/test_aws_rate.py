"""The bucket that keeps to an API's rate: no more than its size at once, its refill from then on, and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from activities.providers.aws.rate import Bucket


class HandClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@given(size=st.integers(1, 20), per_s=st.floats(0.5, 20), steps=st.lists(st.floats(0, 3), max_size=80))
def test_never_more_than_the_bucket_allows(size: int, per_s: float, steps: list[float]) -> None:
    clock = HandClock()
    bucket = Bucket(size, per_s, clock)
    taken: list[float] = []
    for n, step in enumerate(steps):
        clock.now += step
        if bucket.turn(f"caller-{n}") == 0:
            taken.append(clock.now)
    for i, first in enumerate(taken):
        for j, last in enumerate(taken[i:], 1):
            assert j <= size + (last - first) * per_s + 1e-6


def test_who_comes_back_in_time_has_its_turn_in_the_order_of_asking() -> None:
    clock = HandClock()
    bucket = Bucket(1, 1.0, clock)
    assert bucket.turn("first") == 0
    waits = {who: bucket.turn(who) for who in ("second", "third", "fourth")}
    assert [round(wait) for wait in waits.values()] == [1, 2, 3]
    assert bucket.turn("third") == waits["third"], "asking again costs no second turn"
    clock.now += 2.0
    assert bucket.turn("third") == 0
    assert bucket.turn("second") == 0
    assert bucket.turn("fourth") > 0


def test_a_throttle_of_the_far_side_empties_it() -> None:
    clock = HandClock()
    bucket = Bucket(50, 5.0, clock)
    bucket.empty()
    assert bucket.turn("next") > 0
