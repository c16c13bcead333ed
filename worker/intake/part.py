"""One event on its way from a delivery to the workflows, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from activities.storage.inbox import Item
from medevac.events.event import HealthEvent
from medevac.model import Model
from worker.intake.lanes import lane_of


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    """Held durably; opens an incident, or starts one that the workflow decides about."""
    JOINED = "joined"
    RECORDED = "recorded"
    UNKNOWN_NODE = "unknown_node"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    """Not held. The sender must deliver again."""


class PartResult(Model):
    id: str
    subject: str | None = None
    fault: str | None = None
    outcome: Outcome
    reason: str = ""
    cluster: str | None = None
    node: str | None = None


@dataclass(slots=True)
class Part:
    event: HealthEvent
    cluster: str = ""
    node: str = ""
    opens: bool = False
    """Whether it opens an incident where there is none."""
    is_open: bool | None = None
    """Whether the node has an incident; None where the ledger couldn't say."""
    open_since: datetime | None = None
    stranger: str = ""
    """Lane in which its earlier events may wait, from when nobody knew the node."""
    waits_in: str = ""
    """Lane whose earlier items it must not overtake."""
    opened: bool = False
    outcome: Outcome | None = None
    reason: str = ""
    in_temporal: bool = False
    repeat: bool = False
    idle: bool = False
    """There was no incident to tell of it, and it opens none."""
    item: Item | None = None
    """To be put into the inbox."""
    in_inbox: bool = False
    """It lies there already."""

    def settle(self, outcome: Outcome, reason: str = "", *, in_temporal: bool = False) -> None:
        self.outcome, self.reason, self.in_temporal = outcome, reason, in_temporal

    @property
    def lane(self) -> str:
        return lane_of(self.cluster, self.node)

    @property
    def said(self) -> str:
        return f"{self.outcome}: {self.reason}" if self.reason else str(self.outcome)

    @property
    def result(self) -> PartResult:
        return PartResult(
            id=self.event.id,
            subject=self.event.subject,
            fault=self.event.fault,
            outcome=self.outcome or Outcome.UNAVAILABLE,
            reason=self.reason,
            cluster=self.cluster or self.event.cluster,
            node=self.node or None,
        )
