"""Emptying a node: nothing that must leave is left, or the step says who stands in the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities import evacuation
from activities.drain import Times, leaving, next_tier
from activities.evacuation import EvacuationActivities
from activities.planned import Notices
from activities.ports import Eviction, NotSent, Pod
from activities.precondition import RecentLook
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node, Workload
from medevac.incident import Outcome
from medevac.policy.plan import Drain
from simulation.hazards import Behaviour, Effect, Manner, Read
from tests.unit.activities.house import CLUSTER, INCIDENT, House, environment, run


@pytest.fixture
def drains(house: House) -> EvacuationActivities:
    return EvacuationActivities(house.registry, house.look)


def workload_pods(house: House, node: Node) -> list[Pod]:
    return [pod for pod in house.registry.cluster(CLUSTER).pods(node.name) if pod.tier == "workload"]


def evicted(house: House) -> list[str]:
    return [effect.target for effect in house.world.effects(verb=Effect.EVICT) if effect.applied]


def on_each_eviction(house: House, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Something happens right after each eviction call, and no look is older than the call before it."""
    cluster = house.registry.cluster(CLUSTER)
    evict = cluster.evict

    def watched(pod: Pod, grace_s: float) -> Eviction:
        answer = evict(pod, grace_s)
        then()
        return answer

    monkeypatch.setattr(cluster, "evict", watched)
    monkeypatch.setattr("activities.precondition.FRESH_S", 0.0)
    monkeypatch.setattr("activities.storage.fences.FRESH_S", 0.0)


def test_an_emptied_node_is_done_and_only_tolerating_daemons_are_left(
    house: House, drains: EvacuationActivities
) -> None:
    node = house.marked(house.busy_node())
    result = run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.DONE, result
    left = house.registry.cluster(CLUSTER).pods(node.name)
    assert leaving(left) == []
    assert result.proof["evicted"] == len(evicted(house)) > 0
    assert len(set(evicted(house))) == len(evicted(house)), "a pod was evicted twice"


