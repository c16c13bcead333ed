"""A step's beginning and end stand in the ledger; a ledger that is down delays only what destroys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.interceptor import StepLines
from activities.machines import MachineActivities
from activities.ports import Unreadable
from activities.storage.ledger import LedgerLine
from medevac.incident import Outcome, StepKey, StepResult
from simulation.hazards import Effect
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run

KEY = StepKey(incident=INCIDENT, step="lift")
LIFT = sig.LiftRequest(key=KEY, cluster=CLUSTER, node="n", incident=INCIDENT)


@pytest.fixture
def lines(house: House) -> StepLines:
    return StepLines(house.ledger, house.bounded)


def step_lines(house: House) -> list[LedgerLine]:
    return [line for line in house.ledger.lines(INCIDENT) if line.kind == "step"]


def done(_: Any) -> StepResult:
    return StepResult(outcome=Outcome.DONE, reason="it is so")


@pytest.fixture
def slow_ledger(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writes hang until the event is set."""
    free = threading.Event()

    def hang(write: Callable[..., Any]) -> Callable[..., Any]:
        def hanging(*args: Any) -> Any:
            free.wait(30)
            return write(*args)

        return hanging

    for name in ("begin_step", "add_lines"):
        monkeypatch.setattr(house.ledger, name, hang(getattr(house.ledger, name)))
    yield free
    free.set()


def test_a_step_has_a_beginning_with_its_due_time_and_one_line(house: House, lines: StepLines) -> None:
    node = house.marked(house.busy_node())
    begun: list[Any] = []

    def look(_: Any) -> StepResult:
        begun.append(house.ledger.incident(INCIDENT))
        return done(_)

    result = run(lines.around(sig.ACT.name, look), house.act_request(node), whole_s=60)
    assert not result.unwritten
    (view,) = begun
    assert view.step == sig.ACT.name
    assert view.due_at is not None
    (line,) = step_lines(house)
    assert line.text == "act: done: it is so"
    assert line.at == result.at
    assert line.data["step"] == "act"


def test_a_mark_brings_the_incidents_row(house: House, lines: StepLines) -> None:
    node = house.busy_node()

    class Request(sig.LiftRequest):
        view: Any

    request = Request(**LIFT.model_dump(), view=house.view(node))
    run(lines.around(sig.MARK.name, done), request)
    assert house.ledger.incident(INCIDENT) is not None


def test_an_end_that_its_workflow_never_heard_is_told_again_not_done_again(house: House, lines: StepLines) -> None:
    calls: list[int] = []

    def once(_: Any) -> StepResult:
        calls.append(1)
        return StepResult(outcome=Outcome.DONE, proof={"made": len(calls)})

    first = run(lines.around(sig.LIFT.name, once), LIFT)
    second = run(lines.around(sig.LIFT.name, once), LIFT, attempt=2)
    assert len(calls) == 1
    assert second == first
    assert len(step_lines(house)) == 1
    assert not step_lines(house)[0].flagged


def test_a_verdict_told_again_keeps_its_check(house: House, lines: StepLines) -> None:
    from datetime import UTC, datetime

    from activities.ports import CheckResult
    from medevac.faults.classes import Covers

    check = CheckResult(passed=True, covers=(Covers.BUS,), started_at=datetime.now(UTC))

    def verify(_: Any) -> sig.VerifyResult:
        step = StepResult(outcome=Outcome.DONE, proof={"check": check.model_dump(mode="json")})
        return sig.VerifyResult(step=step, check=check)

    first = run(lines.around(sig.VERIFY.name, verify), LIFT)
    assert run(lines.around(sig.VERIFY.name, verify), LIFT, attempt=2) == first


def test_a_slow_ledger_delays_a_protective_step_by_half_a_second_at_most(
    house: House, lines: StepLines, slow_ledger: threading.Event
) -> None:
    began = time.monotonic()
    result = run(lines.around(sig.LIFT.name, done), LIFT)
    assert result.outcome is Outcome.DONE
    assert result.unwritten
    assert time.monotonic() - began < 5, "it waited for the ledger"
    # What the workflow hands over later is the very line that was meant, so it stands once.
    slow_ledger.set()
    handed_over = result.line(KEY, sig.LIFT.name, result.at)
    house.ledger.add_lines([handed_over])
    for _ in range(100):
        if house.bounded.start(lambda: True).result(5):
            break
    assert len(step_lines(house)) == 1


def test_a_dead_ledger_never_fails_a_protective_step(
    house: House, lines: StepLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise Unreadable("disk is gone")

    monkeypatch.setattr(house.ledger, "begin_step", dead)
    monkeypatch.setattr(house.ledger, "add_lines", dead)
    assert run(lines.around(sig.LIFT.name, done), LIFT).unwritten


def test_a_dead_ledger_stops_what_destroys_before_its_effect(
    house: House, lines: StepLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise Unreadable("disk is gone")

    machines = MachineActivities(house.registry, house.look, house.intents, house.ledger)
    act = house.act_request(house.marked(house.busy_node()))
    monkeypatch.setattr(house.ledger, "begin_step", dead)
    with pytest.raises(ApplicationError, match="the ledger can't be read"):
        run(lines.around(sig.ACT.name, machines.act), act)
    assert house.world.effects(verb=Effect.REBOOT) == []


def test_waiting_writes_no_line(house: House, lines: StepLines) -> None:
    from activities.failures import waits

    def waiting(_: Any) -> StepResult:
        raise waits("rack is full", 5)

    with pytest.raises(ApplicationError) as caught:
        run(lines.around(sig.ACQUIRE.name, waiting), LIFT)
    assert caught.value.next_retry_delay is not None
    assert step_lines(house) == []


def test_a_foreign_error_leaves_without_its_secrets_and_its_cause(house: House, lines: StepLines) -> None:
    def leak(_: Any) -> StepResult:
        try:
            raise OSError("Authorization: Bearer abc123def456")
        except OSError as error:
            raise RuntimeError(f"login failed with password=hunter2: {error}") from error

    with pytest.raises(ApplicationError) as caught:
        run(lines.around(sig.LIFT.name, leak), LIFT)
    text = str(caught.value)
    assert "login failed" in text
    assert "hunter2" not in text
    assert "abc123def456" not in text
    assert caught.value.__cause__ is None


def test_an_attempt_that_nobody_hears_any_more_writes_nothing(house: House, lines: StepLines) -> None:
    with pytest.raises(ApplicationError, match="time is over"):
        run(lines.around(sig.LIFT.name, done), LIFT, start_to_close_s=0.0)
    assert step_lines(house) == []
