"""What a campaign orders of one node: its one rung, inside everything that holds for repairs."""

from __future__ import annotations

from medevac.faults.classes import Covers, FaultClass
from medevac.faults.faultset import OpenFault
from medevac.fleet.order import Order
from medevac.policy.plan import UNCLEAR, Action, Drain, History, Mode, Rung
from tests.unit.policy.cases import attempt, decide, fault, job, node, policy, said

ORDER = Order(campaign="drv-580", approval="campaign-drv-580", rung="reboot", drain="job_end")
TRIED = attempt(Rung.REBOOT, of="inc-1", fault_class=FaultClass.PLANNED)


def ordered(**given: object) -> OpenFault:
    order = ORDER.model_copy(update=given)
    return fault(order.code, fault_class=FaultClass.PLANNED, covers=(Covers.SERVICE,), order=order)


def test_the_ordered_rung_is_taken_without_asking_again() -> None:
    for mode in (Mode.APPROVE, Mode.AUTO):
        plan = decide(ordered(), under=policy(mode))
        assert (plan.action, plan.rung, plan.drain, plan.mark) == (Action.ACT, Rung.REBOOT, Drain.JOB_END, True)
        assert plan.approval is None
        assert plan.order == ORDER
    assert decide(ordered(rung="reinstall")).rung is Rung.REINSTALL, "which never goes by itself for a fault"


def test_observe_touches_nothing_for_a_campaign_either() -> None:
    plan = decide(ordered(), under=policy(Mode.OBSERVE))
    assert plan.action is Action.OBSERVE
    assert plan.order is None
    assert "mode observe" in plan.reasons[0]
    vanished = decide(ordered(), nowhere=True)
    assert (vanished.action, vanished.reasons[0]) == (Action.OBSERVE, "n1 is not in cluster c"), "noted by the campaign"


def test_what_the_list_could_not_know_is_asked() -> None:
    for where in (node(hands_off="storage-team"), node(foreign_cordon="kim")):
        plan = decide(ordered(), where=where)
        assert plan.approval is not None
    kept = node(local_data_in_use=("instance-store /scratch",))
    plan = decide(ordered(rung="reinstall"), where=kept, workloads=(job(),))
    assert plan.approval is not None
    assert "local data in use" in said(plan)


def test_a_real_fault_comes_first_and_by_its_own_rules() -> None:
    plan = decide(ordered(rung="reinstall"), "xid/79")
    assert plan.cause == "xid/79"
    assert plan.order is None


def test_a_rung_that_did_not_do_is_not_taken_again() -> None:
    plan = decide(
        ordered(), history=History(attempts=(TRIED,)), asked_rungs=(Rung.REBOOT,), failed="verify failed: no driver"
    )
    assert plan.action is Action.HAND_OVER


def test_a_call_that_may_never_have_been_made_is_made_once_more() -> None:
    unclear = TRIED.model_copy(update={"outcome": UNCLEAR})
    again = decide(ordered(), history=History(attempts=(unclear,)), asked_rungs=(Rung.REBOOT,), failed="no proof")
    assert (again.action, again.rung) == (Action.ACT, Rung.REBOOT)
    twice = decide(
        ordered(), history=History(attempts=(unclear, unclear)), asked_rungs=(Rung.REBOOT, Rung.REBOOT), failed="no"
    )
    assert twice.action is Action.HAND_OVER


def test_no_check_no_order() -> None:
    plan = decide(ordered(), check_covers=frozenset())
    assert plan.action is Action.HAND_OVER
    assert "no check covers" in said(plan)


def test_an_order_is_for_the_machine_on_the_list_and_no_other() -> None:
    here = node()
    assert decide(ordered(uid=here.uid, machine_id=here.machine.id), where=here).action is Action.ACT
    for listed in ({"machine_id": "m-old"}, {"machine_id": here.machine.id, "uid": "uid-old"}):
        plan = decide(ordered(**listed), where=here)
        assert (plan.action, plan.order, plan.mark) == (Action.OBSERVE, None, False)
        assert "old" in plan.reasons[0]
        assert "campaign drv-580 lists" in plan.reasons[0]


def test_the_machine_is_part_of_what_was_planned_where_the_list_says_it() -> None:
    here = node()
    bare, named = decide(ordered()), decide(ordered(uid=here.uid, machine_id=here.machine.id))
    assert bare.hash != named.hash
    assert bare.order is not None
    assert bare.order.model_dump(exclude=bare.order.unsaid).keys() == {
        "campaign", "approval", "rung", "drain", "image", "deadline_s",
    }, "plans of before keep their hash, and their questions with it"  # fmt: skip
