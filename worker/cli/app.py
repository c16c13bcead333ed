"""The commands, and what each exit status means: 0 done, 1 failed, 2 bad input or usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import typer

from worker.cli import payloads, people, policy, processes
from worker.cli.output import Failed

app = typer.Typer(
    name="medevac",
    help="Takes sick machines out of a GPU fleet and brings healthy ones back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for room in (processes, payloads, people):
    room.register(app)
app.add_typer(policy.app, name="policy")


def run(arguments: Sequence[str]) -> int:
    try:
        code = app(list(arguments), standalone_mode=False)
    except Failed as error:
        print(f"medevac: {error}", file=sys.stderr)
        return error.code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 2
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0
