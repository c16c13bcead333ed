"""`medevac providers`: how each does, with counts. `medevac provider certify`: a proof on a real machine."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.output import Failed, plain, print_json, print_table
from worker.cli.processes import _guarded, _settings

if TYPE_CHECKING:
    from worker.settings import Settings

app = typer.Typer(help="Machine providers: prove one on a real machine.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    app.command()(providers)


def providers(
    days: Annotated[float, typer.Option(help="How far back.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for pipes.")] = False,
) -> None:
    """Lists how each provider does by region, SKU and image: boots, faults, repairs, support, adjusted price."""
    from worker.cli.api import person_api

    found = person_api().get("/v1/providers", days=days)
    if as_json:
        print_json(found)
        return
    print_table(
        (
            "provider", "region", "sku", "image", "nodes", "boots", "boot time", "faults per 1,000 node-days",
            "repairs", "support", "price", "adjusted", "certified", "few",
        ),
        (_row(row) for row in found["rows"]),
        "no machine is known yet",
    )  # fmt: skip
    for pool, ranked in found["pools"].items():
        print(f"\npool {pool}, best first:")
        for n, one in enumerate(ranked, 1):
            print(f"  {n}. {one['why']}")


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    boots, more = row["boots"], []
    more += [f"{row['pending']} pending"] if row["pending"] else []
    more += [f"{row['refused']} refused"] if row["refused"] else []
    return (
        *row["place"],
        row["nodes"],
        ", ".join([f"{boots['n']} of {boots['of']}", *more]),
        _time(row["boot_s"]),
        ", ".join(f"{kind} {rate:.1f} ({row['faults'][kind]})" for kind, rate in row["per_1000_node_days"].items()),
        ", ".join(f"{rung} {rate['n']} of {rate['of']}" for rung, rate in row["repairs"].items()),
        ", ".join(filter(None, (f"{row['answered']} of {row['cases']}", _time(row["answer_s"])))),
        _money(row["price"]),
        _money(row["adjusted_price"]),
        ", ".join(row["proved"]) or "yes" if row["certified"] else "no",
        f"only {', '.join(row['few'])}" if row["few"] else "",
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return (
        f"{seconds:.0f} s"
        if seconds < 600
        else f"{seconds / 60:.0f} min"
        if seconds < 36_000
        else f"{seconds / 3600:.0f} h"
    )


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@app.callback()
def provider() -> None:
    """Machine providers: prove one on a real machine."""


@app.command()
def certify(
    name: Annotated[str, typer.Argument(help="The provider, as the configuration names it.")],
    machine: Annotated[str, typer.Option(help="Id of one of its machines, cordoned and empty.")],
    destructive: Annotated[
        bool, typer.Option("--destructive", help="What loses its disks too: reinstall, stop and start.")
    ] = False,
    deadline_s: Annotated[float, typer.Option(help="Seconds for the proof of each call.", min=1)] = 1_800.0,
    confirm: Annotated[str, typer.Option(help="The machine's id once more, instead of typing it.")] = "",
    config: Annotated[Path | None, typer.Option(help="Configuration file; default MEDEVAC_CONFIG.")] = None,
) -> None:
    """Proves a provider on a real machine, and stores the proof: until then people approve what it is to do."""
    from worker.cli.running import settings_here

    settings = settings_here(_settings(config))
    raise typer.Exit(_guarded(lambda: _certify(settings, name, machine, destructive, deadline_s, confirm)))


def _certify(settings: Settings, name: str, machine: str, destructive: bool, deadline_s: float, confirm: str) -> int:
    from worker.certify import Certifier, Unfit
    from worker.installation import open_installation

    here = open_installation(settings)
    try:
        certifier = Certifier.of(here.registry, here.stores, name, machine, deadline_s)
    except Unfit as error:
        raise Failed(str(error), 2) from error
    does = "rebooted, and DESTRUCTIVELY: what is on its disks is lost" if destructive else "rebooted"
    print(plain(f"{machine} ({certifier.node.cluster}/{certifier.node.name}) is {does}"))
    if (confirm or typer.prompt("type the machine's id to go on")) != machine:
        raise Failed("that is another id; nothing was done", 2)
    passed: bool | None = False
    for step in certifier.run(getpass.getuser(), destructive):
        passed = step.passed
        print(plain(f"{ {True: 'ok  ', False: 'BAD ', None: '-   '}[passed] }  {step.name}: {step.seen}"), flush=True)
    return 0 if passed else 1
