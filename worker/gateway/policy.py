"""The active policy, its versions, and how it is changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from activities.storage.policies import NoPolicy
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from worker.gateway.errors import Problem
from worker.gateway.people import APPROVERS, Right
from worker.gateway.services import Served, Services, SignedIn
from worker.policy_desk import Applied, PolicyDesk, PolicyDiff, PolicyRefused

Version = Annotated[int, Path(ge=1, le=2**31)]

router = APIRouter(prefix="/v1/policy", tags=["policy"])

LARGEST_POLICY = 256 * 1024


class Proposal(Model):
    text: str = Field(max_length=LARGEST_POLICY)
    origin: str = Field(default="policy", max_length=200)
    """Name of the file, for error messages."""
    accept: bool = False
    """Apply though many nodes are over a newly set threshold already."""


@router.get("", summary="The active version, with its text")
async def active(served: Served, person: SignedIn) -> PolicyVersion:
    return await served.threads.run(served.stores.policies.active)


@router.get("/versions", summary="All versions, newest first")
async def versions(served: Served, person: SignedIn) -> list[PolicyVersion]:
    return list(await served.threads.run(served.stores.policies.list))


@router.post("/diff", summary="What would change for open incidents and the last 7 days' events")
async def diff(proposal: Proposal, served: Served, person: SignedIn) -> PolicyDiff:
    try:
        return await served.threads.run(_desk(served).diff, proposal.text, served.now(), proposal.origin)
    except PolicyRefused as error:
        raise Problem(422, str(error)) from error


@router.post("/apply", summary="Apply: a narrowing at once, a widening once a second person approves")
async def apply(proposal: Proposal, served: Served, person: SignedIn) -> Applied:
    person.require(Right.NARROW)
    may_widen = bool(APPROVERS.intersection(person.groups))
    try:
        return await served.threads.run(
            _desk(served).apply,
            proposal.text,
            person.id,
            served.now(),
            may_widen=may_widen,
            origin=proposal.origin,
            accept=proposal.accept,
        )
    except PolicyRefused as error:
        raise Problem(422, str(error)) from error


@router.post("/rollback", summary="Back to the version that was active before")
async def rollback(served: Served, person: SignedIn) -> Applied:
    person.require(Right.NARROW)
    may_widen = bool(APPROVERS.intersection(person.groups))
    try:
        return await served.threads.run(_desk(served).rollback, person.id, served.now(), may_widen=may_widen)
    except PolicyRefused as error:
        raise Problem(409, str(error)) from error


@router.get("/versions/{version}", summary="One version, with its text")
async def one(version: Version, served: Served, person: SignedIn) -> PolicyVersion:
    try:
        return await served.threads.run(served.stores.policies.get, version)
    except NoPolicy as error:
        raise Problem(404, str(error)) from error


@router.post("/versions/{version}/approve", summary="Approve a widening as a second person")
async def approve(version: Version, served: Served, person: SignedIn) -> Applied:
    person.require(Right.WIDEN)
    try:
        return await served.threads.run(_desk(served).approve, version, person.id, served.now())
    except PolicyRefused as error:
        raise Problem(409, str(error)) from error


def _desk(served: Services) -> PolicyDesk:
    return PolicyDesk(served.stores, served.registry)
