"""What silences and windows hold of a plan, and what they never do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from medevac.faults.faultset import FaultSet
from medevac.policy.plan import Action, Mode, Plan, Rung
from medevac.policy.silences import Holds, Matcher, Silence, Subject, says_nothing
from tests.unit.policy.cases import NOW, decide, fault, faults, node, policy

CRITICAL = "xid/79"
PLANNED = "spot-interruption"


def under(found: FaultSet, given: dict[str, object] | None = None, mode: Mode = Mode.AUTO, **more: Any) -> Plan:
    return decide(under=policy(mode, windows=given or {}), faults=found, **more)


def silence(*holds: Holds, **matcher: object) -> Silence:
    return Silence(
        id="s1", by="otto", reason="we debug it", at=NOW - timedelta(hours=1), until=NOW + timedelta(hours=1),
        matcher=Matcher.model_validate(matcher or {"node": "n1"}), holds=holds,
    )  # fmt: skip


def window(holds: Holds, **more: object) -> dict[str, object]:
    return {"freeze": {"cron": "0 0 * * *", "lasts": "23h", "zone": "UTC", "holds": [holds], **more}}


def test_held_destruction_marks_and_waits() -> None:
    plan = under(faults(CRITICAL), silences=(silence(Holds.DESTRUCTIVE),))
    assert (plan.action, plan.mark) == (Action.WATCH, True)
    assert "otto" in plan.reasons[0]
    assert "we debug it" in plan.reasons[0]
    assert 0 < plan.watch_s <= 3_600


def test_a_held_mark_holds_everything_that_follows() -> None:
    plan = under(faults(CRITICAL), silences=(silence(Holds.MARK),))
    assert (plan.action, plan.mark) == (Action.WATCH, False)


def test_notify_alone_holds_neither() -> None:
    assert under(faults(CRITICAL), silences=(silence(Holds.NOTIFY),)).action is Action.ACT


@pytest.mark.parametrize(
    "matcher",
    [{"node": "n2"}, {"cluster": "d"}, {"pool": "serve"}, {"fault": "xid/48"}, {"fault_class": "degraded"},
     {"node": "n1", "fault": "xid/48"}, {"source": "kmsg"}],
)  # fmt: skip
def test_another_subject_is_not_silenced(matcher: dict[str, object]) -> None:
    assert under(faults(CRITICAL), silences=(silence(Holds.MARK, **matcher),)).action is Action.ACT


def test_a_fault_that_joins_and_is_not_silenced_is_acted_on() -> None:
    only = silence(Holds.DESTRUCTIVE, fault="xid/119")
    assert under(faults("xid/119"), silences=(only,)).action is Action.WATCH
    assert under(faults("xid/119", CRITICAL), silences=(only,)).action is Action.ACT


def test_one_that_is_over_or_was_ended_holds_nothing() -> None:
    one = silence(Holds.MARK)
    for changed in ({"until": NOW}, {"ended_at": NOW}):
        assert under(faults(CRITICAL), silences=(one.model_copy(update=changed),)).action is Action.ACT


def test_a_node_that_waits_for_a_person_keeps_doing_so() -> None:
    """It is handed over, not hidden, whatever is silenced."""
    every = tuple(silence(holds) for holds in Holds)
    plan = under(faults(CRITICAL), silences=every, hand_over="no rung is left")
    assert plan.action is Action.HAND_OVER


def test_our_mark_stays_under_any_silence() -> None:
    marked = node(marked_by="inc-1", schedulable=False)
    plan = under(faults(CRITICAL), silences=(silence(Holds.MARK),), node=marked, incident="inc-1")
    assert (plan.action, plan.mark) == (Action.WATCH, True)


def test_what_only_proves_a_repair_goes_on() -> None:
    plan = under(faults(), silences=(silence(Holds.MARK),), asked_rungs=(Rung.WAIT,), given=window(Holds.MARK))
    assert plan.action in (Action.ACT, Action.HAND_OVER)


def test_a_window_holds_what_it_says() -> None:
    assert under(faults(CRITICAL), given=window(Holds.NOTIFY)).action is Action.ACT
    held = under(faults(CRITICAL), given=window(Holds.DESTRUCTIVE, reason="year's end"))
    assert (held.action, held.mark) == (Action.WATCH, True)
    assert "`freeze`" in held.reasons[0]
    assert "year's end" in held.reasons[0]
    assert not under(faults(CRITICAL), given=window(Holds.MARK)).mark
    assert under(faults(CRITICAL), given=window(Holds.MARK, pools=["serve"])).action is Action.ACT


def test_in_a_window_that_asks_disruption_goes_on_with_a_yes() -> None:
    asking = window(Holds.DESTRUCTIVE, asks=True, reason="people are at work")
    plan = under(faults("xid/119"), given=asking)
    assert (plan.action, plan.mark) == (Action.ACT, True)
    assert plan.approval is not None
    assert plan.approval.why == ("window `freeze` asks until 2026-05-01 23:00 UTC: people are at work",)
    assert under(faults("xid/119"), given=window(Holds.DESTRUCTIVE, asks=True, pools=["serve"])).approval is None
    assert (
        under(faults("xid/119"), given={**asking, "also": window(Holds.DESTRUCTIVE)["freeze"]}).action is Action.WATCH
    )


def test_a_window_asks_nobody_where_the_world_sets_the_deadline() -> None:
    notice = fault(PLANNED, not_before=NOW + timedelta(minutes=30))
    assert under(faults(notice), given=window(Holds.DESTRUCTIVE, asks=True)).approval is None


@pytest.mark.parametrize("holds", [[Holds.NOTIFY], [Holds.MARK, Holds.DESTRUCTIVE]])
def test_a_window_asks_only_about_what_disrupts_a_marked_node(holds: list[Holds]) -> None:
    with pytest.raises(ValidationError, match="marked node"):
        policy(windows={"w": {"cron": "0 0 * * *", "lasts": "1h", "zone": "UTC", "asks": True, "holds": holds}})


def test_a_machine_that_the_provider_takes_before_then_is_left_in_time() -> None:
    notice = fault(PLANNED, not_before=NOW + timedelta(minutes=30))
    unheld = under(faults(notice))
    assert unheld.action is Action.ACT
    assert under(faults(notice), given=window(Holds.DESTRUCTIVE)).action is Action.ACT
    later = fault(PLANNED, not_before=NOW + timedelta(days=2))
    assert under(faults(later), given=window(Holds.DESTRUCTIVE)).action is Action.WATCH


def test_observe_only_says_what_it_would_do() -> None:
    plan = under(faults(CRITICAL), silences=(silence(Holds.MARK),), mode=Mode.OBSERVE)
    assert plan.action is Action.OBSERVE


# -- who is told ---------------------------------------------------------------------------------------------------


def subject(**given: object) -> Subject:
    made = {"cluster": "c", "pool": "train", "node": "n1", "fault": "thermal/gpu-temp", "fault_class": "transient"}
    return Subject.model_validate(made | given)


def test_nobody_is_told_of_what_is_silenced_unless_it_is_latched() -> None:
    quiet = [silence(Holds.NOTIFY)]
    assert says_nothing(quiet, [subject()], NOW)
    assert not says_nothing(quiet, [subject(), subject(fault_class="critical")], NOW)
    assert not says_nothing(quiet, [subject(fault_class="degraded")], NOW)
    assert not says_nothing(quiet, [subject(node="n2")], NOW)
    assert not says_nothing([silence(Holds.MARK)], [subject()], NOW)
    assert not says_nothing(quiet, [], NOW)


@pytest.mark.parametrize("days", [0, 7.01, -1])
def test_a_silence_ends_within_a_week(days: float) -> None:
    with pytest.raises(ValidationError):
        Silence.model_validate(silence(Holds.MARK).model_dump() | {"at": NOW, "until": NOW + timedelta(days=days)})


@pytest.mark.parametrize("matcher", [{}, {"node": ""}, {"node": None}, {"nodes": "n1"}])
def test_an_empty_matcher_is_refused(matcher: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Matcher.model_validate(matcher)
