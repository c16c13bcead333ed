"""From the configuration file to the registry of parts.

A third party's adapter is a factory `(name, options) -> port`, published through one of the entry-point groups
`medevac.clusters`, `medevac.providers`, `medevac.checks`, `medevac.tickets`, `medevac.chat`, `medevac.pagers` under its
`kind`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from activities.evidence_store import EvidenceStore, open_store
from activities.failures import redact
from activities.inventory_file import read_inventory
from activities.registry import ConfigurationError, Registry, complaints
from activities.storage_probe import StorageProbes
from activities.ticketing import name_of
from medevac.fleet.inventory import Inventory, InventoryError
from medevac.model import digest
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


@dataclass(slots=True)
class Built:
    """Every part by itself, so that one that can't be made hides nothing of the others."""

    parts: dict[str, Any] = field(default_factory=dict)
    """By what they are called: `cluster main`, `provider aws`, `checks jobs`, `tickets jira`, `chat`, ..."""
    wrong: dict[str, str] = field(default_factory=dict)
    """What can't be made, and what to change."""
    registry: Registry | None = None
    """Of all parts; None where any is wrong."""

    @classmethod
    def of(cls, registry: Registry) -> Built:
        parts: dict[str, Any] = {f"cluster {one.name}": one for one in registry.clusters()}
        parts |= {f"checks of cluster {one.name}": registry.checks(one.name) for one in registry.clusters()}
        parts |= {f"provider {one.name}": one for one in registry.providers()}
        parts |= {f"tickets {name_of(one)}": one for one in registry.ticket_systems()}
        parts |= {f"pager {one.name}": one for one in registry.pagers}
        parts |= {"evidence": registry.evidence} if registry.evidence is not None else {}
        return cls({**parts, "chat": registry.chat}, {}, registry)

    def make(self, what: str, make: Callable[[], T]) -> T | None:
        try:
            made = self.parts[what] = make()
        except ConfigurationError as error:
            self.wrong[what] = str(error)
            return None
        return made

    def all(self, group: str, kind: str, parts: Iterable[configured.Part]) -> dict[str, Any]:
        made = {part.name: self.make(f"{kind} {part.name}", partial(_made, group, part)) for part in parts}
        return {name: one for name, one in made.items() if one is not None}


def build_registry(config: Config, data_dir: Path) -> Registry:
    """Raises `ConfigurationError`, which names each part that is wrong and what to change."""
    built = build_parts(config, data_dir)
    if built.registry is None:
        raise ConfigurationError("\n".join(built.wrong.values()))
    return built.registry


def build_parts(config: Config, data_dir: Path) -> Built:
    built = Built()
    if config.simulated:
        registry = built.make("simulation", lambda: _simulated(config, data_dir))
        return built if registry is None else Built.of(registry)
    checks = built.all("checks", "checks", config.checks)
    tickets = built.all("tickets", "tickets", config.tickets)
    clusters = built.all("clusters", "cluster", config.clusters)
    providers = built.all("providers", "provider", config.providers)
    pagers = built.all("pagers", "pager", config.pagers)
    told = config.chat
    chat = built.make("chat", (lambda: _made("chat", told)) if told else LogChat)
    evidence = built.make("evidence", lambda: _evidence(config, data_dir))
    inventory = built.make("inventory", lambda: _inventory(config))
    only_checks = config.checks[0].name if len(config.checks) == 1 else ""
    only_tickets = config.tickets[0].name if len(config.tickets) == 1 else ""

    def whole() -> Registry:
        assert chat is not None  # noqa: S101 - it would be among what is wrong
        return Registry(
            clusters=clusters.values(),
            providers=providers.values(),
            chat=chat,
            checks={c.name: checks[name] for c in config.clusters if (name := c.checks or only_checks)},
            tickets={p.name: tickets[name] for p in config.providers if (name := p.tickets or only_tickets)},
            evidence=evidence,
            inventory=inventory,
            pagers=pagers.values(),
            storage=StorageProbes(config.storage_probes),
            forms={part.name: form(part) for part in config.providers},
        )

    if not built.wrong:
        built.registry = built.make("parts", whole)
        built.parts.pop("parts", None)
    return built


def form(part: configured.Part) -> str:
    """Of a provider as it is configured: its kind and all its options. Secrets stand there by reference only; what
    looks like one all the same goes into no digest."""
    return digest({"kind": part.kind, "options": _without_secrets(part.options)})


def _without_secrets(value: Any) -> Any:
    match value:
        case str():
            return redact(value, len(value) + 100)
        case dict():
            return {name: _without_secrets(one) for name, one in value.items()}
        case list() | tuple():
            return [_without_secrets(one) for one in value]
        case _:
            return value


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
