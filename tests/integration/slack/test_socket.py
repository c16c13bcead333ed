"""Socket Mode: the same clicks over a connection that the gateway opens itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from activities.chat.options import Kept
from activities.chat.slack import SlackChat
from medevac.telling.asking import APPROVE
from tests.integration.slack.conftest import SLACK
from tests.integration.slack.far_slack import FarSlack, Message
from tests.integration.slack.test_requests import asked_message  # noqa: F401  fixture
from tests.unit.worker.conftest import StubEngine
from worker.gateway.services import Services
from worker.gateway.slack import door
from worker.gateway.slack_socket import listen

ADA = SLACK["ada"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110  a thread of the other side changes it
            await asyncio.sleep(0.02)


async def test_clicks_and_commands_come_over_the_gateways_own_connection(
    services: Services,
    chat: SlackChat,
    slack: FarSlack,
    engine: StubEngine,
    asked_message: Message,  # noqa: F811
) -> None:
    chat.options = chat.options.model_copy(update={"app_token": Kept(env="TEST_SLACK_APP"), "signing_secret": None})
    found = door(services)
    assert found is not None
    listening = asyncio.create_task(listen(found))
    try:
        await until(lambda: slack.connected)
        pressed = slack.pressed(asked_message, APPROVE, ADA)
        envelope = await asyncio.to_thread(slack.deliver, "interactive", pressed)
        await until(lambda: bool(engine.votes))
        await until(lambda: envelope in slack.acked)
        await until(lambda: len(slack.told(ADA)) == 1)
        assert [vote.voter for vote in engine.votes] == ["ada"]
        # Not acknowledged in time, Slack gives it to another connection: it is one click.
        await asyncio.to_thread(slack.deliver, "interactive", pressed, envelope)
        foreign = slack.pressed(asked_message, APPROVE, ADA, team="T0OTHER")
        await asyncio.to_thread(slack.deliver, "interactive", foreign)
        await asyncio.to_thread(slack.deliver, "slash_commands", slack.command(ADA, "status"))
        await until(lambda: len(slack.told(ADA)) == 2)
        await until(lambda: len(slack.acked) == 4)
        await found.settled()
        assert len(engine.votes) == 1
        assert "open incidents" in slack.told(ADA)[1]
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
