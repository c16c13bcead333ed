"""What AWS has planned for a machine: its group's end of it, and EC2's scheduled events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities.providers.aws.access import Access, Place
from activities.providers.aws.groups import Groups
from activities.providers.aws.instances import GROUP_TAG, Instance

SOONEST = timedelta(minutes=65)
"""EC2 takes no new start within the next hour."""
WORTH = timedelta(minutes=30)
"""An event is moved where that brings it so much nearer; one that was moved stays."""


class Planned:
    def __init__(self, access: Access, groups: Groups) -> None:
        self._access = access
        self._groups = groups

    def acknowledge(self, place: Place, instance: Instance, now: datetime | None = None) -> tuple[str, ...]:
        """Of an emptied machine: its group needn't wait, and events that may be moved come as soon as EC2 lets them."""
        completed = self._groups.complete(place, instance) if GROUP_TAG in instance.tags else None
        moved = self._brought_forward(place, instance, now or datetime.now(UTC))
        return (*([completed] if completed else []), *moved)

    def _brought_forward(self, place: Place, instance: Instance, now: datetime) -> list[str]:
        given = {"InstanceIds": [instance.id], "IncludeAllInstances": True}
        status = self._access.read(place, "ec2", "DescribeInstanceStatus", **given)["InstanceStatuses"]
        moved = []
        for event in (status[0].get("Events") or ()) if status else ():
            # Only what has a deadline may be moved at all; what is over stays listed for a while.
            over = str(event.get("Description", "")).startswith(("[Completed]", "[Canceled]"))
            if over or "NotBeforeDeadline" not in event or event["NotBefore"] - now < SOONEST + WORTH:
                continue
            start = now + SOONEST
            self._access.write(
                place, "ec2", "ModifyInstanceEventStartTime", who=f"event/{instance.id}",
                InstanceId=instance.id, InstanceEventId=event["InstanceEventId"], NotBefore=start,
            )  # fmt: skip
            was = f"{event['NotBefore']:%Y-%m-%d %H:%M}"
            moved.append(
                f"{event['Code']} {event['InstanceEventId']} is brought forward from {was} to {start:%H:%M} UTC"
            )
        return moved
