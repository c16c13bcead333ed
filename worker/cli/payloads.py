"""`parse`, `explain`, `send`: what a payload says, what would be done about it, and its delivery."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.files import read_headers, read_payload
from worker.cli.output import Failed, plain, print_json

Source = Annotated[str | None, typer.Option(help="Whose payload it is, e.g. alertmanager. Without: recognised.")]
Headers = Annotated[Path | None, typer.Option(help="HTTP headers it came with: JSON, or lines `Name: value`.")]
ExitCode = Annotated[int | None, typer.Option(help="Exit status of the command whose output it is.")]
Files = Annotated[list[str], typer.Argument(help="Payload files; - reads standard input.")]


def register(app: typer.Typer) -> None:
    app.command()(parse)
    app.command()(explain)
    app.command()(send)


def parse(files: Files, source: Source = None, headers: Headers = None, exit_code: ExitCode = None) -> None:
    """Prints one JSON object for each event that the payloads hold; touches nothing.

    What must be refused is one line on standard error and exit status 2; the rest is still printed.
    """
    import json

    from medevac.events.normal import normal_form, read
    from medevac.events.parsing import ParseError

    refused = False
    for file in files:
        try:
            parsed = read(source, read_payload(file, headers, exit_code))
        except (ParseError, Failed) as error:
            refused = True
            # What can't be read says its name itself.
            print(plain(error if isinstance(error, Failed) else f"{file}: {error}"), file=sys.stderr)
            continue
        for event in parsed.events:
            print(json.dumps(normal_form(event), ensure_ascii=False))
        for refusal in parsed.refused:
            refused = True
            print(f"{file}: {plain(refusal)}", file=sys.stderr)
        if parsed.truncated:
            print(
                f"{file}: {parsed.truncated} parts are missing: the sender held them back, or they were too many",
                file=sys.stderr,
            )
    if refused:
        raise typer.Exit(2)


def explain(
    files: Files,
    source: Source = None,
    headers: Headers = None,
    exit_code: ExitCode = None,
    policy: Annotated[Path | None, typer.Option(help="Policy file to judge by. Without: the active one.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default MEDEVAC_CONFIG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each event.")] = False,
) -> None:
    """Says what would be done to which node and why. Touches nothing; needs no Temporal."""
    from medevac.events.event import HealthEvent
    from medevac.events.parsing import ParseError
    from medevac.events.registry import read
    from worker.cli.explaining import explain_events, show

    events: list[HealthEvent] = []
    refused = False
    for file in files:
        try:
            parsed = read(source, read_payload(file, headers, exit_code))
        except ParseError as error:
            raise Failed(f"{file}: {plain(error)}", 2) from error
        for refusal in parsed.refused:
            refused = True
            print(f"{file}: {plain(refusal)}", file=sys.stderr)
        events += parsed.events
    for explanation in explain_events(events, policy, config):
        if as_json:
            print_json(explanation.model_dump(mode="json"))
        else:
            show(explanation)
    if refused:
        raise typer.Exit(2)


def send(
    files: Files,
    source: Source = None,
    headers: Headers = None,
    exit_code: ExitCode = None,
    url: Annotated[str | None, typer.Option(help="Of the gateway; default MEDEVAC_URL, then the running `up`.")] = None,
    token: Annotated[
        str | None, typer.Option(help="Sender's token; better by MEDEVAC_SENDER_TOKEN, which no process list shows.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Delivers payloads to the gateway, as their sender would."""
    from medevac.events.parsing import ParseError
    from medevac.events.registry import detect
    from medevac.events.transport import EXIT_HEADER
    from worker.cli.api import sender_api

    api = sender_api(url, token)
    passed = read_headers(headers) if headers else {}
    if exit_code is not None:
        passed[EXIT_HEADER] = str(exit_code)
    bad = False
    for file in files:
        payload = read_payload(file, headers)
        try:
            where = source or detect(payload).SOURCE
        except ParseError as error:
            raise Failed(f"{file}: {plain(error)}; or say --source", 2) from error
        answer = api.deliver(where, payload.body, passed)
        if as_json:
            print_json(answer)
            continue
        for part in answer["parts"]:
            bad = bad or part["outcome"] == "refused"
            node = part["node"] or part["subject"] or "-"
            why = f": {part['reason']}" if part["reason"] else ""
            print(plain(f"{part['outcome']:<13} {node:<24} {part['fault'] or '-'}{why}"))
    if bad:
        raise typer.Exit(2)
