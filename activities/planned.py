"""Planned events of providers: held while a node is emptied for one, and let go on once it is empty."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio import activity

from activities.failures import redact, unreadable, waits
from activities.last_look import Frozen
from activities.ports import HasPlanned, NotSent, Unclear, Unreadable
from activities.registry import NotConfigured, Registry
from activities.signatures import Precondition
from activities.storage.ledger import Ledger
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node


@dataclass(frozen=True, slots=True)
class Notice:
    """One node's, at a provider that can be told."""

    provider: HasPlanned
    incident: str

    def hold(self, node: Node) -> None:
        """More time, where there is any to be had. A refusal is not this step's failure."""
        try:
            self.provider.hold(node)
        except (NotSent, Unclear, Unreadable) as error:
            activity.logger.warning("no more time for a planned event: %s", redact(str(error)))

    def acknowledge(self, node: Node) -> str:
        """What was done, for the step's reason. Where it can't be told, the event comes at its own time."""
        try:
            done = self.provider.acknowledge(node, self.incident)
        except Frozen as error:
            raise waits(str(error), error.retry_after_s or 1.0, "Frozen") from None
        except (NotSent, Unclear, Unreadable) as error:
            return f"; the provider could not be told that it is empty: {redact(str(error), 300)}"
        return "".join(f"; {one}" for one in done)


class Notices:
    def __init__(self, registry: Registry, ledger: Ledger) -> None:
        self._registry = registry
        self._ledger = ledger

    def of(self, pre: Precondition) -> Notice | None:
        """Where the node is emptied for its provider's own event, and for nothing worse."""
        try:
            provider = self._registry.provider(pre.provider)
        except NotConfigured:
            return None
        if pre.order is not None or not isinstance(provider, HasPlanned):
            return None
        try:
            view = self._ledger.incident(pre.incident)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        planned = view is not None and view.fault_class is FaultClass.PLANNED
        return Notice(provider, pre.incident) if planned else None
