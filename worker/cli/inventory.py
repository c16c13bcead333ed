"""`medevac inventory`: what is known of machines beside their clusters, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.output import print_json, print_table
from worker.cli.processes import _guarded, _settings

if TYPE_CHECKING:
    from worker.lacking import Lack

app = typer.Typer(help="What is known of machines beside their clusters.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def inventory() -> None:
    """What is known of machines beside their clusters."""


@app.command()
def check(
    config: Annotated[Path | None, typer.Option(help="Configuration file; default MEDEVAC_CONFIG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for pipes.")] = False,
) -> None:
    """Lists the nodes that lack what their ladder needs; exit status 1 when there are any. Touches nothing."""
    from worker.cli.running import settings_here
    from worker.installation import open_installation
    from worker.lacking import lacking_nodes

    settings = settings_here(_settings(config))

    def look() -> int:
        here = open_installation(settings)
        return _show(list(lacking_nodes(here.registry, here.policy.policy, datetime.now(UTC).date())), as_json)

    raise typer.Exit(_guarded(look))


def _show(found: list[Lack], as_json: bool) -> int:
    if as_json:
        print_json([lack.model_dump() for lack in found])
    else:
        print_table(
            ("node", "pool", "lacks"),
            ((f"{one.cluster}/{one.node}", one.pool, what) for one in found for what in one.lacks),
            "every node has what its ladder needs",
        )
    return 1 if found else 0
