"""Campaigns: listed before they are started, started only with people's yes, stopped by one person at once."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints

from activities.registry import NotConfigured
from activities.storage.campaigns import CampaignRow, Known, Voter, Word
from activities.storage.ledger import LedgerLine
from medevac.campaigns.going_on import why_not
from medevac.campaigns.halting import Evidence
from medevac.campaigns.listing import CampaignPlan, Nothing
from medevac.campaigns.progress import (
    POSSIBLE_IN,
    Beside,
    CampaignState,
    NodeProgress,
    evidence,
    ordered,
    stopped_itself,
    tally,
    widened,
)
from medevac.campaigns.spec import Act, CampaignId, Care, Selector, Spec
from medevac.fleet.votes import VOTE_HOLDS
from medevac.model import Model
from medevac.policy.plan import Drain
from worker import campaign_desk
from worker.engine import NotRunning, Unavailable
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
    via: Annotated[str, Field(pattern="^(cli|api|console)$")] = "api"
    """Not read: by what way it came the gateway knows by itself."""
    plan_hash: str = Field(min_length=8, max_length=100)
    """Of the list as it was shown; a list that has changed since is shown again instead of started."""


class Ordered(Reason):
    """A person's word about a campaign."""

    via: Annotated[str, Field(pattern="^(cli|api|console)$")] = "api"
    """Not read: by what way it came the gateway knows by itself."""


class Planned(Model):
    plan: CampaignPlan
    plan_hash: str


class Campaign(Model):
    campaign: CampaignRow
    nodes: tuple[NodeProgress, ...]
    orders: tuple[LedgerLine, ...] = ()
    """What people ordered of it and where it stopped by itself, in order."""


@router.post("/plan", summary="What it would do, node by node; nothing is begun")
async def plan(wish: Wish, served: Served, person: SignedIn) -> Planned:
    found = await _planned(wish, served, person)
    return Planned(plan=found, plan_hash=found.hash)


