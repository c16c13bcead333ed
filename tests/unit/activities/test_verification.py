"""Nothing is called healthy without a check that covers the fault, newer than the remedy, on the same boot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities import signatures as sig
from activities.ports import CheckResult
from activities.registry import NoChecks, Registry
from activities.verification import VerificationActivities
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from medevac.incident import Outcome, StepKey
from simulation.hazards import Effect, Manner, Read
from tests.unit.activities.house import CLUSTER, INCIDENT, House, environment, run


@pytest.fixture
def checks(house: House) -> VerificationActivities:
    return VerificationActivities(house.registry)


def request(node: Node, deadline_s: float = 3.0, **changes: Any) -> sig.VerifyRequest:
    given: dict[str, Any] = {
        "key": StepKey(incident=INCIDENT, step="verify"),
        "cluster": CLUSTER,
        "node": node.name,
        "covers": (Covers.BUS,),
        "not_before": datetime.now(UTC) - timedelta(seconds=1),
        "boot_id": node.machine.boot_id,
        "deadline_s": deadline_s,
    }
    return sig.VerifyRequest(**(given | changes))


def runs(house: House) -> int:
    return len([e for e in house.world.effects(verb=Effect.CHECK) if e.applied])


def test_a_healthy_node_passes_once(house: House, checks: VerificationActivities) -> None:
    node = house.busy_node()
    result = run(checks.verify, request(node))
    assert result.step.outcome is Outcome.DONE
    assert result.check is not None
    assert result.check.passed
    assert result.step.identity == node.identity
    assert run(checks.verify, request(node), attempt=2).step.outcome is Outcome.DONE
    assert runs(house) == 1, "the check was run again for the same key"


def test_a_sick_node_fails(house: House, checks: VerificationActivities) -> None:
    node = house.busy_node()
    house.world.inject(node.name, "xid/79", covers=(Covers.BUS,), cure=())
    assert run(checks.verify, request(node)).step.outcome is Outcome.FAILED


@pytest.mark.parametrize("covers", [(), (Covers.BUS,)])
def test_no_check_that_covers_it_refuses(house: House, covers: tuple[Covers, ...]) -> None:
    registry = Registry(
        clusters=house.parts.clusters, providers=house.parts.providers, chat=house.parts.chat, checks={}
    )
    assert isinstance(registry.checks(CLUSTER), NoChecks)
    result = run(VerificationActivities(registry).verify, request(house.busy_node(), covers=covers))
    assert result.step.outcome is Outcome.REFUSED
    assert "no check" in result.step.reason


def test_another_boot_or_a_gone_node_refuses(house: House, checks: VerificationActivities) -> None:
    node = house.busy_node()
    assert run(checks.verify, request(node, boot_id="another")).step.outcome is Outcome.REFUSED
    assert run(checks.verify, request(node).model_copy(update={"node": "gone"})).step.outcome is Outcome.REFUSED
    assert runs(house) == 0


def test_a_flake_is_no_verdict(house: House, checks: VerificationActivities) -> None:
    house.world.script(Read.CHECK, Manner.FLAKE, times=2)
    assert run(checks.verify, request(house.busy_node(), 10)).step.outcome is Outcome.DONE
    assert runs(house) == 3


def test_a_check_that_never_runs_is_given_up(house: House, checks: VerificationActivities) -> None:
    house.world.script(Read.CHECK, Manner.FLAKE, times=None)
    result = run(checks.verify, request(house.busy_node(), 20)).step
    assert result.outcome is Outcome.TIMED_OUT
    assert runs(house) == 4


@pytest.mark.parametrize(("changed", "why"), [
    ({"started_at": datetime(2020, 1, 1, tzinfo=UTC)}, "older than the remedy"),
    ({"boot_id": "another"}, "ran on boot another"),
    ({"covers": (Covers.LINK,)}, "did not cover bus"),
])  # fmt: skip
@pytest.mark.parametrize("passed", [True, False])
def test_a_result_about_something_else_proves_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], why: str, passed: bool
) -> None:
    node = house.busy_node()
    keys: list[StepKey] = []

    def answer(on: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult:
        keys.append(key)
        about = {"covers": covers, "started_at": datetime.now(UTC), "boot_id": on.machine.boot_id}
        return CheckResult.model_validate({"passed": passed} | about | changed)

    monkeypatch.setattr(house.registry.checks(CLUSTER), "run", answer)
    result = run(VerificationActivities(house.registry).verify, request(node)).step
    assert result.outcome is Outcome.TIMED_OUT
    assert why in result.reason
    assert len(set(map(str, keys))) == len(keys) > 1, "a stale result must not be read again"


def test_a_check_that_does_not_end_times_out(
    house: House, checks: VerificationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.registry.checks(CLUSTER), "run", lambda *_: None)
    assert run(checks.verify, request(house.busy_node(), 0.3)).step.outcome is Outcome.TIMED_OUT


def test_a_cancel_is_neither_passed_nor_failed(
    house: House, checks: VerificationActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = environment()
    monkeypatch.setattr(house.registry.checks(CLUSTER), "run", lambda *_: env.cancel())
    assert env.run(checks.verify, request(house.busy_node(), 60)).step.outcome is Outcome.CANCELLED


def test_a_death_before_the_check_began_does_not_eat_its_time(house: House, checks: VerificationActivities) -> None:
    node = house.busy_node()
    assert run(checks.verify, request(node, 2), attempt=2, ago_s=10, whole_s=30).step.outcome is Outcome.DONE
    assert run(checks.verify, request(node, 2), ago_s=31, whole_s=30).step.outcome is Outcome.DONE, "it has passed"
    other = request(house.idle_node("skyline"), 2, key=StepKey(incident="inc-2", step="verify"))
    assert run(checks.verify, other, ago_s=31, whole_s=30).step.outcome is Outcome.TIMED_OUT
