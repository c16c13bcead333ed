"""`events`: payloads that were refused, and their second chance. All through the gateway, as oneself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from worker.cli.output import Failed, plain, print_json, print_table, tell_cut

app = typer.Typer(
    help="Refused payloads: what they were, and submitting them again.", no_args_is_help=True, rich_markup_mode=None
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Source = Annotated[str | None, typer.Option(help="Only of this source.")]
Id = Annotated[int, typer.Argument(help="As `medevac events dead` lists it.")]
PAGE = 500


@app.command()
def dead(
    source: Source = None,
    taken: Annotated[bool, typer.Option("--all", help="Those that were submitted again as well.")] = False,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists refused payloads, newest first."""
    listed = _api().get("/v1/dead-letters", source=source, taken=taken, limit=limit)
    tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    print_table(
        ("id", "last at", "source", "sender", "times", "bytes", "why", "reason"),
        (
            (i["id"], i["at"][:19], i["source"], i["sender"], i["times"], i["size"], i["why"], i["reason"])
            for i in listed
        ),
        "nothing was refused",
    )


@app.command()
def show(id: Id, as_json: AsJson = False) -> None:
    """One refused payload, without what looked like secrets in it."""
    found = _api().get(f"/v1/dead-letters/{id}")
    if as_json:
        print_json(found)
        return
    letter = found["letter"]
    print(plain(f"{letter['source']} of {letter['sender']}, {letter['times']} times, last at {letter['at'][:19]}"))
    print(plain(f"{letter['why']}: {letter['reason']}"))
    for name, value in found["headers"].items():
        print(plain(f"{name}: {value}"))
    print()
    for line in found["body"].splitlines():
        print(plain(line))
    if not letter["whole"]:
        print(f"(the beginning of {letter['size']} bytes; the rest was not kept)")


@app.command()
def retry(
    id: Annotated[int | None, typer.Argument(help="As `medevac events dead` lists it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one that is listed.")] = False,
    source: Source = None,
) -> None:
    """Submits refused payloads again, as their sender, after the reason was mended."""
    if (id is None) == (not everything):
        raise Failed("say which: an id, or --all", 2)
    api = _api()
    refused = 0
    for one in _ids(api, source) if id is None else iter((id,)):
        try:
            answer = api.post(f"/v1/dead-letters/{one}/retry")
        except Failed as error:
            if error.code == 1:
                raise  # nobody can be reached; the next wouldn't be either
            refused += 1
            print(f"{one}: {error}")
            continue
        outcomes = sorted({part["outcome"] for part in answer["parts"]})
        refused += not outcomes
        print(plain(f"{one}: {', '.join(outcomes) or 'nothing in it, so it stays'} ({len(answer['parts'])} parts)"))
    if refused:
        raise typer.Exit(2)


def _ids(api: Any, source: str | None) -> Iterator[int]:
    before = 0
    while listed := api.get("/v1/dead-letters", source=source, limit=PAGE, before=before):
        before = listed[-1]["id"]
        # Oldest first within a page, as they came.
        yield from (one["id"] for one in reversed(listed))


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()
