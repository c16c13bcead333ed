"""Secrets are sent to nobody who lets everybody in between read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel, ValidationError

from activities.chat.options import SlackOptions
from activities.paging.opsgenie import Options as Opsgenie
from activities.paging.pagerduty import Options as PagerDuty
from activities.tickets.jira import Options as Jira

KEPT = {"env": "SOME_SECRET"}
CHANNELS = dict.fromkeys(("everyday", "person_needed", "approvals"), "C0123456789")
SLACK = {"team": "T0123456789", "app": "A0123456789", "bot_token": KEPT, "app_token": KEPT, "channels": CHANNELS}
WAYS: list[Callable[[str], BaseModel]] = [
    lambda url: Jira(url=url, project="OPS", token=KEPT),  # type: ignore[arg-type]
    lambda url: Opsgenie(url=url, api_key=KEPT),  # type: ignore[arg-type]
    lambda url: PagerDuty(url=url, routing_key=KEPT),  # type: ignore[arg-type]
    lambda url: SlackOptions.model_validate(SLACK | {"api": f"{url}/"}),
]


@pytest.mark.parametrize("made", WAYS)
def test_an_address_in_the_clear_is_refused_but_for_this_machine(made: Callable[[str], BaseModel]) -> None:
    with pytest.raises(ValidationError, match="write https"):
        made("http://desk.example.com")
    made("https://desk.example.com")
    made("http://127.0.0.1:8080")
