"""The guard's transaction: the pure guard's answers, whoever asks, however many at once, over restarts."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import sqlalchemy as sa

from activities.guard import store
from activities.guard.store import GuardStore
from activities.ports import Unreadable
from activities.storage.database import Database
from activities.storage.fences import Fences
from activities.storage.ledger import Ledger
from activities.storage.tables import breakers, grants, sightings
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalState, ApprovalView, Verdict, Vote, Waiter
from medevac.faults.classes import FaultClass
from medevac.fleet.guard import Guard
from medevac.fleet.guard_state import State
from medevac.fleet.lease import Ask, LeaseRef, LeaseRequest
from medevac.fleet.limits import Limits, Share
from medevac.policy.people import need
from medevac.policy.policy import Policy
from tests.integration.storage.conftest import FixedPolicy
from tests.integration.storage.racing import in_processes, race
from tests.unit.fleet.fleet import T0, Fleet, asked, granted, node, waiting

MINUTE = timedelta(minutes=1)
CLASSES = (FaultClass.CRITICAL, FaultClass.DEGRADED, FaultClass.TRANSIENT, FaultClass.PLANNED)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet([node(i, pool=f"p{i % 4}") for i in range(400)])


def ask(guard: GuardStore, fleet: Fleet, name: str, **more: object) -> object:
    request = fleet.request(name, **more)  # type: ignore[arg-type]
    return guard.acquire(request, fleet.now, fleet.census(request.cluster))


def answered(ask: Ask, requests: list[LeaseRequest], verdict: Verdict = Verdict.APPROVE) -> ApprovalView:
    """The question as the ledger has it, once two people answered it."""
    view: ApprovalView | None = None
    for each in requests:
        view = tally.join(
            view,
            ApprovalRequest(
                id=ask.approval,
                title=ask.reason,
                need=ask.need,
                fleet_wide=ask.fleet_wide,
                requested_by="medevac",
                requested_at=T0,
                expires_at=T0 + timedelta(hours=4),
                policy_version=1,
                waiter=Waiter(
                    incident=each.incident,
                    workflow_id=each.workflow_id,
                    cluster=each.cluster,
                    node=each.node,
                    plan_hash=each.plan_hash,
                    text="reboot",
                ),
            ),
            f"approval/{ask.approval}",
        )
    assert view is not None
    for voter in ("ann", "bob"):
        groups = ("approver", "capacity-owners")
        vote = Vote(
            approval=view.id, voter=voter, groups=groups, verdict=verdict, shown_hash=view.shown_hash, via="cli", at=T0
        )
        view, _ = tally.cast(view, vote, T0)
    result = tally.result(view, T0)
    assert result is not None
    return view.model_copy(update={"state": result.state, "result": result})


# -- leases ----------------------------------------------------------------------------------------------------


def test_a_lease_is_checked_renewed_and_given_back(guard: GuardStore, fleet: Fleet) -> None:
    first = granted(ask(guard, fleet, "n0"))
    ref = LeaseRef(lease_id=first.lease_id, epoch=first.epoch)
    assert guard.check(ref, fleet.now) is None
    assert "expired" in str(guard.check(ref, first.until))
    renewed = guard.renew(ref, fleet.now + MINUTE)
    assert renewed is not None
    assert renewed.until == first.until + MINUTE
    assert guard.check(ref, first.until) is None
    waiting(ask(guard, fleet, "n4"))
    assert guard.release(first.lease_id, fleet.now) == ["node/c/n4"]
    assert "released or never granted" in str(guard.check(ref, fleet.now))
    assert guard.renew(ref, fleet.now) is None
    assert guard.release(first.lease_id, fleet.now) == []
    assert granted(ask(guard, fleet, "n4")).epoch > first.epoch


def test_an_older_epoch_is_not_ours(guard: GuardStore, fleet: Fleet) -> None:
    first = granted(ask(guard, fleet, "n0"))
    second = granted(ask(guard, fleet, "n0", plan_hash="other"))
    assert f"epoch {second.epoch}" in str(guard.check(LeaseRef(lease_id=first.lease_id, epoch=first.epoch), fleet.now))


def test_a_restart_forgets_nothing(db: Database, policies: FixedPolicy, guard: GuardStore, fleet: Fleet) -> None:
    first = granted(ask(guard, fleet, "n0"))
    waiting(ask(guard, fleet, "n4"))
    restarted = GuardStore(db, policies)
    assert ask(restarted, fleet, "n0") == first
    assert waiting(ask(restarted, fleet, "n4")).holders == ("i-c-n0",)
    assert restarted.release("i-c-n0", fleet.now) == ["node/c/n4"]


def test_expired_leases_are_listed_and_reaped_once(guard: GuardStore, fleet: Fleet) -> None:
    first = granted(ask(guard, fleet, "n0"))
    assert guard.expired(fleet.now) == []
    assert guard.reap(first.lease_id, fleet.now) is None
    assert [lease.node for lease in guard.expired(first.until)] == ["n0"]
    waiting(guard.acquire(fleet.request("n4"), first.until, fleet.census()))
    reaped = guard.reap(first.lease_id, first.until)
    assert reaped is not None
    assert guard.reap(first.lease_id, first.until) is None
    assert guard.leases() == []


def test_a_freeze_is_seen_by_the_very_next_request(db: Database, guard: GuardStore, fleet: Fleet) -> None:
    Fences(db).freeze("cluster/c", "ann", "upgrade", at=T0)
    assert "ann: upgrade" in waiting(ask(guard, fleet, "n0")).reason
    granted(guard.mark_grant(fleet.request("n0"), fleet.now, fleet.census()))


def runaway(guard: GuardStore, fleet: Fleet) -> None:
    """The breaker of cluster c opens by rate."""
    for i in range(10):
        granted(ask(guard, fleet, "n0", incident=f"i{i}"))
        guard.release(f"i{i}", fleet.now)
        fleet.later(1)
    waiting(ask(guard, fleet, "n0"))


def test_a_breaker_is_closed_by_two_people(guard: GuardStore, fleet: Fleet) -> None:
    runaway(guard, fleet)
    assert [(b.cluster, b.cause) for b in guard.open_breakers()] == [("c", "critical")]
    assert "1 of 2 people" in guard.close_breaker("c", "critical", "ann", fleet.now)
    assert "is closed by ann and bob" in guard.close_breaker("c", "critical", "bob", fleet.now)
    assert "isn't open" in guard.close_breaker("c", "critical", "bob", fleet.now)
    fleet.later(60)
    granted(ask(guard, fleet, "n0"))


def test_a_vote_is_to_what_was_shown_and_the_next_voter_is_told(
    db: Database, policies: FixedPolicy, guard: GuardStore, fleet: Fleet
) -> None:
    runaway(guard, fleet)
    guard.close_breaker("c", "critical", "ann", fleet.now)
    assert [one.voters for one in guard.weighed_breakers(fleet.now)] == [("ann",)]
    fleet.later(60)
    # Through another process, which has read no vote yet.
    other = GuardStore(db, policies)
    for name in ("n4", "n8"):
        waiting(ask(other, fleet, name))
    lapsed = "ann's word of 03:00 UTC no longer counts: 2 more nodes showed a fault of class critical since"
    assert [(one.voters, one.lapsed) for one in guard.weighed_breakers(fleet.now)] == [((), (lapsed,))]
    said = guard.close_breaker("c", "critical", "bob", fleet.now)
    assert said == f"breaker c/critical stays open: 1 of 2 people want to close it; {lapsed}"
    assert [one.voters for one in other.weighed_breakers(fleet.now)] == [("bob",)]
    assert "is closed by bob and ann" in other.close_breaker("c", "critical", "ann", fleet.now)
    assert guard.open_breakers() == []


@pytest.mark.parametrize(("minutes", "closed"), [(30, True), (90, False)])
def test_a_vote_whose_time_nobody_wrote_down_is_as_old_as_its_breaker(
    db: Database, policies: FixedPolicy, guard: GuardStore, fleet: Fleet, minutes: int, closed: bool
) -> None:
    runaway(guard, fleet)
    with db.transaction() as connection:
        connection.execute(sa.update(breakers).values(votes=["ann"]))
    fleet.later(60.0 * minutes)
    said = GuardStore(db, policies).close_breaker("c", "critical", "bob", fleet.now)
    assert ("is closed by ann and bob" in said) is closed


# -- questions -------------------------------------------------------------------------------------------------


def storm(guard: GuardStore, fleet: Fleet, count: int = 7) -> Ask:
    answers = [ask(guard, fleet, f"n{i * 5}") for i in range(count)]
    return asked(answers[-1])


def test_a_yes_is_believed_from_the_ledger_only(db: Database, guard: GuardStore, fleet: Fleet) -> None:
    question = storm(guard, fleet)
    covered = fleet.request("n30", approval=question.approval)
    assert asked(guard.acquire(covered, fleet.now, fleet.census())).approval == question.approval
    Ledger(db).upsert_approval(answered(question, [covered]))
    for other in (
        fleet.request("n30", approval=question.approval, plan_hash="another plan"),
        fleet.request("n35", approval=question.approval),
        fleet.request("n30"),
    ):
        assert asked(guard.acquire(other, fleet.now, fleet.census())).approval != question.approval
    guard.release("i-c-n10", fleet.now)
    granted(guard.acquire(covered, fleet.now, fleet.census()))


def test_a_no_covers_nobody_and_the_next_is_asked_anew(db: Database, guard: GuardStore, fleet: Fleet) -> None:
    question = storm(guard, fleet)
    request = fleet.request("n30", approval=question.approval)
    Ledger(db).upsert_approval(answered(question, [request], Verdict.REJECT))
    assert asked(guard.acquire(request, fleet.now, fleet.census())).approval != question.approval


def test_a_yes_is_not_good_for_ever(db: Database, guard: GuardStore, fleet: Fleet) -> None:
    question = storm(guard, fleet)
    request = fleet.request("n30", approval=question.approval)
    Ledger(db).upsert_approval(answered(question, [request]))
    asked(guard.acquire(request, fleet.now + timedelta(hours=73), fleet.census()))


def test_a_question_stays_one_while_it_is_open_and_not_after_it_expired(
    db: Database, guard: GuardStore, fleet: Fleet
) -> None:
    question = storm(guard, fleet)
    view = answered(question, [fleet.request("n30")])
    open_view = view.model_copy(update={"state": ApprovalState.PENDING, "result": None, "votes": ()})
    Ledger(db).upsert_approval(open_view)
    fleet.later(3 * 3_600)
    assert asked(ask(guard, fleet, "n30")).approval == question.approval
    fleet.later(2 * 3_600)
    assert asked(ask(guard, fleet, "n30")).approval != question.approval


def test_a_question_that_was_never_opened_is_asked_anew(guard: GuardStore, fleet: Fleet) -> None:
    question = storm(guard, fleet)
    fleet.later(3_000)
    assert asked(ask(guard, fleet, "n30")).approval == question.approval
    fleet.later(1_000)
    assert asked(ask(guard, fleet, "n30")).approval != question.approval


def test_other_calls_do_not_touch_the_open_question(guard: GuardStore, fleet: Fleet) -> None:
    question = storm(guard, fleet)
    guard.release("i-c-n0", fleet.now)
    guard.reap("i-c-n5", fleet.now + timedelta(days=1))
    assert asked(ask(guard, fleet, "n30")).approval == question.approval


# -- the same as the pure guard --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_two_stores_on_one_database_answer_as_the_pure_guard_does(
    db: Database, policies: FixedPolicy, seed: int
) -> None:
    """Random requests, marks, releases, renewals, outages and time: every answer and the leases are the same."""
    dice = random.Random(seed)
    policies.limits = Limits(
        at_once={"rack": Share(count=1), "pool": Share(count=2), "cluster": Share(count=4)}, breaker_level_percent=5
    )
    fleet = Fleet([node(i, cluster=c, pool=f"p{i % 2}", racks=6) for c in "cd" for i in range(20)], policies.limits)
    who = Policy(name="x").who_may
    expires_s = Policy(name="x").approval_expires
    pure = Guard(policies.limits, need(who.fleet, (), expires_s), need(who.replace, (), expires_s))
    stores = [GuardStore(db, policies), GuardStore(db, policies)]
    state = State()
    epochs: dict[str, int] = {}
    for _ in range(150):
        store = dice.choice(stores)
        cluster, name = dice.choice("cd"), f"n{dice.randrange(20)}"
        match dice.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                request = fleet.request(name, cluster=cluster, fault_class=dice.choice(CLASSES))
                census = fleet.census(cluster)
                state, expected = pure.decide(state, request, fleet.now, census)
                assert store.acquire(request, fleet.now, census) == expected
                if expected.kind == "granted":
                    epochs[request.lease_id] = expected.epoch
            case 5:
                request = fleet.request(name, cluster=cluster, edge="mark")
                state, expected = pure.decide(state, request, fleet.now, fleet.census(cluster))
                assert store.mark_grant(request, fleet.now, fleet.census(cluster)) == expected
            case 6 | 7:
                lease_id = dice.choice([f"i-{cluster}-{name}", *epochs])
                state, wake = pure.release(state, lease_id)
                assert store.release(lease_id, fleet.now) == list(wake)
            case 8 if epochs:
                lease_id = dice.choice(list(epochs))
                ref = LeaseRef(lease_id=lease_id, epoch=epochs[lease_id])
                state, renewed = pure.renew(state, ref, fleet.now)
                assert store.renew(ref, fleet.now) == renewed
            case _:
                fleet.later(dice.choice([1, 60, 600]))
                fleet.out = frozenset(f"n{i}" for i in dice.sample(range(20), dice.randrange(3)))
                # A question that nobody opened is over after an hour, says the store; here nobody opens any.
                if state.question and fleet.now - state.question.opened_at >= timedelta(hours=1):
                    state = state.put(question=None)
        assert {x.lease_id for x in store.leases()} == set(state.leases)


# -- many at once ----------------------------------------------------------------------------------------------


def test_many_threads_never_exceed_a_limit(guard: GuardStore, roomy: Limits, fleet: Fleet) -> None:
    requests = [fleet.request(f"n{i}", fault_class=list(FaultClass)[i % 8], incident=f"i{i}") for i in range(32)]
    census = fleet.census()
    answers = race([lambda r=r: guard.acquire(r, T0, census) for r in requests])
    by_pool: dict[str, int] = {}
    for request, answer in zip(requests, answers, strict=True):
        if answer.kind == "granted":
            by_pool[str(request.pool)] = by_pool.get(str(request.pool), 0) + 1
    assert by_pool == {"p0": 3, "p1": 3, "p2": 3, "p3": 3}
    assert len(guard.leases()) == 12


def test_the_same_request_from_many_threads_is_one_grant(guard: GuardStore, fleet: Fleet) -> None:
    request, census = fleet.request("n0"), fleet.census()
    answers = race([lambda: guard.acquire(request, T0, census) for _ in range(20)])
    assert len({granted(answer).epoch for answer in answers}) == 1


SCRIPT = """
import json, sys, time
from activities.guard.store import GuardStore
from activities.storage.database import Database
from medevac.faults.classes import FaultClass
from medevac.fleet.limits import Limits, Share
from tests.integration.storage.conftest import FixedPolicy
from tests.unit.fleet.fleet import Fleet, node
url, cluster = sys.argv[1:]
limits = Limits(at_once={"provider": Share(count=2)}, fleet_nodes=1000, breaker_rate=1000, breaker_level_percent=20)
guard = GuardStore(Database(url, timeout_s=60), FixedPolicy(limits))
fleet = Fleet([node(i, cluster=cluster) for i in range(100)])
most, held = 0, []
for i in range(6):
    request = fleet.request(f"n{i % 4}", cluster=cluster, incident=f"{cluster}{i}", fault_class=list(FaultClass)[i])
    while guard.acquire(request, fleet.now, fleet.census(cluster)).kind != "granted":
        most = max(most, len(guard.leases()))
        if held:
            guard.release(held.pop(0), fleet.now)
        time.sleep(0.02)
    held.append(request.lease_id)
    most = max(most, len(guard.leases()))
