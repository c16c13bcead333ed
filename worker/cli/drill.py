"""`medevac drill`: the true ladder on one empty node, for a fault that isn't there."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.output import Failed, plain


def register(app: typer.Typer) -> None:
    app.command()(drill)


def drill(
    node: Annotated[str, typer.Option(help="An empty node, NODE or CLUSTER/NODE.")],
    fault: Annotated[str, typer.Option(help="The fault to play: xid/79, thermal/gpu-temp, …")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Kept in the ledger, shown to the others.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Plays a fault on one empty node: its ladder runs as the policy says, reboots and all. Opens no ticket."""
    from worker.cli.api import person_api

    cluster, _, name = node.rpartition("/")
    if not yes and not typer.confirm(
        f"{node} goes through its ladder for {fault}: what that does to it is real. Go on?"
    ):
        raise Failed("nothing was begun")
    order = {"node": name, "cluster": cluster or None, "fault": fault, "reason": reason}
    print(plain(person_api().post("/v1/drills", order)["answer"]))
