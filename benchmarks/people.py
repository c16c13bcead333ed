"""From a click in Slack to its vote's being recorded, with 500 questions open at once.

Two gateways, one worker, Temporal's dev server, the ledger on SQLite, and a Slack of our own, all on this machine.
*Click* is from the request's first byte to the answer that the person sees, which comes after the workflow has recorded
the vote; *ack* is what Slack waits for, three seconds at most. *Token* is the same vote over the API.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks._stack import quantile
from medevac.approvals.approval import ApprovalView
from medevac.telling.asking import APPROVE
from tests.integration.slack.far_slack import interactive, press, signed
from tests.integration.slack.rig import IN_SLACK, PeopleRig

OPEN = 500
AT_ONCE = 4
WARM = 8
"""Votes before the first that is measured."""
SHARES = (0.5, 0.95, 0.99)
AIM_S = 0.5


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="medevac-bench-") as folder:
        rig = PeopleRig(Path(folder))
        try:
            await rig.start()
            await measured(rig, count)
        finally:
            await rig.close()


async def measured(rig: PeopleRig, count: int) -> None:
    slots = asyncio.Semaphore(16)

    async def opened(n: int) -> ApprovalView:
        async with slots:
            return await rig.ask(f"people-{n}", 2)

    began = time.monotonic()
    views = await asyncio.gather(*(opened(n) for n in range(count)))
    open_s = time.monotonic() - began
    found = await rig.rig.http.get(f"{rig.gateways[0].url}/v1/approvals", headers=rig.token("ada"))
    acks: list[float] = []
    clicks: list[float] = []
    tokens: list[float] = []
    few = asyncio.Semaphore(AT_ONCE)
    for n in range(WARM):
        view = await rig.ask(f"warm-{n}", 2)
        await clicked(rig, n, view, [], [])
        await voted(rig, n, view, [])

    async def both(n: int, view: ApprovalView) -> None:
        async with few:
            await clicked(rig, n, view, acks, clicks)
            await voted(rig, n, view, tokens)

    began = time.monotonic()
    await asyncio.gather(*(both(n, view) for n, view in enumerate(views)))
    took_s = time.monotonic() - began
    table = Table(box=None, title=f"{count} questions open at once ({found.elapsed.total_seconds():.2f} s to list)")
    for column in ("", *(f"p{share * 100:g} (ms)" for share in SHARES), "most (ms)"):
        table.add_column(column, justify="right")
    said: dict[str, object] = {"open": count, "opened_s": round(open_s, 1), "votes_per_s": round(2 * count / took_s, 1)}
    for name, times in (("ack", acks), ("click", clicks), ("token", tokens)):
        row = [quantile(times, share) * 1_000 for share in SHARES]
        table.add_row(name, *(f"{ms:.0f}" for ms in row), f"{max(times) * 1_000:.0f}")
        said[f"{name}_p99_ms"] = round(row[-1])
    answers = rig.slack.told(IN_SLACK["ada"])
    said["clicks_recorded"] = sum("recorded" in answer for answer in answers)
    said["within_aim"] = bool(quantile(clicks, 0.99) < AIM_S)
    Console().print(table)
    print(json.dumps(said))


async def clicked(rig: PeopleRig, n: int, view: ApprovalView, acks: list[float], clicks: list[float]) -> None:
    url = rig.slack.response_url(IN_SLACK["ada"])
    value = json.dumps({"a": view.id, "h": view.shown_hash})
    body = interactive(press({"action_id": APPROVE, "value": value}, IN_SLACK["ada"], "C0ASKED", url=url))
    began = time.monotonic()
    answer = await _posted(rig, n, "/v1/slack/interactivity", content=body, headers=signed(body))
    acks.append(time.monotonic() - began)
    _expected(answer, "")
    id = url.rpartition("/")[2]
    async with asyncio.timeout(60):
        while id not in rig.slack.answered:  # noqa: ASYNC110  of another process
            await asyncio.sleep(0.002)
    clicks.append(rig.slack.answered[id] - began)


async def voted(rig: PeopleRig, n: int, view: ApprovalView, tokens: list[float]) -> None:
    ballot = {"verdict": "approve", "shown_hash": view.shown_hash}
    began = time.monotonic()
    answer = await _posted(rig, n, f"/v1/approvals/{view.id}/votes", json=ballot, headers=rig.token("grace"))
    tokens.append(time.monotonic() - began)
    _expected(answer, "approved by")


async def _posted(rig: PeopleRig, n: int, path: str, **given: object) -> httpx.Response:
    return await rig.rig.http.post(rig.gateways[n % len(rig.gateways)].url + path, **given)  # type: ignore[arg-type]


def _expected(answer: httpx.Response, text: str) -> None:
    if answer.status_code != 200 or text not in answer.text:
        raise RuntimeError(f"{answer.request.url}: {answer.status_code} {answer.text[:300]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=OPEN)
    asyncio.run(main(parser.parse_args().open))
