"""Whatever the history and the world: never past the attempts, never beyond the machine, never beyond the mode."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Capability
from medevac.policy.climbing import NEEDS
from medevac.policy.plan import Action, Attempt, History, Latch, Mode, PastIncident, Plan, Rung
from medevac.policy.planner import Context, plan
from tests.unit.policy.cases import NOW, fault, faults, job, node, policy, version

VERSIONS = {mode: version(policy(mode)) for mode in Mode}
CODES = (
    "xid/79", "xid/119", "xid/48", "xid/64", "xid/74", "xid/13", "xid/63", "thermal/gpu-temp",
    "monitor/exporter-silent", "alert/Odd", "maintenance/reboot", "spot-interruption", "row-remap/pending",
    "condition/KernelDeadlock",
)  # fmt: skip
BOUNDED = (Rung.RESTART_AGENT, Rung.RESET_GPU, Rung.REBOOT, Rung.REINSTALL, Rung.REPLACE, Rung.TERMINATE, Rung.RMA)


@st.composite
def histories(draw: st.DrawFn) -> History:
    attempts = st.builds(
        Attempt,
        incident=st.sampled_from(["inc-0", "inc-1", "inc-2"]),
        rung=st.sampled_from(BOUNDED),
        fault_class=st.sampled_from(list(FaultClass)[:3]),
        fault=st.sampled_from(CODES),
        at=st.integers(0, 12).map(lambda days: NOW - timedelta(days=days)),
        outcome=st.sampled_from(["proved", "timed_out", "begun"]),
    )
    incidents = st.builds(
        PastIncident,
        incident=st.sampled_from(["inc-0", "inc-2", "inc-3"]),
        fault=st.sampled_from(CODES),
        fault_class=st.sampled_from(list(FaultClass)[:3]),
        opened_at=st.integers(0, 12).map(lambda days: NOW - timedelta(days=days)),
        end=st.sampled_from([None, "returned", "withdrawn", "replaced"]),
    )
    latches = st.builds(
        Latch,
        why=st.just("no"),
        faults=st.lists(st.sampled_from(CODES), min_size=1, max_size=3).map(tuple),
        by=st.just("ann"),
        until=st.integers(-5, 20).map(lambda hours: NOW + timedelta(hours=hours)),
    )
    return History(
        attempts=tuple(draw(st.lists(attempts, max_size=6))),
        incidents=tuple(draw(st.lists(incidents, max_size=4))),
        latches=tuple(draw(st.lists(latches, max_size=2))),
        succeeds=draw(st.none() | incidents),
        spares=draw(st.sampled_from([None, 0, 2])),
    )


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    codes = draw(st.lists(st.sampled_from(CODES), max_size=4, unique=True))
    found = [
        fault(
            code,
            first_seen=NOW - timedelta(minutes=draw(st.integers(0, 30))),
            actionable=draw(st.sampled_from([True, True, True, False])),
            not_before=draw(st.none() | st.integers(-2, 60).map(lambda h: NOW + timedelta(hours=h)))
            if code in ("maintenance/reboot", "spot-interruption")
            else None,
        )
        for code in codes
    ]
    where = node(
        virtual=draw(st.booleans()),
        reserved=draw(st.booleans()),
        local_data_in_use=draw(st.sampled_from([(), ("instance-store /scratch",), ("tmpfs checkpoint",)])),
        capabilities=frozenset(draw(st.lists(st.sampled_from(list(Capability)), unique=True))),
        pool=draw(st.sampled_from(["train", "train", "train", None])),
        gpus=draw(st.sampled_from([8, 8, 8, 0])),
        roles=draw(st.sampled_from([(), (), (), ("control-plane",)])),
        marked_by=draw(st.sampled_from([None, "inc-1", "inc-9"])),
        foreign_cordon=draw(st.sampled_from([None, None, "ann"])),
        hands_off=draw(st.sampled_from([None, None, "ann"])),
    )
    return Context(
        incident="inc-1",
        n=1,
        cluster="c",
        node_name="n1",
        node=draw(st.sampled_from([where, where, where, None])),
        workloads=draw(st.sampled_from([(), (job(),)])),
        faults=faults(*found),
        history=draw(histories()),
        opened_at=NOW,
        asked_rungs=tuple(draw(st.lists(st.sampled_from(BOUNDED), max_size=4))),
        hand_over=draw(st.sampled_from(["", "", "", "blocked"])),
        check_covers=frozenset(draw(st.sampled_from([list(Covers), list(Covers), [Covers.SERVICE], []]))),
        adopted=draw(st.booleans()),
        acting_since=draw(st.sampled_from([None, None, NOW + timedelta(hours=1)])),
    )


def counted(context: Context, made: Plan) -> int:
    """Attempts of the plan's rung for its class in the week, this one among them."""
    week = NOW - timedelta(days=7)
    known = [a for a in context.history.attempts if a.rung is made.rung and a.at >= week]
    same = [a for a in known if a.fault_class is made.fault_class]
    unwritten = context.asked_rungs.count(made.rung) - len([a for a in known if a.incident == "inc-1"])  # type: ignore[arg-type]
    return len(same) + max(0, unwritten) + 1


