"""The commands, and what each exit status means: 0 done, 1 failed, 2 bad input or usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from worker.cli import (
    campaign,
    case,
    drill,
    events,
    inventory,
    oncall,
    payloads,
    people,
    policy,
    processes,
    providers,
    silence,
)
from worker.cli.output import Failed

app = typer.Typer(
    name="medevac",
    help="Takes sick machines out of a GPU fleet and brings healthy ones back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for room in (processes, payloads, people, oncall, providers, drill):
    room.register(app)
app.add_typer(policy.app, name="policy")
app.add_typer(events.app, name="events")
app.add_typer(campaign.app, name="campaign")
app.add_typer(case.app, name="case")
app.add_typer(silence.app, name="silence")
app.add_typer(inventory.app, name="inventory")
app.add_typer(providers.app, name="provider")


def run(arguments: Sequence[str]) -> int:
    """The exit status. Anything unexpected propagates with its traceback."""
    try:
        app(list(arguments))
    except Failed as error:
        print(f"medevac: {error}", file=sys.stderr)
        return error.code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0
