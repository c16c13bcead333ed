"""`handover` and `report`: what the next shift must know, and what medevac would have done."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from worker.cli.output import Failed, plain, print_json

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for pipes.")]
Since = Annotated[str, typer.Option(help="How far back: 12h, 7d.")]

DAY_S = 86_400


def register(app: typer.Typer) -> None:
    app.command()(handover)
    app.command()(report)


def handover(
    since: Since = "12h",
    post: Annotated[bool, typer.Option("--post", help="Say it in chat as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """All that the next shift must know: open incidents, who has them, what is held, frozen, asked and awaited."""
    from worker.handover import Handover, words

    api, since_s = _api(), _back(since)
    found = api.get("/v1/reports/handover", since_s=since_s)
    if as_json:
        print_json(found)
    else:
        for line in words(Handover.model_validate(found)):
            print(plain(line))
    if post:
        answer = api.post("/v1/reports/handover", {"since_s": since_s})["answer"]
        if not as_json:
            print(plain(answer))


def report(
    shadow: Annotated[bool, typer.Option("--shadow", help="Observed incidents: what people did, what medevac would.")],
    since: Since = "7d",
    as_json: AsJson = False,
) -> None:
    """Reports about a time that is over."""
    from worker.shadow import ShadowReport, words

    found = _api().get("/v1/reports/shadow", since_s=_back(since))
    if as_json:
        print_json(found)
        return
    for line in words(ShadowReport.model_validate(found)):
        print(plain(line))


def _back(text: str) -> float:
    from medevac.policy.durations import seconds

    try:
        length = float(seconds(text))
    except ValueError as error:
        raise Failed(str(error), 2) from None
    if not 0 < length <= 90 * DAY_S:
        raise Failed(f"{text}: look back between a moment and 90d", 2)
    return length


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()
