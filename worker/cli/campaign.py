"""`medevac campaign`: one action over many nodes, as the person who asks for it, through the gateway."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.cli.output import Failed, plain, print_json, print_styled, print_table, style_of, tell_cut
from worker.cli.patience import Patience

app = typer.Typer(help="One action over many nodes: listed, agreed to, tried on a few, widened, halted.")

LISTING = Patience(
    300.0,
    "it reads every node of the selector and the work on it; select fewer, or see with `medevac doctor` whether a"
    " cluster is slow, and give the command again",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for pipes.")]
Why = Annotated[str, typer.Option("--reason", "-r", help="Why.")]
File = Annotated[Path, typer.Argument(help="YAML: id, act, reason, selector; docs/campaigns.md shows one.")]


@app.command()
def plan(file: File, as_json: AsJson = False) -> None:
    """Shows what it would do to every node, and why others are left out. Begins nothing."""
    found = _api().post("/v1/campaigns/plan", _wish(file), LISTING)
    if as_json:
        print_json(found)
        return
    _show_plan(found["plan"])


@app.command()
def start(
    file: File, yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask here; people are asked.")] = False
) -> None:
    """Shows the list, and asks people for their yes to exactly this list. It begins when they give it."""
    api, wish = _api(), _wish(file)
    found = api.post("/v1/campaigns/plan", wish, LISTING)
    _show_plan(found["plan"])
    if not yes and not typer.confirm("ask people for their yes to this list?"):
        raise Failed("nothing was started")
    body = {**wish, "plan_hash": found["plan_hash"], "via": "cli"}
    print(plain(api.post("/v1/campaigns", body, LISTING)["answer"]))


@app.command("list")
def list_all(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists campaigns, newest first."""
    listed = _api().get("/v1/campaigns", open=not everything, limit=limit)
    tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    print_table(
        ("campaign", "act", "nodes", "state", "because", "by", "since"),
        (
            (
                one["id"], one["plan"]["spec"]["act"], len(one["plan"]["members"]), one["state"], one["why"],
                one["requested_by"], one["at"][:16].replace("T", " "),
            )
            for one in listed
        ),
        "no campaign runs",
    )  # fmt: skip


@app.command()
def show(campaign: str, as_json: AsJson = False) -> None:
    """How far it is, node by node, and the whole plan that people are asked for; the report, once it has ended."""
    found = _api().get(f"/v1/campaigns/{_part(campaign)}")
    if as_json:
        print_json(found)
        return
    row, nodes = found["campaign"], found["nodes"]
    print_styled((f"{row['id']}  {row['plan']['spec']['act']}  ", "bold"), (row["state"], style_of(row["state"])))
    print(plain(f"  {row['why']}"))
    print(plain("  " + ", ".join(f"{n} {what}" for what, n in Counter(_became(one) for one in nodes).items())))
    print_table(
        ("when", "ordered"), ((one["at"][:19].replace("T", " "), one["text"]) for one in found["orders"]), "no order"
    )
    told = [one for one in nodes if one["state"] != "waiting"]
    print_table(
        ("node", "state", "because", "incident", "fault after", "job after"),
        ((f"{n['cluster']}/{n['node']}", n["state"], n["why"], n["incident"], n["fault"], n["job"]) for n in told),
        "no node is in hand yet",
    )
    _show_plan(row["plan"])


def _became(node: dict[str, Any]) -> str:
    return f"left out by {node['by']}" if node.get("by") else str(node["state"])


@app.command()
def pause(campaign: str, reason: Why = "") -> None:
    """Begins nothing more; what is in hand ends."""
    _order(campaign, "pause", reason)


@app.command()
def halt(campaign: str, reason: Why = "") -> None:
    """Stops it: orders that have not begun are taken back, nothing more is destroyed. One person is enough."""
    _order(campaign, "halt", reason)


@app.command()
def resume(campaign: str, reason: Why = "") -> None:
    """Goes on. After a halt it takes the words of as many people as agreed to it, each within an hour."""
    _order(campaign, "resume", reason)


@app.command()
def widen(campaign: str, reason: Why = "") -> None:
    """Takes the present stage as watched long enough. It takes as many people as agreed to it, within an hour."""
    _order(campaign, "widen", reason)


@app.command()
def end(campaign: str, reason: Why = "") -> None:
    """Ends it for good; nodes that were drained are checked and returned."""
    _order(campaign, "end", reason)


def _order(campaign: str, what: str, reason: str) -> None:
    print(plain(_api().post(f"/v1/campaigns/{_part(campaign)}/{what}", {"reason": reason, "via": "cli"})["answer"]))


def _show_plan(found: dict[str, Any]) -> None:
    from medevac.campaigns import wording
    from medevac.campaigns.listing import CampaignPlan

    plan = CampaignPlan.model_validate(found)
    spec = plan.spec
    print_styled((f"{spec.id}: {spec.act} of {len(plan.members)} nodes", "bold"), (f"  {spec.reason}", ""))
    print(plain(f"to each: {wording.happens(spec)}"))
    if unusual := wording.differing(spec.care):
        print_styled(("differs from what is shipped: ", "yellow"), ("; ".join(unusual), ""))
    print(plain(f"{wording.pace(plan)}; {len(plan.skipped)} left out, {len(plan.jobs)} jobs hit"))
    print_table(
        ("node", "rack", "image now", "jobs hit", "destroys"),
        (
            (f"{m.cluster}/{m.node}", m.rack, m.image or "", ", ".join(m.jobs), "; ".join(m.destroys))
            for m in plan.members
        ),
        "no node",
    )
    if plan.skipped:
        print_table(("left out", "because"), ((f"{s.cluster}/{s.node}", s.why) for s in plan.skipped), "")


def _wish(file: Path) -> dict[str, Any]:
    from worker.gateway.campaigns import Wish
    from worker.yaml_model import YamlError, load_yaml_model

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{file}: cannot be read: {error}", 2) from error
    try:
        return load_yaml_model(Wish, text, str(file)).model_dump(mode="json")
    except YamlError as error:
        raise Failed(str(error), 2) from error


def _part(campaign: str) -> str:
    from worker.cli.api import part

    return part(campaign)


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()
