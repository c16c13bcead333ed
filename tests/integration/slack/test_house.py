"""Gateway, worker, Temporal and Slack as one house: from the question's message to its decision, through an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from medevac.telling.asking import APPROVE, REJECT
from tests.integration.slack.far_slack import FarSlack, Message, interactive, signed
from tests.integration.slack.rig import IN_SLACK, PeopleRig

ADA = IN_SLACK["ada"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[PeopleRig]:
    rig = PeopleRig(tmp_path)
    await rig.start(gateways=1)
    yield rig
    await rig.close()


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(240):
            while not holds():  # noqa: ASYNC110  of other processes
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def asked(slack: FarSlack, id: str) -> Message | None:
    return next((m for m in slack.roots("C0ASKED") if f"approval {id}" in m.says()), None)


async def press(rig: PeopleRig, message: Message, action: str) -> None:
    body = interactive(rig.slack.pressed(message, action, ADA))
    url = f"{rig.gateways[0].url}/v1/slack/interactivity"
    answer = await rig.rig.http.post(url, content=body, headers=signed(body))
    assert answer.status_code == 200


async def test_a_question_from_its_message_to_its_decision_and_through_an_outage(rig: PeopleRig) -> None:
    slack = rig.slack
    view = await rig.ask("house-1", 2)
    await until(lambda: asked(slack, "house-1") is not None, "the question is asked in Slack")
    message = asked(slack, "house-1")
    assert message is not None
    assert "<!here>" in message.says(), "those who may vote are called"
    await press(rig, message, APPROVE)
    await until(lambda: bool(slack.told(ADA)), "ada has her answer")
    assert "recorded 1 of 2" in slack.told(ADA)[0]
    await until(lambda: "ada said approve by slack" in message.says(), "her vote is shown")
    assert set(message.buttons()) >= {APPROVE, REJECT}
    # Slack is down; the second vote comes by token, and counts.
    slack.down = True
    ballot = {"verdict": "approve", "shown_hash": view.shown_hash}
    url = f"{rig.gateways[0].url}/v1/approvals/house-1/votes"
    while (answer := await rig.rig.http.post(url, json=ballot, headers=rig.token("grace"))).status_code == 503:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert answer.json()["answer"] == "approved by ada and grace"
    second = await rig.ask("house-2", 1)
    slack.down = False
    await until(lambda: not message.buttons(), "the buttons are gone once Slack is back")
    assert "approved by ada, grace" in message.says()
    # Asked while it was down, it is asked now.
    await until(lambda: asked(slack, "house-2") is not None, "the second question catches up")
    late = asked(slack, second.id)
    assert late is not None
    await press(rig, late, REJECT)
    await until(lambda: bool(slack.views), "the form is open")
    form = next(iter(slack.views.values()))
    body = interactive(slack.submitted(form, ADA, "not today"))
    url = f"{rig.gateways[0].url}/v1/slack/interactivity"
    assert (await rig.rig.http.post(url, content=body, headers=signed(body))).status_code == 200
    await until(lambda: not late.buttons(), "it is decided")
    assert "rejected by ada" in late.says()
    assert "not today" in late.says()
    assert len(slack.roots("C0ASKED")) == 2
    assert not [m for m in slack.messages if m not in slack.roots("C0ASKED")], "each question is put once"
