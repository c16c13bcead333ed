"""Oracle Cloud events, with CloudEvents 0.1 keys, from Notifications, Functions or Streaming.

The instance of a maintenance is `additionalDetails.instanceId`; `resourceId` is the maintenance itself.
"""

from __future__ import annotations

import base64
import binascii
import re

from medevac.events.alert_codes import alert_code
from medevac.events.event import Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    epoch,
    fault_code,
    instant,
    peek_json,
    quote,
    read_json,
    severity_word,
)
from medevac.model import digest

SOURCE = "oci"
CLOUDEVENT_TYPES = ("com.oraclecloud.",)

_INSTANCE = re.compile(r"ocid1\.instance\.[a-z0-9]{1,20}\.[a-z0-9-]{0,40}\.[a-z0-9]{4,120}")
CONFIRMATION_URL = re.compile(r"https://[a-z0-9.-]{1,80}\.oraclecloud\.com/[!-~]{0,2000}")
"""The only addresses that a subscription is confirmed at."""
MAINTENANCE = "com.oraclecloud.computeapi.instancemaintenance"
PREEMPTION = "com.oraclecloud.computeapi.instancepreemptionaction"
OVER = frozenset(("SUCCEEDED", "COMPLETED", "CANCELED", "CANCELLED"))


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if "x-oci-ns-confirmationurl" in payload.headers:
        _confirmation(reading, payload.headers["x-oci-ns-confirmationurl"])
        return reading.parsed()
    document = read_json(payload.body)
    items = reading.first(document) if isinstance(document, list) else [document]
    for i, item in enumerate(items, 1):
        with reading.part(f"event {i}"):
            fields = _named(Fields.of(item))
            if "alarmMetaData" in fields:
                _alarm(reading, fields)
            else:
                _event(reading, fields)
    if len(reading.refused) == len(items) and items:
        raise ParseError(reading.refused[0].reason)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if "x-oci-ns-confirmationurl" in payload.headers:
        return True
    document = peek_json(payload)
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return False
    if "alarmMetaData" in first and "dedupeKey" in first:
        return True
    kind = first.get("eventType")
    return isinstance(kind, str) and kind.startswith("com.oraclecloud.")


def _named(fields: Fields) -> Fields:
    """With the keys of CloudEvents 0.1; Streaming carries each event in base64, beside its offset."""
    if "value" in fields and "partition" in fields:
        try:
            raw = base64.b64decode(fields.text("value").encode(), validate=True)
        except (binascii.Error, ValueError):
            raise ParseError("field value is not valid base64") from None
        fields = Fields.of(read_json(raw, "value"), "value")
    newer = {"type": "eventType", "id": "eventID", "time": "eventTime"}
    if "eventType" in fields or "specversion" not in fields:
        return fields
    return Fields({newer.get(k, k): v for k, v in fields.value.items()}, fields.where)


def _confirmation(reading: Reading, url: str) -> None:
    if not CONFIRMATION_URL.fullmatch(url):
        raise ParseError(f"X-OCI-NS-ConfirmationURL {quote(url)} is no address of Oracle Cloud")
    reading.add(
        Kind.HANDSHAKE, "oci/subscription-confirmation", part=url, key=("confirmation", url), actionable=False,
        summary="Notifications asks to confirm the subscription", detail={"subscribe_url": url},
    )  # fmt: skip


def _alarm(reading: Reading, fields: Fields) -> None:
    """A Monitoring alarm as Notifications sends it: one statement for each resource among its dimensions."""
    title, when = fields.text("title"), epoch(fields.get("timestampEpochMillis"))
    words = fields.text("body", "")
    code, seen = alert_code(title, None, [words]), digest(dict(fields.value))
    for i, item in enumerate(reading.first(fields.parts("alarmMetaData")), 1):
        held = Fields.of(item, f"alarmMetaData {i}")
        status, alarm = held.text("status"), held.scalar("id")
        if status not in ("FIRING", "OK"):  # RESET: of its repeats, not of what it watches
            continue
        firing = status == "FIRING"
        found = [v for d in held.list("dimensions", ()) for v in Fields.of(d, "dimensions").value.values()]
        instances = [i for i in dict.fromkeys(f for f in found if isinstance(f, str)) if _INSTANCE.fullmatch(i)]
        for subject in instances or (None,):
            reading.add(
                Kind.FAULT if firing else Kind.RECOVERED, code, part=[seen, alarm, subject],
                key=("alarm", alarm, subject), subject=subject, actionable=subject is not None,
                severity=severity_word(held.get("severity")) or severity_of(code), statement=Statement.LEVEL,
                starts_at=when if firing else None, ends_at=None if firing else when, summary=f"{title}: {words}",
                detail={"alarm": alarm, "type": fields.maybe_text("type")},
            )  # fmt: skip


def _event(reading: Reading, fields: Fields) -> None:
    name = fields.text("eventType")
    data = fields.fields("data", {})
    more = data.fields("additionalDetails", {})
    subject = more.maybe_text("instanceId") or data.maybe_text("resourceId")
    base = re.sub(r"\.(?:begin|end|scheduled)$", "", name)
    ended = name.endswith(".end")
    if not name.startswith("com.oraclecloud.computeapi.") or subject is None or not _INSTANCE.fullmatch(subject):
        if name.startswith(MAINTENANCE):
            raise ParseError(f"data.additionalDetails.instanceId {quote(subject)} is no instance")
        return
    state = more.text("lifecycleState", "").upper()
    key: tuple[object, ...] = (subject, data.maybe_text("resourceId"), base)
    not_before = None
    statement = Statement.EDGE
    if name.startswith(MAINTENANCE):
        reason = more.maybe_text("maintenanceReason")
        code = fault_code("maintenance", reason or "instancemaintenance")
        kind = Kind.RECOVERED if ended or state in OVER else Kind.PLANNED
        not_before, statement = instant(more.get("timeWindowStart")), Statement.LEVEL
    elif base == PREEMPTION:
        code, kind = "spot-interruption", Kind.PLANNED
    else:
        code, kind = fault_code("oci", name), Kind.LIFECYCLE
        key = (subject, name, fields.maybe_text("eventID"))
    reading.add(
        kind,
        code,
        part=fields.value,
        key=key,
        id=fields.maybe_text("eventID"),
        subject=subject,
        statement=statement,
        starts_at=instant(fields.get("eventTime")),
        not_before=not_before,
        summary=more.text("description", "") or name,
        detail={
            "event_type": name,
            "phase": "end" if ended else "begin" if name.endswith(".begin") else None,
            "state": state or None,
            "resource_name": data.maybe_text("resourceName"),
            "can_reschedule": more.get("canReschedule"),
            "instance_action": more.maybe_text("instanceAction"),
            "alternatives": more.get("alternativeResolutionActions"),
            "start_window": more.maybe_text("startWindowDuration"),
            "duration": more.maybe_text("estimatedDuration"),
        },
    )