for lease in held:
    guard.release(lease, fleet.now)
print(json.dumps(most))
"""


def test_three_clusters_in_three_processes_share_a_provider_limit_of_two(url: str) -> None:
    """Each gets all of its leases in the end, and at no time are there three."""
    seen = in_processes(SCRIPT, [[url, cluster] for cluster in "abd"])
    assert all(0 < int(str(most)) <= 2 for most in seen), seen


def test_a_mistake_about_one_request_does_not_undo_the_others(guard: GuardStore, fleet: Fleet) -> None:
    census = fleet.census()
    wrong = fleet.request("n1", asked_at=T0.replace(tzinfo=None))

    def ask_wrongly() -> object:
        try:
            return guard.acquire(wrong, T0, census)
        except TypeError as error:
            return error

    answers = race([ask_wrongly, *(lambda i=i: guard.acquire(fleet.request(f"n{i}"), T0, census) for i in (0, 2, 3))])
    assert isinstance(answers[0], TypeError)
    assert len(guard.leases()) == 3


def test_what_no_rule_looks_at_any_more_is_forgotten_but_never_a_lease(
    db: Database, guard: GuardStore, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "FORGET_EVERY", 1)
    granted(ask(guard, fleet, "n0"))
    fleet.later(40 * 86_400)
    guard.release("another", fleet.now)
    with db.reading() as connection:
        counts = [connection.execute(sa.select(sa.func.count()).select_from(t)).scalar() for t in (grants, sightings)]
    assert counts == [0, 0]
    assert [lease.node for lease in guard.leases()] == ["n0"]


def test_a_guard_that_cannot_be_reached_is_a_no(empty_url: str, policies: FixedPolicy, fleet: Fleet) -> None:
    database = Database(empty_url)
    guard = GuardStore(database, policies)
    request, census = fleet.request("n0"), fleet.census()
    for call in (
        lambda: guard.acquire(request, T0, census),
        lambda: guard.check(LeaseRef(lease_id="x", epoch=1), T0),
        lambda: guard.release("x", T0),
    ):
        with pytest.raises(Unreadable, match="run `medevac setup`"):
            call()
    database.upgrade()
    granted(guard.acquire(request, T0, census))
    database.close()
