"""Incidents: those that are open with what each waits for, and one as a timeline."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup

from activities.storage.ledger import LedgerLine
from activities.storage.views import LONGEST_LIST, Listed
from medevac.approvals.approval import ApprovalView
from medevac.incident import IncidentView, State
from worker.console.entering import Here, Posted, Served
from worker.console.pages import PageRoute, go, hours_of, page, when
from worker.gateway import incidents as api
from worker.gateway.errors import Problem
from worker.gateway.services import Services

router = APIRouter(prefix="/incidents", route_class=PageRoute, include_in_schema=False)

LONGEST_EVIDENCE = 20_000
"""Characters of one line's evidence that are shown; the export has all of it."""
MOST_MOMENTS = 1_000
STATES = tuple(State)


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing on the timeline."""

    at: datetime
    kind: str
    text: str
    details: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Heading → items."""
    evidence: str = ""
    flagged: bool = False


@router.get("")
async def incidents(
    request: Request,
    served: Served,
    here: Here,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=30)] = "",
    all: bool = False,
    limit: Annotated[int, Query(ge=1, le=LONGEST_LIST)] = 200,
) -> HTMLResponse:
    def read() -> HTMLResponse:
        found, count = served.stores.views.incidents(open_only=not all, text=q, state=state, limit=limit)
        return page(
            request, served, here, "incidents.html",
            rows=table(found), shown=len(found), count=count,
            q=q, state=state, all=all, limit=limit, states=STATES, longest=LONGEST_LIST,
        )  # fmt: skip

    return await served.threads.run(read)


@router.get("/{incident:path}")
async def incident(request: Request, incident: str, served: Served, here: Here) -> HTMLResponse:
    return await served.threads.run(_incident, request, incident, served, here)


@router.post("/{incident:path}/{order}")
async def order(
    request: Request, incident: str, order: str, served: Served, here: Here, fields: Posted
) -> RedirectResponse:
    """Hold and resume, as the API's."""
    reason = fields.get("reason", "").strip()
    if order == "hold":
        wish = api.HoldOrder(reason=reason, for_s=hours_of(fields, "1"))
        answer = await api.hold(incident, wish, served, here.person)
    elif order == "resume":
        answer = await api.resume(incident, api.Reason(reason=reason), served, here.person)
    else:
        raise Problem(404, "there is no such order")
    return go(request, here, request.url.path.rpartition("/")[0], answer.answer)


ROW = (
    '<tr><th scope="row"><a href="/incidents/{}">{}/{}</a></th><td>{}</td><td>{}</td>'
    '<td>{} <span class="quiet">{}</span></td><td>{} <strong>{}</strong></td><td>{}</td><td>{}</td></tr>\n'
)


def table(found: Iterable[Listed]) -> Markup:
    """The rows of the list. Here and not in the template: of 5,000 rows each cell's own escaping is half the time."""
    return Markup("".join(_row(one) for one in found))  # noqa: S704 - escaped, a row at a time


def _row(one: Listed) -> str:
    waits = f"waits for {one.waiting_for}" if one.waiting_for else ""
    cells = (
        one.id, one.cluster, one.node, one.pool, one.fault, one.end or one.state, one.step, one.summary, waits,
        one.owner, when(one.opened_at),
    )  # fmt: skip
    # What the ledger holds has no NUL.
    return ROW.format(*html.escape("\0".join(cells)).split("\0"))


def _incident(request: Request, incident: str, served: Services, here: Here) -> HTMLResponse:
    view = served.stores.ledger.incident(incident)
    if view is None:
        raise Problem(404, f"no incident is called {incident[:100]}")
    approvals = served.stores.views.approvals_of(incident)
    moments = timeline(view, served.stores.ledger.lines(incident), approvals)
    decision = next((one for one in reversed(moments) if one.kind == "decision"), None)
    return page(
        request, served, here, "incident.html",
        incident=view, moments=moments[-MOST_MOMENTS:], left_out=max(0, len(moments) - MOST_MOMENTS), decision=decision,
        approvals=approvals, cases=served.stores.cases.of_incident(incident),
    )  # fmt: skip


def timeline(view: IncidentView, lines: Iterable[LedgerLine], approvals: Iterable[ApprovalView]) -> list[Moment]:
    """In the order of time: what was heard, decided, done and voted."""
    found = [
        Moment(line.at, line.kind, line.text, _details(line.data), _evidence(line.data), line.flagged) for line in lines
    ]
    for approval in approvals:
        for vote in approval.votes:
            words = f"{vote.verdict} by {vote.voter} ({vote.via}){f': {vote.reason}' if vote.reason else ''}"
            found.append(Moment(vote.at, "vote", f"{approval.title}: {words}"))
    return sorted(found, key=lambda one: one.at)


def _details(data: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    named = (("Passed over", "passed_over"), ("Destroys", "destroys"))
    found = [(heading, tuple(str(one) for one in data[key])) for heading, key in named if data.get(key)]
    if isinstance(approval := data.get("approval"), dict):
        why = approval.get("why") or ()
        need = f"{approval.get('threshold', 1)} of {', '.join(approval.get('groups') or ())}"
        found.append(("Asks first", (need, *(str(one) for one in why))))
    if would := data.get("would"):
        found.append(("Would do", (str(would),)))
    return tuple(found)


def _evidence(data: dict[str, Any]) -> str:
    if not data:
        return ""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return text if len(text) <= LONGEST_EVIDENCE else f"{text[:LONGEST_EVIDENCE]}\n… {len(text)} characters in all"
