"""A mark has its own budget, never overrules a person, and doesn't depend on a guard that is down."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.marking import ALONE, AloneBudget, MarkActivities
from activities.ports import Mark, Unreadable
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import End, Outcome, State, StepKey
from simulation.hazards import Effect, Manner, Read
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run


@pytest.fixture
def marks(house: House) -> MarkActivities:
    return MarkActivities(house.registry, house.guard, house.census, house.bounded, ledger=house.ledger)


def mark_request(house: House, node: Node, incident: str = INCIDENT, **changes: Any) -> sig.MarkRequest:
    given: dict[str, Any] = {
        "key": StepKey(incident=incident, step="mark"),
        "cluster": CLUSTER,
        "node": node.name,
        "pool": node.pool,
        "identity": node.identity,
        "mark": Mark(incident=incident, code="xid-79", faults=("xid/79",), reason="test"),
        "fault_class": FaultClass.CRITICAL,
        "domains": node.domains,
        "plan_hash": "abc",
        "view": house.view(node, id=incident),
    }
    return sig.MarkRequest(**(given | changes))


def lift_request(node: Node, incident: str = INCIDENT) -> sig.LiftRequest:
    key = StepKey(incident=incident, step="lift")
    return sig.LiftRequest(key=key, cluster=CLUSTER, node=node.name, incident=incident)


def applied(house: House, verb: Effect) -> int:
    return sum(effect.applied for effect in house.world.effects(verb=verb))


def test_marks_once_and_lifts_only_its_own(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    assert run(marks.mark, mark_request(house, node)).outcome is Outcome.DONE
    assert run(marks.mark, mark_request(house, node), attempt=2).outcome is Outcome.ALREADY
    assert applied(house, Effect.MARK) == 1
    assert house.node(node.name).marked_by == INCIDENT
    assert run(marks.lift, lift_request(node, "inc-other")).outcome is Outcome.ALREADY
    assert house.node(node.name).marked_by == INCIDENT
    assert run(marks.lift, lift_request(node)).outcome is Outcome.DONE
    assert house.node(node.name).schedulable


def test_another_incidents_mark_is_left_alone(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    run(marks.mark, mark_request(house, node, "inc-other"))
    result = run(marks.mark, mark_request(house, node))
    assert result.outcome is Outcome.REFUSED
    assert "inc-other" in result.reason
    assert house.node(node.name).marked_by == "inc-other"


@pytest.mark.parametrize(
    "changes",
    [{}, {"state": State.HANDED_OVER}, {"state": State.ENDED, "end": End.WITHDRAWN, "cluster": "another"}],
    ids=["acting", "handed over", "of another cluster"],
)
def test_the_mark_of_an_open_incident_is_never_taken_over(
    house: House, marks: MarkActivities, changes: dict[str, Any]
) -> None:
    node = house.busy_node()
    run(marks.mark, mark_request(house, node, "inc-other"))
    house.ledger.upsert_incident(house.view(node, id="inc-other", **changes))
    assert run(marks.mark, mark_request(house, node)).outcome is Outcome.REFUSED
    assert house.node(node.name).marked_by == "inc-other"


def test_the_mark_that_a_closed_incident_left_becomes_the_next_ones(house: House, marks: MarkActivities) -> None:
    """A person has stopped an incident with a latched fault: its mark stays, and the node isn't stuck with it."""
    node = house.busy_node()
    run(marks.mark, mark_request(house, node, "inc-other"))
    house.ledger.upsert_incident(house.view(node, id="inc-other", state=State.ENDED, end=End.WITHDRAWN))
    result = run(marks.mark, mark_request(house, node))
    assert result.outcome is Outcome.DONE
    assert "inc-other" in result.reason
    now = house.node(node.name)
    assert (now.marked_by, now.schedulable) == (INCIDENT, False)
    assert run(marks.mark, mark_request(house, node), attempt=2).outcome is Outcome.ALREADY
    assert run(marks.lift, lift_request(node)).outcome is Outcome.DONE
    assert house.node(node.name).schedulable