@given(contexts(), st.sampled_from(list(Mode)))
@settings(max_examples=600, derandomize=True, deadline=None)
def test_no_plan_goes_too_far(context: Context, mode: Mode) -> None:
    made = plan(context, VERSIONS[mode], NOW)
    assert made.reasons
    if mode is Mode.OBSERVE or context.node is None:
        assert made.action is not Action.ACT
        assert not made.mark
    if made.action is not Action.ACT:
        assert made.approval is None
        assert made.drain is None
        return
    where = context.node
    assert where is not None
    assert made.rung is not None
    assert where.pool == "train"
    assert where.gpus
    assert not where.roles
    assert context.acting_since is None or context.adopted
    if (need := NEEDS.get(made.rung)) is not None:
        assert need in where.machine.capabilities
    assert made.covers or not made.faults
    assert set(made.covers) <= context.check_covers
    if made.rung in BOUNDED:
        assert counted(context, made) <= 2
    if made.rung in (Rung.REINSTALL, Rung.REPLACE, Rung.TERMINATE):
        assert made.approval is not None
    if made.drain is not None and (where.foreign_cordon or where.hands_off):
        assert made.approval is not None
    if mode is Mode.APPROVE and made.rung not in (Rung.WAIT,):
        assert made.approval is not None
    if made.fault_class is FaultClass.MONITOR:
        assert made.rung is Rung.RESTART_AGENT
        assert not made.mark
    if made.rung in (Rung.REPLACE, Rung.TERMINATE, Rung.REINSTALL) and where.machine.local_data_in_use:
        assert made.approval is not None
        assert made.approval.threshold >= 2


@given(contexts(), st.sampled_from(list(Mode)), st.integers(1, 50))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_the_same_facts_give_the_same_plan(context: Context, mode: Mode, n: int) -> None:
    first, again = plan(context, VERSIONS[mode], NOW), plan(context, VERSIONS[mode], NOW)
    assert first == again
    assert plan(context.model_copy(update={"n": n}), VERSIONS[mode], NOW).hash == first.hash


@given(st.lists(st.sampled_from(["xid/13", "xid/43", "xid/63", "alert/Odd", "alert/Other"]), min_size=1, unique=True))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_warnings_never_disrupt(codes: list[str]) -> None:
    context = Context(
        incident="inc-1", n=1, cluster="c", node_name="n1", node=node(), faults=faults(*codes), history=History(),
        opened_at=NOW, check_covers=frozenset(Covers),
    )  # fmt: skip
    made = plan(context, VERSIONS[Mode.AUTO], NOW)
    assert made.action in (Action.OBSERVE, Action.RECORD)
    assert not made.mark