@router.post("", status_code=202, summary="Ask people for their yes to exactly this list, and begin when they give it")
async def start(wish: Start, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    wanted = Wish.model_validate(wish.model_dump(exclude={"plan_hash", "via"}))
    found = await _planned(wanted, served, person)
    if found.hash != wish.plan_hash:
        raise Problem(409, f"the list has changed since it was shown ({wish.plan_hash}); look again, then start")
    policy = (await served.threads.run(served.stores.policies.active)).policy
    question = campaign_desk.question(found, policy, served.now())
    word = Word.of("start", person.id, person.via, wish.reason)
    try:
        await served.threads.run(served.stores.campaigns.put, found, question.id, served.now(), word)
    except Known as error:
        row = await _row(served, wish.id)
        # The same again, by the same person, after an answer that was lost.
        if (row.state, row.plan_hash, row.requested_by) != (S.ASKED, found.hash, person.id):
            raise Problem(409, str(error)) from None
    await served.engine.start_campaign(wish.id, question)
    return Answer(answer=f"campaign {wish.id} waits for people's yes: {question.id}, {len(found.members)} nodes")


@router.get("", summary="Campaigns, newest first")
async def campaigns(
    served: Served,
    person: SignedIn,
    open_only: Annotated[bool, Query(alias="open")] = False,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[CampaignRow]:
    return list(await served.threads.run(served.stores.campaigns.all, open_only, limit))


@router.get("/{campaign}", summary="One campaign with each of its nodes")
async def campaign(campaign: str, served: Served, person: SignedIn) -> Campaign:
    row = await _row(served, campaign)
    nodes = await served.threads.run(served.stores.campaigns.nodes, campaign)
    orders = await served.threads.run(served.stores.campaigns.words, campaign)
    return Campaign(campaign=row, nodes=tuple(nodes), orders=tuple(orders))


@router.post("/{campaign}/pause", summary="Begin nothing more; what is in hand ends")
async def pause(campaign: str, order: Ordered, served: Served, person: SignedIn) -> Answer:
    person.require(Right.STOP)
    return await _move(served, person, campaign, "pause", S.PAUSED, order, POSSIBLE_IN["pause"])


@router.post("/{campaign}/halt", summary="Stop: orders that have not begun are taken back, nothing more is destroyed")
async def halt(campaign: str, order: Ordered, served: Served, person: SignedIn) -> Answer:
    person.require(Right.STOP)
    return await _stop(served, person, campaign, "halt", S.HALTED, order)


@router.post("/{campaign}/resume", summary="Go on after a pause; after a halt, one person's word to go on")
async def resume(campaign: str, order: Ordered, served: Served, person: SignedIn) -> Answer:
    row = await _row(served, campaign)
    if row.state is not S.HALTED:
        person.require(Right.OPERATE)
        # From the state that the right was asked for.
        only_from = tuple(state for state in POSSIBLE_IN["resume"] if state is row.state)
        return await _move(served, person, campaign, "resume", S.RUNNING, order, only_from)
    nodes = await served.threads.run(served.stores.campaigns.nodes, campaign)
    seen = evidence(tally(row.plan.spec.care, nodes, served.now()), Beside(out=row.out or {}))
    # Else the very thing that they have weighed would halt it again.
    known = seen if stopped_itself(row.state, row.why) else None
    return await _agree(served, person, row, "resume", order, (S.HALTED,), seen, known=known)


@router.post("/{campaign}/widen", summary="One person's word that the present stage was watched long enough")
async def widen(campaign: str, order: Ordered, served: Served, person: SignedIn) -> Answer:
    row = await _row(served, campaign)
    nodes = await served.threads.run(served.stores.campaigns.nodes, campaign)
    care = row.plan.spec.care
    if row.state is S.SOAKING and row.passed >= len(care.stages):
        raise Problem(409, f"campaign {campaign} has no stage left to widen to ({row.why})")
    seen = evidence(tally(care, nodes, served.now()), Beside())
    passed = widened(care, row.passed, nodes, served.now())
    return await _agree(served, person, row, "widen", order, POSSIBLE_IN["widen"], seen, to_stage=passed)


@router.post("/{campaign}/end", summary="End it for good; nodes that were drained are checked and returned")
async def end(campaign: str, order: Ordered, served: Served, person: SignedIn) -> Answer:
    person.require(Right.OPERATE)
    return await _stop(served, person, campaign, "end", S.ENDING, order)


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


async def _stop(
    served: Services, person: Principal, campaign: str, what: str, to: CampaignState, order: Ordered
) -> Answer:
    """One that waits for its yes is over. That is tried first: a yes that comes meanwhile only leads on from there."""
    over = ordered(S.ENDED, person.id, order.reason)
    word = Word.of(what, person.id, person.via, order.reason)
    move = served.stores.campaigns.move
    if await served.threads.run(move, campaign, S.ENDED, over, served.now(), only_from=(S.ASKED,), word=word):
        return await _woken(served, person, campaign, S.ENDED)
    return await _move(
        served, person, campaign, what, to, order, tuple(one for one in POSSIBLE_IN[what] if one is not S.ASKED)
    )


async def _move(
    served: Services,
    person: Principal,
    campaign: str,
    what: str,
    to: CampaignState,
    order: Ordered,
    only_from: tuple[CampaignState, ...],
    **more: Any,
) -> Answer:
    """Written first, where each node reads it before anything is destroyed; the workflow is only woken."""
    why = ordered(to, person.id, order.reason)
    word = Word.of(what, person.id, person.via, order.reason)
    moved = bool(only_from) and await served.threads.run(
        served.stores.campaigns.move, campaign, to, why, served.now(), only_from=only_from, word=word, **more
    )
    if not moved:
        row = await _row(served, campaign)
        raise Problem(409, f"campaign {campaign} is {row.state} ({row.why}); that can't be done to it now")
    return await _woken(served, person, campaign, to)


async def _agree(
    served: Services,
    person: Principal,
    row: CampaignRow,
    what: str,
    order: Ordered,
    only_from: tuple[CampaignState, ...],
    seen: Evidence,
    *,
    to_stage: int | None = None,
    known: Evidence | None = None,
) -> Answer:
    """What was agreed to by several is let go on by as many, whom the policy names for all that is fleet-wide."""
    policy = (await served.threads.run(served.stores.policies.active)).policy
    need = policy.need(policy.who_may.fleet, (what,))
    if refused := why_not(need, row.requested_by, person.id, person.groups):
        raise Problem(403, refused)
    weighed = None
    if row.state in only_from:
        voter = Voter(id=person.id, groups=person.groups, via=person.via, reason=order.reason)
        weighed = await served.threads.run(
            partial(
                served.stores.campaigns.agree, row.id, what, S.RUNNING, voter, served.now(), need, only_from=only_from,
                passed=row.passed, bad=seen.failed + seen.faulted + seen.jobs_hurt, requested_by=row.requested_by,
                to_stage=to_stage, known=known,
            )
        )  # fmt: skip
    if weighed is None:
        now = await _row(served, row.id)
        raise Problem(409, f"campaign {row.id} is {now.state} ({now.why}); that can't be done to it now")
    if not weighed.missing:
        return await _woken(served, person, row.id, S.RUNNING, by=" and ".join(weighed.by))
    within = f"within {VOTE_HOLDS.total_seconds() / 60:g} min"
    said = f"{' and '.join(weighed.by)} said {what}; missing {within}: {weighed.missing}"
    await _woken(served, person, row.id, row.state)  # So that the others are told at once.
    return Answer(answer="; ".join((f"campaign {row.id} stays {row.state}", said, *weighed.lapsed)))


async def _woken(served: Services, person: Principal, campaign: str, to: CampaignState, by: str = "") -> Answer:
    by = by or person.id
    try:
        await served.engine.wake(campaign_workflow_id(campaign))
    except NotRunning:
        return Answer(answer=f"campaign {campaign} is {to}; its workflow doesn't run any more")
    except Unavailable:
        # It stands: a person who stops must not be told that nothing came of it.
        return Answer(answer=f"campaign {campaign} is {to} by {by}; its workflow hears of it as soon as it can")
    return Answer(answer=f"campaign {campaign} is {to} by {by}")
