"""From the configuration file to the registry of parts.

A third party's adapter is a factory `(name, options) -> port`, published through one of the entry-point groups
`medevac.clusters`, `medevac.providers`, `medevac.checks`, `medevac.tickets`, `medevac.chat`, `medevac.pagers` under its
`kind`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from activities.evidence_store import EvidenceStore, open_store
from activities.inventory_file import read_inventory
from activities.ports import Checks, Tickets
from activities.registry import ConfigurationError, Registry, complaints
from activities.storage_probe import StorageProbes
from medevac.fleet.inventory import Inventory, InventoryError
from simulation.build import Parts as Simulation
from simulation.build import parts as simulated_parts
from worker import config as configured
from worker.config import SIMULATION, Config

log = logging.getLogger(__name__)

T = TypeVar("T")
WORLD = "world.sqlite"


class LogChat:
    """Where no chat is configured: messages go to the log, which alerts and people may read."""

    simulated = False

    def find(self, key: str) -> str | None:
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        logging.getLogger("medevac.messages").warning("[%s] %s", thread, text)
        return "log"


def build_registry(config: Config, data_dir: Path) -> Registry:
    """Raises `ConfigurationError`, which names the part and what to change."""
    if config.simulated:
        return _simulated(config, data_dir)
    checks: dict[str, Checks] = {part.name: _made("checks", part) for part in config.checks}
    tickets: dict[str, Tickets] = {part.name: _made("tickets", part) for part in config.tickets}
    only_checks = next(iter(checks), "") if len(checks) == 1 else ""
    only_tickets = next(iter(tickets), "") if len(tickets) == 1 else ""
    return Registry(
        clusters=[_made("clusters", part) for part in config.clusters],
        providers=[_made("providers", part) for part in config.providers],
        chat=_made("chat", config.chat) if config.chat else LogChat(),
        checks={c.name: checks[name] for c in config.clusters if (name := c.checks or only_checks)},
        tickets={p.name: tickets[name] for p in config.providers if (name := p.tickets or only_tickets)},
        evidence=_evidence(config, data_dir),
        inventory=_inventory(config),
        pagers=[_made("pagers", part) for part in config.pagers],
        storage=StorageProbes(config.storage_probes),
    )


def _inventory(config: Config) -> Inventory:
    try:
        return read_inventory(config.inventory, [cluster.name for cluster in config.clusters])
    except InventoryError as error:
        raise ConfigurationError(str(error)) from None


def _evidence(config: Config, data_dir: Path) -> EvidenceStore:
    try:
        return open_store(config.evidence, data_dir)
    except ImportError:
        raise ConfigurationError("evidence: a bucket needs the extra `aws`: pip install 'medevac[aws]'") from None
    except Exception as error:
        raise ConfigurationError(f"evidence: {type(error).__name__}: {error}; see docs/kubernetes.md") from error


def world_path(config: Config, data_dir: Path) -> Path:
    """Of the simulated world that all simulated parts stand on."""
    named = {str(part.options["world"]) for part in (*config.clusters, *config.providers) if "world" in part.options}
    if len(named) > 1:
        raise ConfigurationError(f"simulated parts name several worlds ({', '.join(sorted(named))}); name one")
    return Path(named.pop()) if named else data_dir / WORLD


def _simulated(config: Config, data_dir: Path) -> Registry:
    path = world_path(config, data_dir)
    try:
        simulation: Simulation = simulated_parts(path)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigurationError(f"{error}; `medevac up` makes one") from error
    return Registry(
        clusters=_chosen("cluster", config.clusters, simulation.clusters),
        providers=_chosen("provider", config.providers, simulation.providers),
        chat=_made("chat", config.chat) if config.chat and config.chat.kind != SIMULATION else simulation.chat,
        checks={part.name: simulation.checks for part in config.clusters} if config.checks else {},
        tickets={part.name: simulation.tickets for part in config.providers} if config.tickets else {},
        inventory=_inventory(config),
        pagers=[_made("pagers", part) for part in config.pagers],
    )


def _chosen(what: str, parts: tuple[configured.Part, ...], known: tuple[T, ...]) -> list[T]:
    by_name = {str(getattr(part, "name", "")): part for part in known}
    for part in parts:
        if part.name not in by_name:
            raise ConfigurationError(
                f"{what} {part.name}: the simulated world has none of that name, only {', '.join(by_name)}"
            )
    return [by_name[part.name] for part in parts]


def _made(group: str, part: configured.Part) -> Any:
    found = {entry.name: entry for entry in entry_points(group=f"medevac.{group}")}
    if part.kind not in found:
        known = ", ".join(sorted({*found, SIMULATION}))
        raise ConfigurationError(f"{group} {part.name}: nothing installed is of kind {part.kind}; there are: {known}")
    try:
        factory: Callable[[str, dict[str, Any]], Any] = found[part.kind].load()
        return factory(part.name, dict(part.options))
    except ConfigurationError:
        raise
    except ValidationError as error:
        # The error itself repeats what was given, which may be a secret in the wrong place.
        raise ConfigurationError(
            f"{group} {part.name} ({part.kind}) cannot be made: {complaints(error)}; see its options"
        ) from None
    except Exception as error:
        raise ConfigurationError(
            f"{group} {part.name} ({part.kind}) cannot be made: {type(error).__name__}: {error}; see its options"
        ) from error
