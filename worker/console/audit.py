"""Audit: who did, decided or saw what, found by text, node, person and time; and all of it as a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from activities.storage.views import Said, Search
from worker.console.entering import Here, Served
from worker.console.pages import PageRoute, page
from worker.gateway.errors import Problem

router = APIRouter(prefix="/audit", route_class=PageRoute, include_in_schema=False)

SHOWN = 200
MOST_EXPORTED = 200_000
SPAN = timedelta(days=7)
COLUMNS = ("at", "kind", "subject", "cluster", "node", "text", "data")

Words = Annotated[str, Query(max_length=200)]


def search(text: str, node: str, person: str, since: str, until: str, now: datetime) -> Search:
    """Times as a browser's field or a person writes them, in UTC unless they say otherwise; else the last 7 days."""
    begin, end = _time("since", since) or now - SPAN, _time("until", until) or now + timedelta(minutes=1)
    if begin >= end:
        raise Problem(422, "since: it must be before `until`")
    return Search(begin, end, text.strip(), node.strip(), person.strip())


def _time(field: str, written: str) -> datetime | None:
    if not written.strip():
        return None
    try:
        found = datetime.fromisoformat(written.strip())
        # In UTC already here: near the ends of the calendar a zone leads out of it.
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Problem(422, f"{field}: write a time like 2026-01-31T12:00") from None


@router.get("")
async def audit(
    request: Request, served: Served, here: Here,
    text: Words = "", node: Words = "", person: Words = "", since: Words = "", until: Words = "",
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> HTMLResponse:  # fmt: skip
    wanted = search(text, node, person, since, until, served.now())

    def read() -> HTMLResponse:
        lines = served.stores.views.said(wanted, SHOWN, before)
        more = lines[-1].id if len(lines) == SHOWN else None
        # Votes, freezes and silences stand elsewhere: those between the last line of the page before and this one's.
        begin = max(lines[-1].at, wanted.since) if more else wanted.since
        newer = served.stores.views.said_at(before) if before else None
        end = min(newer, wanted.until) if newer else wanted.until
        others = served.stores.views.decisions(replace(wanted, since=begin, until=end)) if begin < end else []
        found = sorted([*lines, *others], key=lambda one: one.at, reverse=True)
        asked = {"text": text, "node": node, "person": person, "since": since, "until": until}
        return page(request, served, here, "audit.html", found=found, asked=asked, wanted=wanted, more=more)

    return await served.threads.run(read)


@router.get("/export")
async def export(
    served: Served, here: Here, format: Literal["csv", "jsonl"] = "csv",
    text: Words = "", node: Words = "", person: Words = "", since: Words = "", until: Words = "",
) -> StreamingResponse:  # fmt: skip
    """Streamed, at most `MOST_EXPORTED` lines; the last one says so when there are more."""
    wanted = search(text, node, person, since, until, served.now())
    write = _csv if format == "csv" else _jsonl
    batches = served.stores.views.export(wanted, MOST_EXPORTED)

    async def stream() -> AsyncIterator[str]:
        count = 0
        if format == "csv":
            yield ",".join(COLUMNS) + "\r\n"
        while (batch := await served.threads.run(next, batches, None)) is not None:
            count += len(batch)
            yield write(batch)
        if count >= MOST_EXPORTED:
            note = f"the export ends after {MOST_EXPORTED} lines; ask for a shorter time"
            yield write([Said(0, served.now(), "end", "", "", "", note, {})])

    kind = "text/csv; charset=utf-8" if format == "csv" else "application/x-ndjson"
    name = f"medevac-audit-{served.now():%Y%m%dT%H%M%SZ}.{format}"
    return StreamingResponse(
        stream(), media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def _csv(batch: list[Said]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    for one in batch:
        row = (one.at.isoformat(), one.kind, one.subject, one.cluster, one.node, one.text)
        writer.writerow([*(_cell(value) for value in row), json.dumps(one.data, ensure_ascii=False)])
    return out.getvalue()


def _cell(value: str) -> str:
    """A spreadsheet takes these for formulas, whoever wrote them into a payload."""
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _jsonl(batch: list[Said]) -> str:
    return "".join(
        json.dumps(dict(zip(COLUMNS, (one.at.isoformat(), *one[2:]), strict=True)), ensure_ascii=False) + "\n"
        for one in batch
    )
