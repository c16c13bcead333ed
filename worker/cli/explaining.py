"""What `explain` needs from an installation: its parts and policy, neither Temporal nor a running medevac."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from activities.ports import Unreadable
from activities.registry import ConfigurationError
from activities.storage.database import SchemaError
from activities.storage.ledger import Ledger
from activities.storage.policies import NoPolicy
from medevac.events.event import HealthEvent
from medevac.policy.active import PolicyVersion
from medevac.policy.loading import PolicyError, load, preset
from worker.cli.output import Failed, plain
from worker.cli.running import settings_here
from worker.explain import Explainer, Explanation
from worker.parts import build_registry
from worker.settings import load_settings
from worker.stores import Stores, open_stores


def explain_events(events: Sequence[HealthEvent], policy: Path | None, config: Path | None) -> list[Explanation]:
    """Clusters are called as the configured senders of each event's source call them."""
    from worker.installation import find_config

    settings = settings_here(load_settings())
    now = datetime.now(UTC)
    try:
        configured = find_config(settings, config)
        registry = build_registry(configured, settings.data_dir)
    except (ConfigurationError, ValueError) as error:
        raise Failed(str(error), 2) from error
    stores = open_stores(settings.database)
    ledger = _ledger(stores)
    try:
        version = _version(stores if ledger else None, policy, now)
    except PolicyError as error:
        raise Failed(str(error), 2) from error
    called = {source: configured.cluster_names(source) for source in {event.source for event in events}}
    here = [
        event.model_copy(update={"cluster": called[event.source].get(event.cluster or "", event.cluster)})
        for event in events
    ]
    try:
        return Explainer(registry, version, ledger).explain(here, now)
    except Unreadable as error:
        raise Failed(f"the world cannot be read: {error}") from error


def show(said: Explanation) -> None:
    event = said.event
    node = f"{said.cluster}/{said.node}" if said.node else f"{event.subject or 'no machine'} (?)"
    print(plain(f"{node}: {event.fault or event.kind} ({event.fault_class or 'no class'}) — {said.outcome}"))
    if said.plan is None:
        return
    for reason in said.plan.reasons:
        print(plain(f"  because {reason}"))
    for passed in said.plan.passed_over:
        print(plain(f"  not {passed.rung}: {passed.why}"))
    for lost in said.plan.destroys:
        print(plain(f"  destroys {lost}"))


def _ledger(stores: Stores) -> Ledger | None:
    """None where there is none (yet): then nothing is known of earlier incidents, and nothing is created."""
    if stores.database.dialect == "sqlite" and not Path(stores.database.engine.url.database or "").exists():
        return None
    try:
        stores.database.check()
    except (SchemaError, Unreadable):
        return None
    return stores.ledger


def _version(stores: Stores | None, policy: Path | None, now: datetime) -> PolicyVersion:
    if policy is not None:
        try:
            text = policy.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"{policy}: cannot be read: {error}", 2) from error
        load(text, str(policy))  # for errors that name the file
        return PolicyVersion.of(text, str(policy), now)
    if stores is not None:
        try:
            return stores.policies.active()
        except NoPolicy:
            pass
    return PolicyVersion.of(preset("default"), "default", now)
