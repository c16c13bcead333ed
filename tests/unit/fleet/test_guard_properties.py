"""Whatever is asked, given back, lost and renewed in whatever order: no limit is ever exceeded, and nobody starves."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from medevac.faults.classes import FaultClass
from medevac.fleet.census import domain_key
from medevac.fleet.guard_queue import allowed_at_once
from medevac.fleet.guard_state import Approved, Lease, domains_of
from medevac.fleet.lease import Granted
from medevac.fleet.limits import Limits, Share
from tests.unit.fleet.fleet import ROOMY, Fleet, node

CLASSES = (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT, FaultClass.PLANNED)
CLUSTERS = ("a", "b")
SIZE = 24
CHECKED = settings(
    derandomize=True, max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
YES = Approved("fleet-yes", fleet_wide=True)

nodes = st.tuples(st.sampled_from(CLUSTERS), st.integers(0, SIZE - 1))


def small_fleet(limits: Limits) -> Fleet:
    return Fleet([node(i, cluster=c, pool=f"p{i % 2}", racks=6) for c in CLUSTERS for i in range(SIZE)], limits)


class AnyOrder(RuleBasedStateMachine):
    """Two clusters of one provider under tight limits."""

    @initialize(pool=st.integers(1, 3), cluster=st.integers(1, 4), provider=st.integers(1, 4))
    def begin(self, pool: int, cluster: int, provider: int) -> None:
        self.fleet = small_fleet(
            Limits(
                at_once={
                    "rack": Share(count=1),
                    "pool": Share(count=pool),
                    "cluster": Share(count=cluster),
                    "provider": Share(count=provider),
                },
                breaker_level_percent=20,
            )
        )
        self.unasked: list[tuple[float, str, str]] = []
        """Grants that no fleet-wide yes covered: when, pool, node."""

    @rule(where=nodes, cause=st.sampled_from(CLASSES), gang=st.sampled_from([None, "g1"]), yes=st.booleans())
    def acquire(self, where: tuple[str, int], cause: FaultClass, gang: str | None, yes: bool) -> None:
        request = self.fleet.request(f"n{where[1]}", cluster=where[0], fault_class=cause, gang=gang)
        held = self.fleet.state.leases.get(request.lease_id)
        answer = self.fleet.ask(request, YES if yes else None)
        if not isinstance(answer, Granted):
            return
        if held is not None and not held.expired(self.fleet.now):
            assert (answer.epoch, answer.until) == (held.epoch, held.until)
            return
        if not yes:
            at = (self.fleet.now.timestamp(), domains_of(request)["pool"], f"{where[0]}/n{where[1]}")
            self.unasked.append(at)
        self.within_limits_with_others()
        assert self.fleet.ask(request, None) == answer

    @rule(where=nodes)
    def mark(self, where: tuple[str, int]) -> None:
        self.fleet.mark(f"n{where[1]}", cluster=where[0])

    @rule(where=nodes)
    def release(self, where: tuple[str, int]) -> None:
        lease_id = f"i-{where[0]}-n{where[1]}"
        self.fleet.release(lease_id)
        assert lease_id not in self.fleet.state.leases
        assert lease_id not in self.fleet.state.queue

    @precondition(lambda self: bool(self.fleet.state.leases))
    @rule(data=st.data())
    def holder_dies_and_is_reaped(self, data: st.DataObject) -> None:
        lease: Lease = data.draw(st.sampled_from(sorted(self.fleet.state.leases.values(), key=lambda x: x.epoch)))
        self.fleet.state, reaped = self.fleet.guard.reap(self.fleet.state, lease.lease_id, self.fleet.now)
        assert (reaped is not None) is lease.expired(self.fleet.now)

    @rule(seconds=st.sampled_from([1, 30, 700, 2_000, 4_000]))
    def time_passes(self, seconds: int) -> None:
        self.fleet.later(seconds)

    @rule(out=st.sets(st.integers(0, SIZE - 1), max_size=3))
    def others_take_nodes_out(self, out: set[int]) -> None:
        self.fleet.out = frozenset(f"n{i}" for i in out)

    @rule()
    def question_is_answered(self) -> None:
        self.fleet.state = self.fleet.state.put(question=None)

    @invariant()
    def leases_alone_never_exceed_a_limit(self) -> None:
        if not hasattr(self, "fleet"):
            return
        units: dict[str, set[str]] = {}
        for lease in self.fleet.state.leases.values():
            for kind in self.fleet.limits.at_once:
                units.setdefault(lease.domains[kind], set()).add(lease.unit)
        for key, held in units.items():
            share = self.fleet.limits.at_once[key.split(":")[0]]
            assert len(held) <= allowed_at_once(share, 0), key

    @invariant()
    def no_more_than_three_nodes_of_a_pool_in_an_hour_unasked(self) -> None:
        if not hasattr(self, "fleet"):
            return
        since = self.fleet.now.timestamp() - self.fleet.limits.fleet_window_s
        recent = {(pool, name) for at, pool, name in self.unasked if at > since}
        assert all(count <= 3 for count in Counter(pool for pool, _ in recent).values())

    @invariant()
    def one_incident_a_node(self) -> None:
        if hasattr(self, "fleet"):
            nodes = [lease.node_key for lease in self.fleet.state.leases.values()]
            assert len(nodes) == len(set(nodes))

    def within_limits_with_others(self) -> None:
        """What others have out was counted when the newest lease was granted."""
        newest = max(self.fleet.state.leases.values(), key=lambda lease: lease.epoch)
        if any(lease.unit == newest.unit for lease in self.fleet.state.leases.values() if lease is not newest):
            return
        census = self.fleet.census(newest.cluster)
        for kind, share in self.fleet.limits.at_once.items():
            key = newest.domains[kind]
            leases = [x for x in self.fleet.state.leases.values() if x.domains[kind] == key]
            out = census.out.get(key, frozenset()) - {x.node_key for x in leases}
            assert len({x.unit for x in leases}) + len(out) <= allowed_at_once(share, census.size(key)), key


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = CHECKED


@settings(derandomize=True, max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), pools=st.integers(1, 8), cause=st.sampled_from(CLASSES))
def test_a_storm_on_2048_nodes_disrupts_five_at_most(seed: int, pools: int, cause: FaultClass) -> None:
    """A false alert of one class, everywhere, at any pace, with repairs that end and requests that come again."""
    dice = random.Random(seed)
    fleet = Fleet([node(i, pool=f"p{i % pools}") for i in range(2048)])
    struck = dice.sample(range(2048), 400)
    requests = []
    disrupted: set[str] = set()
    questions = set()
    for i in struck:
        fleet.later(dice.choice([0, 0, 0, 1, 5]))
        request = fleet.request(f"n{i}", fault_class=cause)
        requests.append(request)
        if dice.random() < 0.5:
            fleet.ask(request.model_copy(update={"edge": "mark"}))
        for again in (request, dice.choice(requests)):
            answer = fleet.ask(again)
            if answer.kind == "ask":
                questions.add(answer.approval)
        disrupted |= fleet.disrupted()
        if disrupted and dice.random() < 0.2:
            fleet.release(dice.choice(requests).lease_id)
    fleet.later(dice.choice([10, 3_600, 20_000]))
    for request in requests:
        fleet.ask(request)
    assert len(disrupted | fleet.disrupted()) <= 5
    assert len(questions) == 1


@settings(derandomize=True, max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_nobody_starves(seed: int) -> None:
    """Worse faults keep coming, racks and pools refuse by turns; everyone who keeps asking is served."""
    dice = random.Random(seed)
    limits = ROOMY.model_copy(
        update={
            "at_once": {"rack": Share(count=1), "pool": Share(count=2), "cluster": Share(count=3)},
            "breaker_level_percent": 20,
        }
    )
    fleet = Fleet([node(i, pool=f"p{i % 3}", racks=5) for i in range(300)], limits)
    waiting = {}
    holding: dict[str, float] = {}
    patient = [f"n{dice.randrange(300)}" for _ in range(6)]
    fresh = iter(dice.sample([f"n{i}" for i in range(300) if f"n{i}" not in patient], 250))
    for name in set(patient):
        waiting[name] = fleet.request(name, fault_class=FaultClass.PLANNED)
    for tick in range(2_000):
        fleet.later(10)
        now = fleet.now.timestamp()
        for name, until in list(holding.items()):
            if now >= until:
                fleet.release(f"i-c-{name}")
                del holding[name]
        if tick % 8 == 0 and (new := next(fresh, None)) is not None:
            waiting[new] = fleet.request(new, fault_class=FaultClass.CRITICAL)
        for name in dice.sample(sorted(waiting), len(waiting)):
            if fleet.ask(waiting[name], YES).kind == "granted":
                del waiting[name]
                holding[name] = now + dice.choice([60, 120, 300])
        if not set(patient) & set(waiting):
            break
    assert not set(patient) & set(waiting)


def test_domains_are_named_alike_everywhere() -> None:
    fleet = small_fleet(Limits())
    request = fleet.request("n1", cluster="a")
    census = fleet.census("a")
    for kind in ("pool", "rack", "cluster", "provider"):
        assert domains_of(request)[kind] == domain_key(kind, request.domains[kind])
        assert census.size(domains_of(request)[kind]) > 0
