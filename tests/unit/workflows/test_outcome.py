"""How a step ended that gave no answer, whichever way the server says so."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from medevac.incident import Outcome
from workflows.steps import FROZEN, outcome_of, ran_out

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def error(cause: BaseException, retry: RetryState = RetryState.TIMEOUT) -> ActivityError:
    found = ActivityError(
        "Activity task failed", scheduled_event_id=1, started_event_id=2, identity="w", activity_type="act",
        activity_id="1", retry_state=retry,
    )  # fmt: skip
    found.__cause__ = cause
    return found


def timer(last: BaseException | None) -> ActivityTimeout:
    found = ActivityTimeout("timer", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[])
    found.__cause__ = last
    return found


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        pytest.param(error(timer(ApplicationError("busy"))), Outcome.TIMED_OUT, id="timer"),
        pytest.param(error(ApplicationError("busy")), Outcome.TIMED_OUT, id="last error, no time for another"),
        pytest.param(
            error(ApplicationError("busy"), RetryState.MAXIMUM_ATTEMPTS_REACHED), Outcome.FAILED, id="attempts"
        ),
        pytest.param(
            error(ApplicationError("no", non_retryable=True), RetryState.NON_RETRYABLE_FAILURE), Outcome.FAILED,
            id="for good",
        ),
        pytest.param(error(ApplicationError("frozen", type=FROZEN)), Outcome.CANCELLED, id="nothing sent in a freeze"),
        pytest.param(error(CancelledError("stop")), Outcome.CANCELLED, id="cancelled"),
    ],
)  # fmt: skip
def test_only_what_surely_came_to_nothing_has_failed(ended: ActivityError, outcome: Outcome) -> None:
    assert outcome_of(ended, NOW, late=ran_out(ended)).outcome is outcome


def test_histories_from_before_keep_their_word() -> None:
    assert outcome_of(error(ApplicationError("busy")), NOW).outcome is Outcome.FAILED
