"""Campaigns: listed before they are started, started only with people's yes, stopped by one person at once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints

from activities.registry import NotConfigured
from activities.storage.campaigns import CampaignRow, Known
from medevac.campaigns.listing import CampaignPlan, Nothing
from medevac.campaigns.progress import POSSIBLE_IN, CampaignState, NodeProgress, ordered
from medevac.campaigns.spec import Act, CampaignId, Care, Selector, Spec
from medevac.model import Model
from medevac.policy.plan import Drain
from worker import campaign_desk
from worker.engine import NotRunning
from worker.gateway.errors import Problem
from worker.gateway.incidents import Answer, Reason
from worker.gateway.people import Principal, Right
from worker.gateway.services import Served, Services, SignedIn
from workflows.messages import campaign_workflow_id

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"])

S = CampaignState


class Wish(Model):
    """A campaign as a person asks for it; who asks is told by their token."""

    id: CampaignId
    act: Act
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=500)]
    selector: Selector
    image: str | None = Field(default=None, max_length=500)
    drain: Drain = Drain.CHECKPOINT
    care: Care = Care()

    def spec(self, person: Principal) -> Spec:
        return Spec.model_validate(self.model_dump() | {"requested_by": person.id})


class Start(Wish):
    plan_hash: str = Field(min_length=8, max_length=100)
    """Of the list as it was shown; a list that has changed since is shown again instead of started."""


class Planned(Model):
    plan: CampaignPlan
    plan_hash: str


class Campaign(Model):
    campaign: CampaignRow
    nodes: tuple[NodeProgress, ...]


@router.post("/plan", summary="What it would do, node by node; nothing is begun")
async def plan(wish: Wish, served: Served, person: SignedIn) -> Planned:
    found = await _planned(wish, served, person)
    return Planned(plan=found, plan_hash=found.hash)


@router.post("", status_code=202, summary="Ask people for their yes to exactly this list, and begin when they give it")
async def start(wish: Start, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    wanted = Wish.model_validate(wish.model_dump(exclude={"plan_hash"}))
    found = await _planned(wanted, served, person)
    if found.hash != wish.plan_hash:
        raise Problem(409, f"the list has changed since it was shown ({wish.plan_hash}); look again, then start")
    policy = (await served.threads.run(served.stores.policies.active)).policy
    question = campaign_desk.question(found, policy, served.now())
    try:
        await served.threads.run(served.stores.campaigns.put, found, question.id, served.now())
    except Known as error:
        raise Problem(409, str(error)) from None
    await served.engine.start_campaign(wish.id, question)
    return Answer(answer=f"campaign {wish.id} waits for people's yes: {question.id}, {len(found.members)} nodes")


@router.get("", summary="Campaigns, newest first")
async def campaigns(
    served: Served, person: SignedIn, open_only: Annotated[bool, Query(alias="open")] = False
) -> list[CampaignRow]:
    return list(await served.threads.run(served.stores.campaigns.all, open_only))


@router.get("/{campaign}", summary="One campaign with each of its nodes")
async def campaign(campaign: str, served: Served, person: SignedIn) -> Campaign:
    row = await _row(served, campaign)
    nodes = await served.threads.run(served.stores.campaigns.nodes, campaign)
    return Campaign(campaign=row, nodes=tuple(nodes))


@router.post("/{campaign}/pause", summary="Begin nothing more; what is in hand ends")
async def pause(campaign: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.STOP)
    return await _move(served, person, campaign, S.PAUSED, order.reason, POSSIBLE_IN["pause"])


@router.post("/{campaign}/halt", summary="Stop: orders that have not begun are taken back, nothing more is destroyed")
async def halt(campaign: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.STOP)
    return await _move(served, person, campaign, S.HALTED, order.reason, POSSIBLE_IN["halt"])


@router.post("/{campaign}/resume", summary="Go on after a pause or a halt")
async def resume(campaign: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    row = await _row(served, campaign)
    # What stopped by itself stopped for a reason: going on takes those who may approve.
    person.require(Right.WIDEN if row.state is S.HALTED else Right.OPERATE)
    return await _move(served, person, campaign, S.RUNNING, order.reason, POSSIBLE_IN["resume"])


@router.post("/{campaign}/widen", summary="Take the present stage as watched long enough")
async def widen(campaign: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.WIDEN)
    row = await _row(served, campaign)
    return await _move(served, person, campaign, S.RUNNING, order.reason, POSSIBLE_IN["widen"], passed=row.passed + 1)


@router.post("/{campaign}/end", summary="End it for good; nodes that were drained are checked and returned")
async def end(campaign: str, order: Reason, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    return await _move(served, person, campaign, S.ENDING, order.reason, POSSIBLE_IN["end"])


async def _planned(wish: Wish, served: Services, person: Principal) -> CampaignPlan:
    try:
        spec = wish.spec(person)
        return await served.threads.run(campaign_desk.plan, spec, served.registry, served.stores, served.now())
    except (Nothing, NotConfigured) as error:
        raise Problem(422, str(error)) from None
    except ValueError as error:
        raise Problem(422, str(error)[:500]) from None


async def _row(served: Services, campaign: str) -> CampaignRow:
    row = await served.threads.run(served.stores.campaigns.get, campaign)
    if row is None:
        raise Problem(404, f"no campaign is called {campaign[:100]}; `medevac campaign list` lists them")
    return row


async def _move(
    served: Services,
    person: Principal,
    campaign: str,
    to: CampaignState,
    reason: str,
    only_from: tuple[CampaignState, ...],
    passed: int | None = None,
) -> Answer:
    """Written first, where each node reads it before anything is destroyed; the workflow is only woken."""
    why = ordered(to, person.id, reason)
    moved = await served.threads.run(
        served.stores.campaigns.move, campaign, to, why, served.now(), passed=passed, only_from=only_from
    )
    row = await _row(served, campaign)
    if not moved:
        raise Problem(409, f"campaign {campaign} is {row.state} ({row.why}); that can't be done to it now")
    try:
        await served.engine.wake(campaign_workflow_id(campaign))
    except NotRunning:
        return Answer(answer=f"campaign {campaign} is {to}; its workflow doesn't run any more")
    return Answer(answer=f"campaign {campaign} is {to} by {person.id}")
