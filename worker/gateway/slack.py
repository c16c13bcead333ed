"""Slack's requests: buttons, forms and the command. Believed only with Slack's signature, answered within its time.

What is right is answered 200 at once, and the work goes on after that: Slack waits three seconds, and shows a warning
for any other status though all was done. What isn't Slack's own gets 401 and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from activities.chat.slack import SlackChat
from activities.ports import Unreadable
from activities.registry import ConfigurationError
from worker import metrics
from worker.gateway import bodies
from worker.gateway.services import Services, services
from worker.gateway.slack_desk import SlackDesk

log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1/slack", tags=["slack"])

MAX_BODY = 256 * 1024
"""Slack's own views are at most 250 kB, and ours are far smaller."""
AT_ONCE = 1_000
LEDGER_S = 1.5
"""Of the three seconds that Slack waits."""
SILENCE = Response(status_code=401)


class SlackDoor:
    """Made once a process; `None` secrets mean that this way in is shut."""

    def __init__(self, served: Services, chat: SlackChat) -> None:
        from activities.chat import slack_requests

        self._slack = slack_requests
        self.chat = chat
        self._served = served
        self._secret = chat.signing_secret()
        self._options = chat.options
        self._working: set[asyncio.Task[None]] = set()
        self.desk = SlackDesk(served, chat)

    async def http(self, request: Request, command: bool) -> Response:
        try:
            if not self._secret:
                raise self._slack.NotSlack
            body = await bodies.read(request, MAX_BODY, "it is not Slack's")
            mark = self._slack.verify(self._secret, body, request.headers)
            payload = _payload(body, command=command)
            user = self._slack.person_of(self._options.team, self._options.app, payload)
            if not await self.first(mark):
                raise self._slack.NotSlack
        except (self._slack.NotSlack, bodies.TooLarge, ValueError):
            metrics.SLACK.labels("command" if command else "interactivity", "unauthenticated").inc()
            return SILENCE
        begun = self.begin(self.desk.command(user, payload) if command else self.desk.interaction(user, payload))
        # Slack shows a warning then: who pressed knows that nothing came of it.
        return Response(status_code=200 if begun else 503)

    def begin(self, work: Coroutine[Any, Any, None]) -> bool:
        """Beside the answer; False where this process has more in hand than it can bear."""
        if len(self._working) >= AT_ONCE:
            work.close()
            log.error("more than %d requests of Slack are in hand; one was turned away", AT_ONCE)
            return False
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return True

    async def settled(self) -> None:
        """What was begun has ended: on the way out, nobody's vote is lost."""
        if self._working:
            await asyncio.wait(self._working, timeout=15)

    async def first(self, mark: str) -> bool:
        """False for a request that was taken before, by whichever gateway."""
        try:
            async with asyncio.timeout(LEDGER_S):
                return await self._served.threads.run(
                    self._served.stores.posts.take, self._options.team, mark, self._served.now()
                )
        except (Unreadable, TimeoutError) as error:
            # Nothing can be voted or ordered without the ledger; whoever works on finds that and says so.
            log.error("whether a request of Slack is a replay can't be told: %s", error)
            return True


def door(served: Services) -> SlackDoor | None:
    """Raises `ConfigurationError`."""
    chat = served.registry.chat
    if not isinstance(chat, SlackChat):
        return None
    if chat.options.signing_secret is None and chat.options.app_token is None:
        raise ConfigurationError(
            "chat: buttons need `signing_secret` (Slack reaches the gateway) or `app_token` (Socket Mode)"
        )
    return SlackDoor(served, chat)


@router.post("/interactivity", include_in_schema=False)
async def interactivity(request: Request) -> Response:
    return await _door(request, command=False)


@router.post("/commands", include_in_schema=False)
async def commands(request: Request) -> Response:
    return await _door(request, command=True)


async def _door(request: Request, *, command: bool) -> Response:
    state = request.app.state
    if not hasattr(state, "slack"):
        state.slack = door(await services(request))
    found: SlackDoor | None = state.slack
    return SILENCE if found is None else await found.http(request, command)


def _payload(body: bytes, *, command: bool) -> Mapping[str, Any]:
    """Raises `ValueError`."""
    form = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=50))
    if command:
        return form
    payload = json.loads(form.get("payload", ""))
    if not isinstance(payload, dict):
        raise ValueError("no payload")
    return payload
