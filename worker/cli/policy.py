"""`medevac policy …`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from worker.cli.output import Failed, plain, print_json, print_table

if TYPE_CHECKING:
    from medevac.policy.policy import Policy

app = typer.Typer(
    help="The policy: check, compare, apply, approve, roll back.", no_args_is_help=True, rich_markup_mode=None
)

File = Annotated[Path, typer.Argument(help="Policy file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json")]


@app.command()
def check(file: File) -> None:
    """Reads a policy file and says what is wrong with it, with line and column."""
    from medevac.policy.loading import PolicyError, load

    try:
        policy = load(_text(file), str(file))
    except PolicyError as error:
        raise Failed(str(error), 2) from error
    print(f"{file}: policy {policy.name} is good")
    for line in _windows(policy, datetime.now(UTC)):
        print(plain(line))


def _windows(policy: Policy, now: datetime) -> Iterator[str]:
    """What each window holds, whether it does now, and when it next begins, in its own zone."""
    for name, window in policy.windows.items():
        zone = ZoneInfo(window.zone)
        held = ", ".join(window.holds) + (f" of {', '.join(window.pools)}" if window.pools else "")
        until = window.until(now)
        does, would = ("asks about", "would ask about") if window.asks else ("holds", "would hold")
        state = f"{does} {held} now, until {until.astimezone(zone):%a %Y-%m-%d %H:%M}" if until else f"{would} {held}"
        spans = [(a.astimezone(zone), b.astimezone(zone)) for a, b in islice(window.spans(now), 2)]
        times = (
            "; ".join(f"{a:%a %Y-%m-%d %H:%M} to {b:%a %Y-%m-%d %H:%M}" for a, b in spans) or "never within 400 days"
        )
        yield f"window {name}: {state}; {'open' if window.outside else 'next'}: {times} ({window.zone})"


@app.command()
def schema() -> None:
    """Prints the JSON Schema of policy files."""
    import json

    from medevac.policy.loading import schema as policy_schema

    print(json.dumps(policy_schema(), indent=2))


@app.command()
def preset(name: Annotated[str, typer.Argument(help="default, modal, krea or demo.")] = "default") -> None:
    """Prints a policy to start from, with comments."""
    from medevac.policy.loading import PolicyError
    from medevac.policy.loading import preset as text

    try:
        print(text(name), end="")
    except PolicyError as error:
        raise Failed(str(error), 2) from error


@app.command()
def diff(file: File, as_json: AsJson = False) -> None:
    """Shows what would change: for open incidents, for the last 7 days' events, and who is newly let act."""
    found = _api().post("/v1/policy/diff", {"text": _text(file), "origin": str(file)})
    if as_json:
        print_json(found)
        return
    if not found["changes"]:
        print(f"it says what the active version {found['active']} says")
        return
    for change in found["changes"]:
        print(plain(f"{'WIDENS ' if change['widening'] else 'narrows'}  {change['text']}"))
    for line in found["newly_acts"]:
        print(plain(f"newly acts: {line}"))
    for title, effects in (("open incidents", found["open_incidents"]), ("the last 7 days", found["last_days"])):
        print(f"\n{title}: {len(effects) or 'no'} node(s) would be treated otherwise")
        for one in effects[:50]:
            print(plain(f"  {one['cluster']}/{one['node']} {one['fault']}: {one['old']} → {one['new']}"))
    for one in found["exceeding"]:
        print(plain(f"{len(one['nodes'])} of {one['of']} nodes of pool {one['pool']} are over {one['threshold']} now"))
    if found["widening"]:
        print("\nIt widens: after `policy apply` someone else must `policy approve` it.")


@app.command()
def apply(
    file: File,
    accept: Annotated[bool, typer.Option(help="Switch a threshold on though many nodes exceed it now.")] = False,
) -> None:
    """Applies a policy: a narrowing at once, a widening once a second person approves."""
    body = {"text": _text(file), "origin": str(file), "accept": accept}
    print(plain(_api().post("/v1/policy/apply", body)["text"]))


@app.command()
def approve(version: int) -> None:
    """Approves a proposed version, as someone other than its author."""
    print(plain(_api().post(f"/v1/policy/versions/{version}/approve")["text"]))


@app.command()
def rollback() -> None:
    """Goes back to the version that was active before."""
    print(plain(_api().post("/v1/policy/rollback")["text"]))


@app.command("list")
def list_versions(as_json: AsJson = False) -> None:
    """Lists all versions; * is the active one."""
    api = _api()
    listed, active = api.get("/v1/policy/versions"), api.get("/v1/policy")
    if as_json:
        print_json(listed)
        return
    print_table(
        ("", "version", "author", "at", "approved by", "hash"),
        (
            (
                "*" if v["version"] == active["version"] else "",
                v["version"],
                v["author"],
                v["applied_at"][:19],
                v["approved_by"],
                v["hash"][:12],
            )
            for v in listed
        ),
        "no policy yet",
    )


@app.command()
def show(version: Annotated[int | None, typer.Argument(help="Without: the active one.")] = None) -> None:
    """Prints a version's text."""
    path = "/v1/policy" if version is None else f"/v1/policy/versions/{version}"
    print(_api().get(path)["text"], end="")


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{file}: cannot be read: {error}", 2) from error