def test_who_uncordoned_a_closed_incidents_node_said_no_to_that_one_only(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    run(marks.mark, mark_request(house, node, "inc-other"))
    house.world.uncordon(node.name, CLUSTER)
    house.ledger.upsert_incident(house.view(node, id="inc-other", state=State.ENDED, end=End.WITHDRAWN))
    assert run(marks.mark, mark_request(house, node)).outcome is Outcome.DONE
    now = house.node(node.name)
    assert (now.marked_by, now.schedulable) == (INCIDENT, False)


def test_a_gone_node_and_another_machine_are_refused(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    gone = mark_request(house, node).model_copy(update={"node": "gone"})
    assert run(marks.mark, gone).outcome is Outcome.REFUSED
    house.world.swap(node.name, CLUSTER)
    assert run(marks.mark, mark_request(house, node)).outcome is Outcome.REFUSED
    assert applied(house, Effect.MARK) == 0


def test_who_uncordoned_is_not_overruled(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    run(marks.mark, mark_request(house, node))
    house.world.uncordon(node.name, CLUSTER)
    result = run(marks.mark, mark_request(house, node))
    assert result.outcome is Outcome.REFUSED
    assert result.who
    assert house.node(node.name).schedulable


WORSE = Mark(incident=INCIDENT, code="xid-79", faults=("xid/79", "xid/119"), reason="test")


def test_a_standing_mark_says_what_is_worst_now_and_costs_no_budget(
    house: House, marks: MarkActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.busy_node()
    before = Mark(incident=INCIDENT, code="xid-119", faults=("xid/119",), reason="test")
    run(marks.mark, mark_request(house, node, mark=before))
    monkeypatch.setattr(house.guard, "mark_grant", lambda *_: pytest.fail("the budget was asked again"))
    assert run(marks.mark, mark_request(house, node, mark=WORSE, again=True)).outcome is Outcome.DONE
    assert [effect.detail["code"] for effect in house.world.effects(verb=Effect.MARK)] == ["xid-119", "xid-79"]
    assert run(marks.mark, mark_request(house, node, mark=WORSE, again=True), attempt=2).outcome is Outcome.ALREADY
    assert applied(house, Effect.MARK) == 2


def test_who_uncordoned_or_took_the_mark_away_is_not_overruled_by_a_worse_fault(
    house: House, marks: MarkActivities
) -> None:
    node = house.busy_node()
    run(marks.mark, mark_request(house, node))
    house.world.uncordon(node.name, CLUSTER)
    uncordoned = run(marks.mark, mark_request(house, node, mark=WORSE, again=True))
    assert (uncordoned.outcome, uncordoned.who) == (Outcome.REFUSED, "whoever uncordoned the node")
    house.registry.cluster(CLUSTER).lift(node.name, INCIDENT)
    lifted = run(marks.mark, mark_request(house, node, mark=WORSE, again=True))
    assert (lifted.outcome, lifted.who) == (Outcome.REFUSED, "whoever lifted the mark")
    assert house.node(node.name).schedulable
    assert applied(house, Effect.MARK) == 1


def test_beyond_the_budget_a_person_is_asked_and_no_node_is_marked(house: House, marks: MarkActivities) -> None:
    results = [
        run(marks.mark, mark_request(house, node, f"inc-{i}"))
        for i, node in enumerate(n for n in house.world.nodes(CLUSTER) if n.pool == "train")
    ]
    done = [r for r in results if r.outcome is Outcome.DONE]
    blocked = [r for r in results if r.outcome is Outcome.BLOCKED]
    assert 1 <= len(done) <= 3
    assert len(done) + len(blocked) == len(results)
    assert len({r.who for r in blocked}) == 1, "one question for all"
    assert blocked[0].who
    assert applied(house, Effect.MARK) == len(done)


def test_a_guard_that_is_down_leaves_a_few_marks_to_each_process(
    house: House, marks: MarkActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise Unreadable("postgresql://ledger:hunter2@db is down")

    monkeypatch.setattr(house.guard, "mark_grant", down)
    nodes = house.world.nodes(CLUSTER)[: ALONE + 1]
    with pytest.raises(ApplicationError, match="does not answer") as caught:
        run(marks.mark, mark_request(house, nodes[0]))
    assert "hunter2" not in str(caught.value)
    for i, node in enumerate(nodes[:ALONE]):
        assert run(marks.mark, mark_request(house, node, f"inc-{i}"), attempt=3).outcome is Outcome.DONE
    with pytest.raises(ApplicationError, match="without it"):
        run(marks.mark, mark_request(house, nodes[ALONE], "inc-last"), attempt=3)
    assert applied(house, Effect.MARK) == ALONE


def test_a_guard_that_is_only_busy_is_waited_for(
    house: House, marks: MarkActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, ask = threading.Event(), house.guard.mark_grant

    def busy(*given: Any) -> Any:
        assert free.wait(30)
        return ask(*given)

    first, second, third = house.world.nodes(CLUSTER)[:3]
    assert run(marks.mark, mark_request(house, first)).outcome is Outcome.DONE
    monkeypatch.setattr(house.guard, "mark_grant", busy)
    monkeypatch.setattr("activities.marking.GUARD_S", 0.05)
    with pytest.raises(ApplicationError, match="does not answer"):
        run(marks.mark, mark_request(house, second, "inc-2"), attempt=9)
    monkeypatch.setattr("activities.marking.BUSY_S", 0.0)
    assert run(marks.mark, mark_request(house, third, "inc-3"), attempt=9).outcome is Outcome.DONE, "it is lost"
    free.set()


def test_the_alone_budget_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("activities.marking.time.monotonic", lambda: now[0])
    budget = AloneBudget(2, 600)
    assert [budget.take(), budget.take(), budget.take()] == [True, True, False]
    now[0] = 599.9
    assert not budget.take()
    now[0] = 600.0
    assert budget.take()


def test_a_cluster_that_cannot_be_read_is_not_marked(house: House, marks: MarkActivities) -> None:
    house.world.script(Read.NODE, Manner.UNREADABLE)
    with pytest.raises(ApplicationError, match="can't be read"):
        run(marks.mark, mark_request(house, house.busy_node()))


def test_a_throttled_mark_is_made_later(house: House, marks: MarkActivities) -> None:
    node = house.busy_node()
    house.world.script(Effect.MARK, Manner.THROTTLE, retry_after_s=3)
    with pytest.raises(ApplicationError) as caught:
        run(marks.mark, mark_request(house, node))
    delay = caught.value.next_retry_delay
    assert delay is not None
    assert delay.total_seconds() >= 3
    assert run(marks.mark, mark_request(house, node), attempt=2).outcome is Outcome.DONE


def test_a_freeze_of_marks_holds_marks_and_never_a_lift(house: House, marks: MarkActivities) -> None:
    node, other = house.world.nodes(CLUSTER)[:2]
    assert run(marks.mark, mark_request(house, node)).outcome is Outcome.DONE
    house.fences.freeze("all", "ada", "wrong firmware", marks=True)
    with pytest.raises(ApplicationError, match="frozen"):
        run(marks.mark, mark_request(house, other, "inc-2"))
    assert run(marks.lift, lift_request(node)).outcome is Outcome.DONE
