"""What every process of an installation opens: configuration, parts, storage; and that they fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from activities.registry import ConfigurationError, Registry
from medevac.policy.active import PolicyVersion
from medevac.policy.policy import Policy
from worker.config import Config, ConfigError, load_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.stores import Stores, open_stores

CONFIG = "medevac.yaml"
"""In the data directory: the configuration that `medevac up` makes."""


class NotReady(RuntimeError):
    """Something that this process needs is not there yet; the message says what to run."""


@dataclass(frozen=True, slots=True)
class Installation:
    config: Config
    registry: Registry
    stores: Stores
    policy: PolicyVersion


def find_config(settings: Settings, path: Path | None = None) -> Config:
    path = path or settings.config
    if path is None:
        path = settings.data_dir / CONFIG
        if not path.exists():
            raise ConfigError("no configuration: set MEDEVAC_CONFIG to its file (`medevac up` makes a simulated one)")
    return load_config(path)


def open_installation(settings: Settings) -> Installation:
    """Raises what is wrong, each with the fix: `ConfigError`, `ConfigurationError`, `SchemaError`, `NoPolicy`."""
    config = find_config(settings)
    registry = build_registry(config, settings.data_dir)
    stores = open_stores(settings.database)
    stores.database.check()
    version = stores.policies.active()
    check_policy(version.policy, registry, f"policy version {version.version}")
    return Installation(config, registry, stores, version)


def check_policy(policy: Policy, registry: Registry, origin: str) -> None:
    """A policy for simulated fleets lets every rung go by itself; on a real one it must not even start."""
    if policy.simulated_only and not registry.simulated:
        raise ConfigurationError(
            f"{origin}: is for simulated fleets only (`simulated_only: true`), and this installation is real; "
            "start from `medevac policy preset default`"
        )
