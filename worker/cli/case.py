"""`medevac case`: tickets with providers, what they answered, and a person's word on them, through the gateway."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from medevac.counted import some
from worker.cli.output import plain, print_json, print_styled, print_table, style_of, tell_cut

app = typer.Typer(help="Tickets with providers: what was written, what they answered, what proves it.")

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for pipes.")]
Why = Annotated[str, typer.Option("--reason", "-r", help="Why.")]


@app.command("list")
def list_all(
    everything: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists cases, newest first."""
    listed = _api().get("/v1/cases", open=not everything, limit=limit)
    tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    now = datetime.now(UTC)
    print_table(
        ("case", "provider", "ticket", "nodes", "state", "because", "since", "their word was due"),
        (
            (
                one["id"], one["provider"], (one["ticket"] or {}).get("id", ""), _nodes(one), one["state"], one["why"],
                one["opened_at"][:16].replace("T", " "), _overdue(one, now),
            )
            for one in listed
        ),
        "no case is open",
    )  # fmt: skip


@app.command()
def show(case: str, as_json: AsJson = False) -> None:
    """What was written, what they answered and what that seems to propose, and what is proved."""
    one = _api().get(f"/v1/cases/{_part(case)}")
    if as_json:
        print_json(one)
        return
    ticket = one["ticket"] or {}
    print_styled((f"{one['id']}  {one['letter']['title']}  ", "bold"), (one["state"], style_of(one["state"])))
    late = _overdue(one, datetime.now(UTC))
    print(plain(f"  {one['why']}{f'; their word was due {late}' if late else ''}"))
    print(plain(f"  with {one['provider']} ({one['system']}): {ticket.get('id', 'no ticket')} {ticket.get('url', '')}"))
    print_table(
        ("node", "incident", "fault", "proved by"),
        (
            (f"{s['cluster']}/{s['node']}", s["incident"], s["fault"], s["proof"] or "nothing yet")
            for s in one["subjects"]
        ),
        "no machine",
    )
    for s in one["subjects"]:
        for part in s["parts"]:
            at_fault = " (at fault)" if part["faulty"] else ""
            print(plain(f"  {s['node']}: {part['kind']} {' = '.join(part['names'])}{at_fault}"))
    print(plain("\n".join(f"  | {line}" for line in one["letter"]["body"].splitlines())))
    print_table(
        ("heard", "from", "seems to say", "quote"),
        ((h["at"][:16].replace("T", " "), h["author"], h["proposal"], h["quote"]) for h in one["heard"]),
        "no reply yet",
    )


@app.command()
def comment(case: str, text: str) -> None:
    """Writes to the provider in the ticket."""
    print(plain(_api().post(f"/v1/cases/{_part(case)}/comment", {"text": text})["answer"]))


@app.command()
def close(case: str, reason: Why = "") -> None:
    """Closes the case and its ticket. Nodes stay as they are: `medevac confirm` has one checked and returned."""
    print(plain(_api().post(f"/v1/cases/{_part(case)}/close", {"reason": reason})["answer"]))


@app.command()
def retry(case: str, reason: Why = "") -> None:
    """Opens a ticket that could not be opened, once its hindrance is gone. One that is found is not opened again."""
    print(plain(_api().post(f"/v1/cases/{_part(case)}/retry", {"reason": reason})["answer"]))


def _overdue(one: dict[str, Any], now: datetime) -> str:
    from medevac.cases.case import Case

    return f"{one['due_at'][:16].replace('T', ' ')} UTC" if Case.model_validate(one).overdue(now) else ""


def _nodes(one: dict[str, Any]) -> str:
    nodes = list(dict.fromkeys(subject["node"] for subject in one["subjects"]))
    return some(nodes, 3)


def _part(case: str) -> str:
    from worker.cli.api import part

    return part(case)


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()
