"""`/medevac …`: what a person orders from Slack, by the same ways and rights as over HTTP."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from medevac.approvals.approval import ApprovalView
from medevac.campaigns.progress import left_out
from medevac.incident import IncidentView
from medevac.policy.durations import seconds
from worker.gateway import campaigns, fences, incidents
from worker.gateway.errors import Problem
from worker.gateway.people import Principal, Right
from worker.gateway.services import Services
from worker.gateway.votes import find

HELP = """What I understand:
status [NODE] · hold NODE [2h] REASON · resume NODE [REASON] · approve ID
freeze SCOPE REASON (scope: all, cluster/C, pool/C/P, provider/P, node/C/N)
campaign NAME [status|pause|halt] [REASON]"""
LISTED = 15
MOST = 1_000
HOLD_S = 3_600.0

Said = str | ApprovalView
Command = Callable[[Services, Principal, list[str]], Awaitable[Said]]


async def run(served: Services, person: Principal, text: str) -> Said:
    """An answer for the one who asked, or the question that they are to vote on, to be shown. Raises as routes do."""
    try:
        words = shlex.split(text[:2_000], posix=True)
    except ValueError:
        words = text[:2_000].split()
    command = COMMANDS.get(words[0].lower()) if words else None
    if command is None:
        return HELP
    person.require(Right.READ)
    try:
        return await command(served, person, words[1:])
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise Problem(422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}\n{HELP}") from None


async def _status(served: Services, person: Principal, words: list[str]) -> Said:
    if words:
        view = await _incident(served, words[0])
        return _line(view)
    listed = await served.threads.run(served.stores.ledger.incidents, open_only=True, limit=MOST)
    asked = await served.threads.run(served.stores.ledger.approvals, pending_only=True, limit=MOST)
    frozen = await served.threads.run(served.stores.fences.active)
    lines = [f"{len(listed)} open incidents, {len(asked)} questions wait, {len(frozen)} freezes"]
    lines += [_line(view) for view in listed[:LISTED]]
    if len(listed) > LISTED:
        lines.append(f"… and {len(listed) - LISTED} more: `medevac incidents`")
    lines += [f"waits: {view.id}: {view.title}" for view in asked[:LISTED]]
    lines += [f"frozen: {fence.scope} by {fence.by}: {fence.reason}" for fence in frozen[:LISTED]]
    return "\n".join(lines)


async def _hold(served: Services, person: Principal, words: list[str]) -> Said:
    view = await _incident(served, _first(words))
    for_s, reason = HOLD_S, words[1:]
    if reason:
        try:
            for_s, reason = float(seconds(reason[0])), reason[1:]
        except (TypeError, ValueError):
            for_s = HOLD_S
    order = incidents.HoldOrder(reason=" ".join(reason), for_s=for_s)
    return (await incidents.hold(view.id, order, served, person)).answer


async def _resume(served: Services, person: Principal, words: list[str]) -> Said:
    view = await _incident(served, _first(words))
    return (await incidents.resume(view.id, incidents.Reason(reason=" ".join(words[1:])), served, person)).answer


async def _approve(served: Services, person: Principal, words: list[str]) -> Said:
    """Shows it with its buttons: a yes is for what was seen, and an id alone shows nothing."""
    return await find(served, _first(words))


async def _freeze(served: Services, person: Principal, words: list[str]) -> Said:
    order = fences.Freeze(scope=_first(words), reason=" ".join(words[1:]))
    return (await fences.freeze(order, served, person)).answer


async def _campaign(served: Services, person: Principal, words: list[str]) -> Said:
    name = _first(words)
    what = words[1].lower() if len(words) > 1 else "status"
    order = campaigns.Ordered(reason=" ".join(words[2:]) or f"{what} by {person.id} in Slack")
    if what == "status":
        found = await campaigns.campaign(name, served, person)
        over = sum(1 for node in found.nodes if node.state.over)
        row = found.campaign
        out = left_out(found.nodes)
        told = f", {out}" if out not in row.why else ""
        return f"campaign {row.id} is {row.state}: {row.why}; {over} of {len(found.nodes)} nodes are through{told}"
    if what == "pause":
        return (await campaigns.pause(name, order, served, person)).answer
    if what == "halt":
        return (await campaigns.halt(name, order, served, person)).answer
    return HELP


COMMANDS: dict[str, Command] = {
    "status": _status,
    "hold": _hold,
    "resume": _resume,
    "approve": _approve,
    "freeze": _freeze,
    "campaign": _campaign,
}


def _first(words: list[str]) -> str:
    if not words:
        raise Problem(422, HELP)
    return words[0]


async def _incident(served: Services, named: str) -> IncidentView:
    """By id, or by the name of its node where one incident alone is open there."""
    view = await served.threads.run(served.stores.ledger.incident, named)
    if view is not None:
        return view
    found = await served.threads.run(served.stores.ledger.incidents, open_only=True, node=named, limit=MOST)
    if not found:
        raise Problem(404, f"no open incident is called {named[:100]}, nor is there one on a node of that name")
    if len(found) > 1:
        raise Problem(409, f"{named} names several: {', '.join(view.id for view in found[:5])}; give the id")
    return found[0]


def _line(view: IncidentView) -> str:
    waits = f", waits for {view.waiting_for}" if view.waiting_for else ""
    return f"{view.cluster}/{view.node}: {view.fault or '?'}, {view.end or view.state}{waits} ({view.id})"
