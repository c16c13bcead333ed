"""What a history holds: its events, and its activities in the order in which they were scheduled."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

LOCAL = "core_local_activity"


def activities(history: WorkflowHistory) -> list[dict[str, Any]]:
    """`{name, local, takes, gives}` of each; a local activity leaves no trace of its input but our own."""
    found: dict[int, dict[str, Any]] = {}
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            found[event.event_id] = {
                "name": scheduled.activity_type.name,
                "local": False,
                "takes": json.loads(scheduled.input.payloads[0].data),
                "gives": None,
            }
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            found[completed.scheduled_event_id]["gives"] = json.loads(completed.result.payloads[0].data)
        elif event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
            marker = event.marker_recorded_event_attributes
            if marker.marker_name == LOCAL:
                data = json.loads(marker.details["data"].payloads[0].data)
                found[event.event_id] = {
                    "name": data["activity_type"],
                    "local": True,
                    "takes": None,
                    "gives": json.loads(marker.details["result"].payloads[0].data),
                }
    return list(found.values())


def events(history: WorkflowHistory) -> Counter[str]:
    names = (EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower() for event in history.events)
    return Counter(names)
