"""Which conditions of a node are said, and when; by the objects as an API server shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from worker.intake.conditions import Conditions, Judged, Level, source_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = "2026-01-01T00:00:00Z"


def condition(
    kind: str,
    status: str,
    reason: str = "Because",
    message: str = "so",
    heard: str = LONG_AGO,
    since: str = LONG_AGO,
) -> Any:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": heard, "lastTransitionTime": since,
    }  # fmt: skip


def node(*conditions: Any, name: str = "n1", created: str = LONG_AGO) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "u", "creationTimestamp": created},
        "spec": {}, "status": {"conditions": list(conditions), "nodeInfo": {"bootID": "b"}},
    }  # fmt: skip


class Desk:
    def __init__(self, joining_s: float = 600) -> None:
        self.conditions = Conditions(joining_s)

    def hear(
        self,
        *conditions: Any,
        level: Level = Level.CHANGE,
        owed: tuple[str, ...] = (),
        held: bool = True,
        **more: Any,
    ) -> set[str]:
        """What is said: `Type=Status`."""
        judged = self.conditions.judge(node(*conditions, **more), NOW, level, owed)
        if held:
            self.conditions.held(judged)
        return said(judged)


def said(judged: Judged) -> set[str]:
    nodes: Any = judged.by_source.values()
    return {f"{one['type']}={one['status']}" for node in nodes for one in node["status"]["conditions"]}


def test_what_is_good_and_was_never_bad_is_not_said() -> None:
    desk = Desk()
    healthy = condition("Ready", "True"), condition("MemoryPressure", "False")
    assert desk.hear(*healthy, level=Level.RELIST) == set()
    assert desk.hear(*healthy, level=Level.RELIST) == set()


def test_a_change_is_said_once_and_taken_back_once() -> None:
    desk = Desk()
    assert desk.hear(condition("KernelDeadlock", "False")) == set()
    assert desk.hear(condition("KernelDeadlock", "True")) == {"KernelDeadlock=True"}
    assert desk.hear(condition("KernelDeadlock", "True", heard="2026-03-01T00:00:00Z")) == set()
    assert desk.hear(condition("KernelDeadlock", "False")) == {"KernelDeadlock=False"}
    assert desk.hear(condition("KernelDeadlock", "False"), level=Level.RELIST) == set()


def test_what_was_not_held_is_said_again() -> None:
    desk = Desk()
    bad = condition("KernelDeadlock", "True")
    assert desk.hear(bad, held=False) == {"KernelDeadlock=True"}
    assert desk.hear(bad) == {"KernelDeadlock=True"}
    assert desk.hear(bad) == set()


def test_what_still_holds_is_stated_at_every_listing() -> None:
    desk = Desk()
    bad = condition("KernelDeadlock", "True"), condition("Ready", "True")
    for level in (Level.RELIST, Level.RELIST, Level.RELIST):
        assert desk.hear(*bad, level=level) == {"KernelDeadlock=True"}


def test_another_reason_is_another_fault() -> None:
    desk = Desk()
    xid = [condition("AcceleratedHardwareReady", "False", f"NvidiaXID{n}Error") for n in (79, 95)]
    assert desk.hear(xid[0]) == {"AcceleratedHardwareReady=False"}
    assert desk.hear(xid[1]) == {"AcceleratedHardwareReady=False"}
    worded = condition("AcceleratedHardwareReady", "False", "NvidiaXID95Error", "the same in other words")
    assert desk.hear(worded) == set()


def test_what_another_raised_under_our_name_is_taken_back() -> None:
    desk = Desk()
    good = condition("Ready", "True"), condition("KernelDeadlock", "False")
    assert desk.hear(*good) == set()
    assert desk.hear(*good, level=Level.RELIST, owed=("KernelDeadlock",)) == {"KernelDeadlock=False"}
    assert desk.conditions.raised("n1") == set()


def test_what_will_be_raised_is_known_before_it_is_said() -> None:
    conditions = Conditions(0)
    sick = node(condition("KernelDeadlock", "True"), condition("Ready", "True"))
    judged = conditions.judge(sick, NOW, Level.CHANGE)
    assert conditions.raised("n1") == set()
    assert conditions.raised("n1", judged) == {"KernelDeadlock"}
    conditions.held(judged)
    assert conditions.raised("n1") == {"KernelDeadlock"}
    well = conditions.judge(node(condition("KernelDeadlock", "False")), NOW, Level.CHANGE)
    assert conditions.raised("n1", well) == {"KernelDeadlock"}, "not before it is taken back"
    conditions.held(well)
    assert conditions.raised("n1") == set()


def test_our_own_condition_and_facts_say_nothing() -> None:
    quiet = condition("MedevacUnhealthy", "True"), condition("DrainInProgress", "True")
    assert Desk().hear(*quiet, level=Level.RELIST) == set()


def test_a_silent_kubelet_is_said_by_ready_alone() -> None:
    desk = Desk()
    unknown = [condition(kind, "Unknown", "NodeStatusUnknown") for kind in ("Ready", "MemoryPressure")]
    assert desk.hear(*unknown) == {"Ready=Unknown"}
    assert desk.hear(condition("Ready", "False", "KubeletNotReady"), unknown[1]) == set(), "the same fault"
    assert desk.hear(condition("Ready", "True"), condition("MemoryPressure", "False")) == {"Ready=True"}


def test_a_node_that_joins_is_not_sick_until_its_time_is_over() -> None:
    desk = Desk(joining_s=600)
    created = (NOW - timedelta(minutes=2)).isoformat()
    joining = condition("Ready", "False", "KubeletNotReady"), condition("KernelDeadlock", "True")
    assert desk.hear(*joining, created=created) == {"KernelDeadlock=True"}
    assert desk.hear(*joining, created=created, level=Level.RELIST) == {"KernelDeadlock=True"}
    later = (NOW - timedelta(minutes=20)).isoformat()
    assert desk.hear(*joining, created=later) == {"Ready=False"}


def test_one_that_cannot_be_read_is_said_once_and_hides_no_other() -> None:
    desk = Desk()
    odd = condition("GPUHealthy", "Perhaps"), condition("KernelDeadlock", "True")
    assert desk.hear(*odd) == {"GPUHealthy=Perhaps", "KernelDeadlock=True"}
    assert desk.hear(*odd, level=Level.CHANGE) == set()


def test_a_condition_has_one_source_whatever_stands_beside_it() -> None:
    sources = {kind: source_of(kind) for kind in ("KernelDeadlock", "AcceleratedHardwareReady", "Ready", "Odd")}
    assert sources == {
        "KernelDeadlock": "npd", "AcceleratedHardwareReady": "eks_nma", "Ready": "k8s_node", "Odd": "k8s_node",
    }  # fmt: skip
    judged = Conditions(0).judge(
        node(*(condition(kind, "False") for kind in ("Ready", "KernelReady", "KernelDeadlock"))),
        NOW,
        Level.RELIST,
        ("KernelDeadlock",),
    )
    assert set(judged.by_source) == {"k8s_node", "eks_nma", "npd"}


def test_who_is_gone_is_forgotten() -> None:
    desk = Desk()
    desk.hear(condition("KernelDeadlock", "True"))
    assert desk.conditions.is_bad("n1")
    desk.conditions.gone("n1")
    assert not desk.conditions.is_bad("n1")
    assert len(desk.conditions) == 0


FRESH, HUNG = "2026-03-01T11:56:00Z", "2025-01-25T12:00:00Z"


def test_a8_what_a_removed_rule_left_behind_is_no_live_fault() -> None:
    desk = Desk()
    ready = condition("Ready", "True", heard=FRESH)
    left = condition("GPUFallenOffBus", "True", heard=HUNG)
    for level in Level:
        assert desk.hear(ready, left, level=level) == set()
    judged = desk.conditions.judge(node(ready, left), NOW, Level.RELIST)
    assert judged.stale == ("GPUFallenOffBus",)
    again = condition("GPUFallenOffBus", "True", heard=FRESH)
    assert desk.hear(ready, again) == {"GPUFallenOffBus=True"}, "its writer is back, and says it"


def test_a_fault_whose_writer_dies_is_still_taken_back() -> None:
    desk, ready = Desk(), condition("Ready", "True", heard=FRESH)
    bad = condition("KernelDeadlock", "True", heard=HUNG)
    assert desk.hear(ready, bad, level=Level.RELIST, owed=("KernelDeadlock",)) == set()
    assert desk.conditions.raised("n1") == {"KernelDeadlock"}
    assert desk.hear(ready, condition("KernelDeadlock", "False", heard=FRESH)) == {"KernelDeadlock=False"}


def test_who_never_renews_or_has_no_heartbeat_is_not_stale() -> None:
    desk, ready = Desk(), condition("Ready", "False", heard=HUNG)
    fresh = condition("MemoryPressure", "False", heard=FRESH)
    once = condition("NetworkUnavailable", "True", heard=HUNG)
    bare = {k: v for k, v in condition("KernelDeadlock", "True").items() if k != "lastHeartbeatTime"}
    assert desk.hear(ready, fresh, once, bare) == {"Ready=False", "NetworkUnavailable=True", "KernelDeadlock=True"}


def test_on_a_node_that_is_silent_as_a_whole_nothing_is_stale() -> None:
    ready = condition("Ready", "Unknown", heard="2026-03-01T10:30:00Z")
    left = condition("GPUFallenOffBus", "True", heard="2026-03-01T09:00:00Z")
    assert Desk().hear(ready, left) == {"Ready=Unknown", "GPUFallenOffBus=True"}


JUST_NOW = NOW.isoformat()
AN_HOUR_AGO = (NOW - timedelta(minutes=61)).isoformat()
NVRM = "ErrorCode:79 PCI:0000:3b:00 NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus. Recommended"


@pytest.mark.parametrize("since", [AN_HOUR_AGO, LONG_AGO])
def test_what_is_written_on_events_alone_is_said_however_long_ago(since: str) -> None:
    ready = condition("Ready", "True", heard=JUST_NOW)
    xid = condition("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", NVRM, heard=AN_HOUR_AGO, since=since)
    planned = condition("MaintenancePlanned", "True", "Planned", "on Friday", heard=AN_HOUR_AGO, since=since)
    judged = Desk().conditions.judge(node(ready, xid, planned), NOW, Level.RELIST)
    assert said(judged) == {"SysLogsXIDError=True", "MaintenancePlanned=True"}
    assert judged.stale == ()


def test_a_condition_that_a_script_wrote_once_holds_until_the_node_comes_back() -> None:
    once = condition("FabricBroken", "True", heard=AN_HOUR_AGO, since=AN_HOUR_AGO)
    before = condition("Ready", "True", heard=JUST_NOW)
    back = condition("Ready", "True", heard=JUST_NOW, since=JUST_NOW)
    assert Desk().hear(before, once, level=Level.RELIST) == {"FabricBroken=True"}
    assert Desk().hear(back, once, level=Level.RELIST) == set()
    assert Desk().hear(condition("Ready", "False", heard=JUST_NOW, since=JUST_NOW), once) == {
        "Ready=False", "FabricBroken=True",
    }  # fmt: skip


def test_what_was_renewed_and_is_no_more_is_silent_on_a_node_that_never_went() -> None:
    left = condition("GPUFallenOffBus", "True", heard=AN_HOUR_AGO)
    assert Desk().hear(condition("Ready", "True", heard=JUST_NOW), left, level=Level.RELIST) == set()


def test_a_condition_that_names_one_more_fault_says_so_at_once_however_small() -> None:
    desk = Desk()

    def xids(*codes: int) -> Any:
        lines = "; ".join(f"NVRM: Xid (PCI:0000:3b:00): {code}, x" for code in codes)
        return condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", lines)

    assert desk.hear(xids(79, 48)) == {"AcceleratedHardwareReady=False"}
    assert desk.hear(xids(79, 48, 74)) == {"AcceleratedHardwareReady=False"}
    assert desk.hear(xids(74, 48, 79)) == set(), "the same, in another order"
    assert desk.hear(condition("AcceleratedHardwareReady", "True")) == {"AcceleratedHardwareReady=True"}
