"""`up`, `worker`, `gateway`, `consume`, `poll`, `watch`, `setup`, `doctor`, `vote-key`: processes and their needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.output import Failed, print_json

if TYPE_CHECKING:
    from worker.settings import Settings

Config = Annotated[Path | None, typer.Option(help="Configuration file; default MEDEVAC_CONFIG.")]


def register(app: typer.Typer) -> None:
    for command in (up, worker, gateway, consume, poll, watch, setup, doctor, vote_key):
        app.command()(command)


def up(
    config: Config = None,
    policy: Annotated[Path | None, typer.Option(help="Policy to start with, when none is active yet.")] = None,
    demo: Annotated[bool, typer.Option(help="Heal three faults in a simulated fleet, live.")] = False,
) -> None:
    """Starts everything here: embedded Temporal, worker, gateway; without a configuration a simulated fleet."""
    import asyncio

    settings = _settings(config)
    if demo:
        from worker.demo import run_demo

        raise typer.Exit(_guarded(lambda: asyncio.run(run_demo(settings, policy))))
    from worker.embedded import run_up

    raise typer.Exit(_guarded(lambda: asyncio.run(run_up(settings, policy))))


def vote_key(file: Annotated[Path, typer.Argument(help="Where the private key goes; FILE.pub beside it.")]) -> None:
    """Makes the gateway's key for signing votes, and its public half for everyone's configuration."""
    from worker.vote_keys import write_pair

    try:
        public = write_pair(file)
    except OSError as error:
        raise Failed(f"{file}: {error.strerror or error}; name a new file in a folder that you may write to") from error
    print(f"{file}: for the gateway alone (MEDEVAC_VOTE_KEY_FILE={file})")
    print(f"{public}: add it to the configuration, `vote_keys: [{{file: {public}}}]`")


def worker(config: Config = None) -> None:
    """Runs one worker process. Start as many as needed."""
    import asyncio

    from worker.runtime import run_worker

    settings = _settings(config)
    raise typer.Exit(_guarded(lambda: asyncio.run(run_worker(settings))))


def gateway(config: Config = None) -> None:
    """Runs the HTTP gateway."""
    import asyncio

    from worker.gateway.serve import run_gateway

    settings = _settings(config)
    raise typer.Exit(_guarded(lambda: asyncio.run(run_gateway(settings))))


def consume(config: Config = None) -> None:
    """Receives from the SQS queues of the configuration. Start as many as needed."""
    import asyncio

    from worker.intake.sqs import run_consume

    settings = _settings(config)
    raise typer.Exit(_guarded(lambda: asyncio.run(run_consume(settings))))


def poll(config: Config = None) -> None:
    """Asks the monitors of the configuration that only answer when asked. Start two; one asks."""
    import asyncio

    from worker.intake.poller import run_poll

    settings = _settings(config)
    raise typer.Exit(_guarded(lambda: asyncio.run(run_poll(settings))))


def watch(config: Config = None) -> None:
    """Hears what clusters say of their nodes: conditions and Events. Start two; one speaks."""
    import asyncio

    from worker.intake.watching import run_watch

    settings = _settings(config)
    raise typer.Exit(_guarded(lambda: asyncio.run(run_watch(settings))))


def setup(
    config: Config = None,
    policy: Annotated[Path | None, typer.Option(help="First policy. Without: the default one, which observes.")] = None,
    current: Annotated[str | None, typer.Option(help="Make this worker build the current one.")] = None,
) -> None:
    """Prepares ledger, Temporal namespace and first policy. Safe to repeat."""
    import asyncio

    from worker.setup import run_setup

    settings = _settings(config)

    async def tell() -> int:
        async for line in run_setup(settings, policy, current):
            print(line, flush=True)
        return 0

    raise typer.Exit(_guarded(lambda: asyncio.run(tell())))


def doctor(config: Config = None, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Checks every dependency and says how to mend what is broken."""
    import asyncio

    from worker.cli.running import settings_here
    from worker.doctor import examine

    settings = settings_here(_settings(config))
    findings = asyncio.run(examine(settings))
    if as_json:
        print_json([finding.model_dump() for finding in findings])
    else:
        for finding in findings:
            print(f"{'ok ' if finding.ok else 'BAD'}  {finding.what}: {finding.text}")
            if finding.fix:
                print(f"     → {finding.fix}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _settings(config: Path | None) -> Settings:
    from worker.logs import configure
    from worker.settings import SettingsError, load_settings

    try:
        settings = load_settings(**({"config": config} if config else {}))
    except SettingsError as error:
        raise Failed(str(error), 2) from error
    configure(settings.log_level, settings.log_json)
    return settings


def _guarded(run: Callable[[], int]) -> int:
    """Wrong configuration is bad input (2) with one line; everything else keeps its traceback in the log."""
    from activities.ports import Unreadable
    from activities.registry import ConfigurationError
    from activities.storage.database import SchemaError
    from activities.storage.policies import NoPolicy
    from medevac.policy.loading import PolicyError
    from worker.config import ConfigError
    from worker.gateway.secrets import SecretError
    from worker.installation import NotReady
    from worker.settings import SettingsError

    try:
        return run()
    except (ConfigError, ConfigurationError, PolicyError, SecretError, SettingsError) as error:
        raise Failed(str(error), 2) from error
    except (NoPolicy, NotReady, SchemaError, Unreadable) as error:
        raise Failed(str(error)) from error
