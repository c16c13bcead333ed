"""The gateway's own connection to Slack, opened again until it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from worker import metrics
from worker.gateway.slack import SlackDoor

log = logging.getLogger(__name__)

AGAIN_S = 10.0


async def listen(door: SlackDoor) -> None:
    """Until cancelled, where the configuration has an `app_token`. Of several gateways Slack tells one each request."""
    from activities.chat.slack_requests import NotSlack, person_of
    from activities.chat.slack_socket import SlackSocket

    chat = door.chat
    if (token := chat.app_token()) is None:
        return
    loop = asyncio.get_running_loop()

    async def take(kind: str, envelope: str, payload: Mapping[str, Any]) -> None:
        command = kind == "slash_commands"
        try:
            user = person_of(chat.options.team, chat.options.app, payload)
        except NotSlack:
            metrics.SLACK.labels("command" if command else "interactivity", "unauthenticated").inc()
            return
        if await door.first(f"envelope/{envelope}"):
            await (door.desk.command(user, payload) if command else door.desk.interaction(user, payload))

    def hear(kind: str, envelope: str, payload: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(door.begin, take(kind, envelope, payload))

    socket = SlackSocket(token, chat.options.api, hear)
    try:
        while True:
            try:
                await asyncio.to_thread(socket.open)
                break
            except Exception as error:
                log.error("Slack's Socket Mode can't be opened: %s; again in %g s", type(error).__name__, AGAIN_S)
                await asyncio.sleep(AGAIN_S)
        log.info("Slack speaks to this gateway over Socket Mode")
        await asyncio.Event().wait()
    finally:
        await asyncio.to_thread(socket.close)
