"""`medevac silence`: what is not said or done about some faults for a while."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from medevac.faults.classes import FaultClass
from medevac.policy.silences import Holds
from worker.cli.output import plain, print_json, print_table, tell_cut

app = typer.Typer(help="Holds messages, marks or repairs of some faults for a while; a latched fault is always paged.")

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@app.command()
def add(
    reason: Annotated[str, typer.Option("--reason", "-r", prompt=True, help="Kept in the ledger, shown to others.")],
    duration: Annotated[str, typer.Option("--for", help="30m, 4h, 2d; at most 7d.")],
    holds: Annotated[list[Holds], typer.Option(help="What is held; may be given several times.")],
    cluster: str | None = None,
    pool: str | None = None,
    node: Annotated[str | None, typer.Option(help="NODE or CLUSTER/NODE.")] = None,
    fault: Annotated[str | None, typer.Option(help="Its code: xid/79.")] = None,
    fault_class: Annotated[FaultClass | None, typer.Option("--class")] = None,
    source: Annotated[str | None, typer.Option(help="Who raised it: alertmanager, kmsg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Silences what fits every line given. Nothing given is an error, never everything."""
    from worker.cli.people import _seconds

    within, _, name = (node or "").rpartition("/")
    matcher: dict[str, Any] = {
        "cluster": within or cluster, "pool": pool, "node": name or None, "fault": fault,
        "fault_class": fault_class, "source": source,
    }  # fmt: skip
    body = {"matcher": matcher, "reason": reason, "for_s": _seconds(duration), "holds": list(holds)}
    made = _api().post("/v1/silences", body)
    if as_json:
        print_json(made)
    else:
        print(plain(made["answer"]))


@app.command("list")
def list_all(
    everything: Annotated[bool, typer.Option("--all", help="Those that are over as well.")] = False,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists silences."""
    listed = _api().get("/v1/silences", standing=not everything, limit=limit)
    if everything:
        tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    print_table(
        ("silence", "of", "holds", "by", "reason", "until"),
        (
            (
                s["id"],
                ", ".join(f"{name} {value}" for name, value in s["matcher"].items() if value),
                ", ".join(s["holds"]),
                s["by"],
                s["reason"],
                s["until"][:16].replace("T", " ") + (f", ended by {s['ended_by']}" if s["ended_by"] else ""),
            )
            for s in listed
        ),
        "nothing is silenced",
    )


@app.command()
def end(silence: str) -> None:
    """Ends one now; what it held is judged again."""
    from worker.cli.api import part

    print(plain(_api().post(f"/v1/silences/{part(silence)}/end", {})["answer"]))


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()
