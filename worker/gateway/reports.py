"""Reports for people: the hand-over of a shift, and what medevac would have done while it only observed."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from activities.messaging import HANDOVER
from activities.ports import NotSent, Unclear
from medevac.model import Model
from worker import handover, shadow
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer
from worker.gateway.people import Right
from worker.gateway.services import Served, Services, SignedIn

router = APIRouter(prefix="/v1/reports", tags=["reports"])

LONGEST_S = 90 * 86_400.0
TURNS = 3
TURN_S = 1.5
Since = Annotated[float, Query(gt=0, le=LONGEST_S, description="Seconds back from now.")]


class Post(Model):
    since_s: float = Field(default=43_200, gt=0, le=LONGEST_S)


@router.get("/handover", summary="All that the next shift must know")
async def hand_over(served: Served, person: SignedIn, since_s: Since = 43_200) -> handover.Handover:
    return await served.threads.run(_handover, served, since_s)


def _handover(served: Services, since_s: float) -> handover.Handover:
    nodes, unread = served.inventory.all_nodes()
    now = served.now()
    return handover.take(served.stores, nodes, now, now - timedelta(seconds=since_s), unread)


@router.post("/handover", summary="The same, said in chat")
async def post_hand_over(order: Post, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    now = served.now()
    found = await served.threads.run(_handover, served, order.since_s)
    texts = handover.messages(f"Hand-over by {person.id}", found)
    key = f"handover-{now:%Y%m%dT%H%M}-{secrets.token_hex(4)}"
    for n, text in enumerate(texts, start=1):
        at = f"; {n - 1} of its {len(texts)} messages are posted" if n > 1 else ""
        try:
            await _post(served, key if n == 1 else f"{key}-{n}", text)
        except NotSent as error:
            raise Problem(502, f"the chat did not take it: {error}; `medevac handover` shows it here{at}") from None
        except Unclear as error:
            raise Problem(504, f"whether the chat has it nobody knows: {error}; look there first{at}") from None
    return Answer(answer=f"posted: {len(found.incidents)} open incidents, {len(found.approvals)} questions")


async def _post(served: Services, key: str, text: str) -> None:
    """Waits for its turn in the channel for a moment. Raises `NotSent` or `Unclear`."""
    for left in reversed(range(TURNS)):
        try:
            await served.threads.run(served.registry.chat.post, key, HANDOVER, text)
            return
        except NotSent as error:
            if error.final or not left or (error.retry_after_s or TURN_S) > TURN_S:
                raise
        await asyncio.sleep(TURN_S)


@router.get("/shadow", summary="What people did in observe mode, beside what medevac would have done")
async def shadow_report(served: Served, person: SignedIn, since_s: Since = 604_800) -> shadow.ShadowReport:
    now = served.now()
    return await served.threads.run(shadow.take, served.stores, now, now - timedelta(seconds=since_s))
