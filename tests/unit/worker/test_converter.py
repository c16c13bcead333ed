"""What a newer build says more is left out; what it says wrong is still an error."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload

from activities.calling import Timing
from medevac.incident import Hold
from medevac.model import Model
from worker.converter import DATA_CONVERTER
from workflows.messages import HoldRequest

converter = DATA_CONVERTER.payload_converter


class Newer(Model):
    """As another build may define it."""

    owner: str
    reason: str
    until: str
    seen: dict[str, Any] = {"what": ["only", "it", "knows"]}


def test_a_message_of_a_newer_build_is_heard() -> None:
    hold = Newer(owner="ada", reason="vendor on site", until="2026-03-01T12:00:00Z")
    payload = converter.to_payload({"incident": "inc-1", "hold": hold, "urgency": 3})
    heard = converter.from_payload(payload, HoldRequest)
    assert isinstance(heard, HoldRequest)
    assert (heard.incident, heard.hold.owner, heard.hold.reason) == ("inc-1", "ada", "vendor on site")


def test_what_it_says_wrong_is_an_error() -> None:
    payload = converter.to_payload({"owner": "ada", "reason": "", "until": "tomorrow"})
    with pytest.raises(ValidationError):
        converter.from_payload(payload, Hold)


@pytest.mark.parametrize("value", [None, 7, "text", ["a", 1], {"a": {"b": None}}])
def test_plain_values_come_as_they_went(value: Any) -> None:
    assert converter.from_payload(converter.to_payload(value)) == value


def test_what_went_comes_back_equal() -> None:
    payload: Payload = converter.to_payload([Timing()])
    assert converter.from_payload(payload, list[Timing]) == [Timing()]  # type: ignore[arg-type]