def test_an_attempt_after_a_death_goes_on_and_evicts_nobody_twice(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    pods = leaving(house.registry.cluster(CLUSTER).pods(node.name))
    house.registry.cluster(CLUSTER).evict(pods[0], 5)  # then the worker died
    result = run(drains.evacuate, house.evacuate_request(node), attempt=2, ago_s=1)
    assert result.outcome is Outcome.DONE
    assert len(set(evicted(house))) == len(evicted(house))
    assert run(drains.evacuate, house.evacuate_request(node), attempt=3, ago_s=2).outcome is Outcome.ALREADY


def test_an_uncordon_in_mid_drain_stops_it(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    on_each_eviction(house, monkeypatch, lambda: house.world.uncordon(node.name, CLUSTER))
    result = run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.REFUSED
    assert result.who
    assert len(evicted(house)) == 1
    assert result.proof["evicted"] == 1


def test_a_freeze_between_two_evictions_stops_the_next_one_and_a_thaw_goes_on(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    with monkeypatch.context() as patch:
        on_each_eviction(house, patch, lambda: house.fences.freeze("all", "ada", "wait"))
        with pytest.raises(ApplicationError, match="frozen") as caught:
            run(drains.evacuate, house.evacuate_request(node))
        assert caught.value.next_retry_delay is not None
        assert caught.value.next_retry_delay <= timedelta(seconds=2)
    assert len(evicted(house)) == 1
    house.fences.thaw("all", "ada")
    house.fences.thaw("all", "bob")
    assert run(drains.evacuate, house.evacuate_request(node), attempt=2).outcome is Outcome.DONE


def test_a_look_is_fresh_before_each_call(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    node = house.marked(house.busy_node())
    looks: list[str] = []
    now = [100.0]
    monkeypatch.setattr("activities.precondition.time.monotonic", lambda: now[0])
    monkeypatch.setattr(house.look, "now", lambda pre: looks.append(pre.node))
    recent = RecentLook(house.look, house.pre(node))
    for moment, expected in ((100.0, 1), (100.4, 1), (100.6, 2), (101.0, 2), (101.2, 3)):
        now[0] = moment
        recent.before_call()
        assert len(looks) == expected


def test_a_lost_lease_stops_it(house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch) -> None:
    node = house.marked(house.busy_node())
    on_each_eviction(house, monkeypatch, lambda: house.guard.release(INCIDENT, datetime.now(UTC)))
    result = run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.REFUSED
    assert "was released" in result.reason
    assert len(evicted(house)) == 1


def test_a_disruption_budget_is_kept_and_named(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    pod = workload_pods(house, node)[0]
    house.world.budget("team/never", 1_000, CLUSTER)
    house.world.guard_pod(pod.uid, "team/never")
    result = run(drains.evacuate, house.evacuate_request(node, Drain.SOON, 0.6, 0.2))
    assert result.outcome is Outcome.BLOCKED
    assert result.who == "budget team/never"
    assert pod.uid in {left.uid for left in workload_pods(house, node)}
    assert house.world.effects(verb=Effect.DELETE) == []


def test_bypassing_a_budget_waits_for_the_deadline(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    pod = workload_pods(house, node)[0]
    house.world.budget("team/never", 1_000, CLUSTER)
    house.world.guard_pod(pod.uid, "team/never")
    request = house.evacuate_request(node, Drain.SOON, 0.6, 2.0, budget_bypass=True)
    before = datetime.now(UTC)
    assert run(drains.evacuate, request).outcome is Outcome.DONE
    (deleted,) = house.world.effects(verb=Effect.DELETE)
    assert pod.uid in deleted.target
    assert deleted.at >= before + timedelta(seconds=0.6)


def test_what_only_a_budget_holds_is_said_so_that_it_can_be_asked_about(
    house: House, drains: EvacuationActivities
) -> None:
    node = house.marked(house.busy_node())
    pod = workload_pods(house, node)[0]
    house.world.budget("team/never", 1_000, CLUSTER)
    house.world.guard_pod(pod.uid, "team/never")
    result = run(drains.evacuate, house.evacuate_request(node, Drain.SOON, 0.6, 0.2))
    assert result.proof["budgets"] == ["team/never"]


def test_a_yes_about_a_budget_never_ends_jobs_that_run_on_by_right(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    (mine,) = workload_pods(house, node)
    house.world.budget("team/never", 1_000, CLUSTER)
    house.world.guard_pod(mine.uid, "team/never")
    cluster = house.registry.cluster(CLUSTER)
    pods, other = cluster.pods, mine.model_copy(update={"uid": "other", "name": "other-0", "workload": "other/job"})
    monkeypatch.setattr(cluster, "pods", lambda name: [*pods(name), other])
    works = [Workload(name=mine.workload, ready_to_evict=True), Workload(name="other/job")]
    monkeypatch.setattr(cluster, "workloads", lambda _: works)
    result = run(drains.evacuate, house.evacuate_request(node, Drain.JOB_END, 0.6, 0.2))
    assert result.outcome is Outcome.BLOCKED
    assert result.who == "budget team/never"
    assert "budgets" not in result.proof


def test_a_budget_that_isn_t_waited_for_hands_over_long_before_the_deadline(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.evacuation.BUDGET_PATIENCE_S", 0.3)
    node = house.marked(house.busy_node())
    pod = workload_pods(house, node)[0]
    house.world.budget("team/never", 1_000, CLUSTER)
    house.world.guard_pod(pod.uid, "team/never")
    before = datetime.now(UTC)
    result = run(drains.evacuate, house.evacuate_request(node, Drain.SOON, 50, 0.2, budget_waits=False))
    assert datetime.now(UTC) - before < timedelta(seconds=40)
    assert (result.outcome, result.who) == (Outcome.BLOCKED, "budget team/never")
    assert [left.uid for left in workload_pods(house, node)] == [pod.uid]


def test_throttled_evictions_are_made_later(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    house.world.script(Effect.EVICT, Manner.THROTTLE, times=2, retry_after_s=0.1)
    assert run(drains.evacuate, house.evacuate_request(node)).outcome is Outcome.DONE


def test_pods_that_never_terminate_are_told_not_ignored(house: House, drains: EvacuationActivities) -> None:
    node = house.busy_node()
    house.world.inject(node.name, "xid/79", covers=(), cure=(), behaviour=Behaviour(not_ready=True))
    node = house.marked(node)
    result = run(drains.evacuate, house.evacuate_request(node, Drain.NOW, 0.5, 0.3))
    # Not drained, and not waited for: no time makes a silent node end them.
    assert result.outcome is Outcome.UNREACHABLE
    assert "were told to end" in result.reason
    assert [pod.terminating for pod in workload_pods(house, node)] == [True]


def test_a_cluster_that_cannot_be_listed_times_out(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    house.world.script(Read.PODS, Manner.UNREADABLE, times=None)
    result = run(drains.evacuate, house.evacuate_request(node, Drain.NOW, 0.3, 0.2))
    assert result.outcome is Outcome.TIMED_OUT
    assert "can't be read" in result.reason


def test_a_cancelled_drain_is_never_done(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    env = environment()
    on_each_eviction(house, monkeypatch, env.cancel)
    result = env.run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.CANCELLED
    assert len(evicted(house)) == 1


def test_a_cancel_ends_a_wait_for_jobs_at_once(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    env, ended = environment(), list[Outcome]()
    noticed = threading.Event()
    env.on_heartbeat = lambda *_: noticed.set()
    thread = threading.Thread(
        target=lambda: ended.append(env.run(drains.evacuate, house.evacuate_request(node, Drain.JOB_END, 3600)).outcome)
    )
    thread.start()
    assert noticed.wait(5)
    env.cancel()
    thread.join(5)
    assert ended == [Outcome.CANCELLED]


def test_a_job_that_runs_beyond_job_end_blocks_and_keeps_its_pods(house: House, drains: EvacuationActivities) -> None:
    node = house.busy_node()
    with house.world.write() as moment:
        moment.run("UPDATE jobs SET cooperative = 0")
    node = house.marked(node)
    before = {pod.uid for pod in workload_pods(house, node)}
    result = run(drains.evacuate, house.evacuate_request(node, Drain.JOB_END, 0.5))
    assert result.outcome is Outcome.BLOCKED
    assert result.who
    assert {pod.uid for pod in workload_pods(house, node)} == before
    works = {work.name: work for work in house.registry.cluster(CLUSTER).workloads(node.name)}
    running = result.proof["running"]
    assert isinstance(running, dict)
    assert set(running) == {pod.workload for pod in workload_pods(house, node)}
    for name, said in running.items():
        assert name in str(said)
        assert "GPU-hours" in str(said)
        assert str(said).endswith(f"(owner {works[name].owner})")


def test_jobs_that_are_not_listed_are_counted_where_people_are_asked_about_all(
    house: House, drains: EvacuationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.busy_node()
    with house.world.write() as moment:
        moment.run("UPDATE jobs SET cooperative = 0")
    node = house.marked(node)
    jobs = {pod.workload for pod in workload_pods(house, node)}
    listed = len(jobs) - 1
    monkeypatch.setattr(evacuation, "LISTED", listed)
    result = run(drains.evacuate, house.evacuate_request(node, Drain.JOB_END, 0.5))
    running = result.proof["running"]
    assert isinstance(running, dict)
    assert len(running) == listed + 1
    assert running["and 1 more"] == "and 1 more, of which nobody was told what they lose"
    assert result.who.endswith("and 1 more")


def test_a_vanished_node_refuses(house: House, drains: EvacuationActivities) -> None:
    node = house.marked(house.busy_node())
    result = run(drains.evacuate, house.evacuate_request(node.model_copy(update={"name": "gone"})))
    assert result.outcome is Outcome.REFUSED
    assert "gone" in result.reason


# -- whose turn it is ------------------------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str = "p", **fields: object) -> Pod:
    return Pod.model_validate({"uid": name, "namespace": "team", "name": name, "workload": "job"} | fields)


def test_tiers_leave_one_after_the_other_and_the_least_important_first() -> None:
    pods = [
        pod("csi", tier="storage"),
        pod("agent", tier="daemon"),
        pod("big", priority=9),
        pod("small", priority=1),
        pod("exporter", tier="daemon", tolerates_mark=True),
    ]
    assert [p.name for p in next_tier(leaving(pods))] == ["small", "big"]
    assert [p.name for p in next_tier(leaving(pods[:2]))] == ["agent"]
    assert [p.name for p in next_tier(leaving(pods[:1]))] == ["csi"]
    assert next_tier(leaving(pods[4:])) == []


def test_a_workload_that_tolerates_the_mark_must_leave_all_the_same() -> None:
    assert leaving([pod(tolerates_mark=True)])


@pytest.mark.parametrize(("drain", "workload", "free_at_s"), [
    (Drain.NOW, Workload(name="job"), 0),
    (Drain.SOON, Workload(name="job"), 0),
    (Drain.SOON, Workload(name="job", last_checkpoint=START - timedelta(hours=1)), 50),
    (Drain.SOON, Workload(name="job", last_checkpoint=START + timedelta(seconds=1)), 0),
    (Drain.SOON, Workload(name="job", hears_notice=True), 50),
    (Drain.SOON, Workload(name="job", hears_notice=True, ready_to_evict=True), 0),
    (Drain.NOW, Workload(name="job", hears_notice=True), 0),
    (Drain.CHECKPOINT, Workload(name="job"), 80),
    (Drain.CHECKPOINT, None, 80),
    (Drain.CHECKPOINT, Workload(name="job", last_checkpoint=START), 0),
    (Drain.CHECKPOINT, Workload(name="job", ready_to_evict=True), 0),
    (Drain.JOB_END, Workload(name="job", last_checkpoint=START + timedelta(seconds=1)), None),
    (Drain.JOB_END, Workload(name="job", ready_to_evict=True), 0),
    (Drain.JOB_END, None, None),
])  # fmt: skip
def test_how_long_a_job_may_keep_its_pods(drain: Drain, workload: Workload | None, free_at_s: float | None) -> None:
    times = Times.of(drain, START, 100, 10)
    at = [s for s in range(200) if times.may_go(pod(), workload, START + timedelta(seconds=s))]
    assert (at[0] if at else None) == free_at_s


def test_a_job_that_can_hear_of_it_gets_three_minutes_of_a_quarter_of_an_hour() -> None:
    """The kubelet shows the notice up to a minute later; without a floor it would be gone by then."""
    times = Times.of(Drain.SOON, START, 900, 30)
    hears = Workload(name="job", hears_notice=True)
    assert not times.may_go(pod(), hears, START + timedelta(seconds=179))
    assert times.may_go(pod(), hears, START + timedelta(seconds=180))
    saved = hears.model_copy(update={"last_checkpoint": START + timedelta(seconds=70)})
    assert times.may_go(pod(), saved, START + timedelta(seconds=71))


def test_a_pod_gets_at_most_thirty_seconds_when_the_machine_is_dying() -> None:
    assert Times.of(Drain.NOW, START, 10, 600).grace_s == 30
    assert Times.of(Drain.SOON, START, 900, 60).grace_s == 60


def test_a_death_does_not_eat_the_drains_time_but_the_steps_whole_time_ends_it(
    house: House, drains: EvacuationActivities
) -> None:
    node = house.marked(house.busy_node())
    request = house.evacuate_request(node, Drain.SOON, 3, 0.1)
    over = run(drains.evacuate, request, attempt=2, ago_s=60, whole_s=60)
    assert over.outcome is Outcome.BLOCKED
    assert evicted(house) == []
    assert run(drains.evacuate, request, attempt=2, ago_s=20, whole_s=60).outcome is Outcome.DONE


def test_jobs_get_no_second_patience_from_a_later_attempt() -> None:
    late = Times.of(Drain.CHECKPOINT, START, 100, 10, START + timedelta(seconds=150))
    assert late.may_go(pod(), None, START + timedelta(seconds=80))
    assert late.deadline == START + timedelta(seconds=150)


# -- a provider's own event --------------------------------------------------------------------------------------


class Planner:
    """Stands in a provider's place, which is told what it may do now."""

    def __init__(
        self, house: House, node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None
    ) -> None:
        self.told: list[tuple[str, int]] = []
        provider = house.registry.provider(node.machine.provider)

        def acknowledge(of: Node, incident: str) -> tuple[str, ...]:
            self.told.append((incident, len(workload_pods(house, of))))
            if error:
                raise error
            return ("the hook is completed",)

        monkeypatch.setattr(provider, "acknowledge", acknowledge, raising=False)
        monkeypatch.setattr(provider, "hold", lambda node: False, raising=False)


@pytest.mark.parametrize("planned", [True, False])
def test_the_provider_is_told_that_the_node_is_empty_when_it_was_emptied_for_its_event(
    house: House, monkeypatch: pytest.MonkeyPatch, planned: bool
) -> None:
    node = house.marked(house.busy_node())
    provider = Planner(house, node, monkeypatch)
    if planned:
        house.ledger.upsert_incident(house.view(node, fault_class=FaultClass.PLANNED, rev=1))
    drains = EvacuationActivities(house.registry, house.look, notices=Notices(house.registry, house.ledger))
    result = run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.DONE
    assert provider.told == ([(INCIDENT, 0)] if planned else []), "told with pods on it, or for a repair"
    assert ("the hook is completed" in result.reason) == planned


def test_a_provider_that_cannot_be_told_does_not_fail_the_drain(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    node = house.marked(house.busy_node())
    Planner(house, node, monkeypatch, NotSent("throttled, token=hunter2"))
    house.ledger.upsert_incident(house.view(node, fault_class=FaultClass.PLANNED, rev=1))
    drains = EvacuationActivities(house.registry, house.look, notices=Notices(house.registry, house.ledger))
    result = run(drains.evacuate, house.evacuate_request(node))
    assert result.outcome is Outcome.DONE
    assert "could not be told that it is empty" in result.reason
    assert "hunter2" not in result.reason
