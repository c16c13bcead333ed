from __future__ import annotations

from activities.ports import CheckResult
from medevac.faults.classes import Covers
from medevac.incident import StepKey
from tests.contracts.rigs import ChecksRig

DEEP = (Covers.BUS, Covers.MEMORY, Covers.THERMAL)


def key(n: int = 1) -> StepKey:
    return StepKey(incident="inc-1", step="verify", n=n)


def finish(rig: ChecksRig, covers: tuple[Covers, ...], n: int = 1) -> CheckResult:
    rig.checks.run(rig.node, covers, key(n))
    rig.pass_time()
    result = rig.checks.run(rig.node, covers, key(n))
    assert result is not None
    return result


class ChecksContract:
    """Subclass it with a fixture `rig` that gives a `ChecksRig` whose node offers all of `DEEP`."""

    def test_it_says_what_it_can_prove(self, rig: ChecksRig) -> None:
        assert set(DEEP) <= rig.checks.covers(rig.node)

    def test_a_check_takes_time_then_passes_on_a_healthy_node(self, rig: ChecksRig) -> None:
        assert rig.checks.run(rig.node, DEEP, key()) is None
        result = finish(rig, DEEP)
        assert result.passed
        assert set(result.covers) == set(DEEP)
        assert result.boot_id == rig.node.machine.boot_id

    def test_one_key_is_one_run(self, rig: ChecksRig) -> None:
        for _ in range(3):
            rig.checks.run(rig.node, DEEP, key())
        first = finish(rig, DEEP)
        rig.break_node()
        assert rig.checks.run(rig.node, DEEP, key()) == first
        assert rig.runs() == 1

    def test_another_key_is_another_run(self, rig: ChecksRig) -> None:
        first = finish(rig, DEEP)
        rig.break_node()
        second = finish(rig, DEEP, n=2)
        assert rig.runs() == 2
        assert (first.passed, second.passed) == (True, False)
        assert second.started_at > first.started_at
        assert second.reason

    def test_only_what_is_covered_is_found(self, rig: ChecksRig) -> None:
        rig.break_node()
        assert finish(rig, (Covers.BUS,)).passed
        assert not finish(rig, (Covers.BUS, Covers.MEMORY), n=2).passed

    def test_a_fault_that_hides_at_boot_shows_under_load(self, rig: ChecksRig) -> None:
        rig.break_node(under_load=True)
        assert finish(rig, (Covers.MEMORY,)).passed
        assert not finish(rig, (Covers.THERMAL,), n=2).passed

    def test_a_boot_during_the_check_is_no_pass(self, rig: ChecksRig) -> None:
        rig.checks.run(rig.node, DEEP, key())
        now = rig.reboot()
        result = finish(rig, DEEP)
        assert not result.passed
        assert result.boot_id != now.machine.boot_id

    def test_a_check_that_cannot_run_is_no_verdict(self, rig: ChecksRig) -> None:
        rig.flake()
        result = finish(rig, DEEP)
        assert result.flake
        assert not result.passed
        assert finish(rig, DEEP, n=2).passed
