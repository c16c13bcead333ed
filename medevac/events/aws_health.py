"""AWS Health events: one event, many entities, copies through the backup region, organisation view, pages.

`communicationId` + `affectedAccount` (+ page) names one message; the event's ARN + account + entity is what a later
update or the closing message shares with it. Booleans and numbers are strings, dates RFC 1123, often with a wrong
weekday.
"""

from __future__ import annotations

from medevac.events.aws_ec2 import instance_id
from medevac.events.event import Kind, Statement
from medevac.events.reading import Fields, Reading, fault_code, instant, join_key, rfc1123

OVER = frozenset(("closed",))
ENTITY_OVER = frozenset(("RESOLVED", "UNIMPAIRED"))


def read(reading: Reading, envelope: Fields) -> None:
    detail = envelope.fields("detail")
    code = fault_code("aws", detail.text("eventTypeCode"))
    category = detail.text("eventTypeCategory", "")
    account = detail.scalar("affectedAccount") or envelope.scalar("account")
    message = detail.scalar("communicationId") or envelope.scalar("id")
    page = detail.scalar("page") or "1"
    event = detail.scalar("eventArn") or message
    start = rfc1123(detail.get("startTime")) or instant(detail.get("startTime"))
    end = rfc1123(detail.get("endTime")) or instant(detail.get("endTime"))
    closed = detail.text("statusCode", "open").lower() in OVER
    planned = category == "scheduledChange"
    known = category in ("scheduledChange", "issue")
    listed = reading.first(detail.parts("affectedEntities", ()))
    entities = [Fields.of(e, f"affectedEntities {i}") for i, e in enumerate(listed, 1)]
    descriptions = [Fields.of(d, "eventDescription") for d in detail.list("eventDescription", ())]
    words = next((d.text("latestDescription", "") for d in descriptions), "")
    common = {
        "affected_account": account,
        "region": detail.scalar("eventRegion") or envelope.scalar("region"),
        "category": category,
        "scope": detail.scalar("eventScopeCode"),
        "status": detail.scalar("statusCode"),
        "page": page,
        "total_pages": detail.scalar("totalPages"),
        "backup_copy": detail.boolean("backupEvent", False) or None,
        "actionability": detail.scalar("actionability"),
    }
    for entity in entities or [Fields({})]:
        value = entity.scalar("entityValue")
        subject = instance_id(value)
        over = closed or entity.text("status", "").upper() in ENTITY_OVER
        if subject is None or not known:
            kind = Kind.INFO
        else:
            kind = Kind.RECOVERED if over else Kind.PLANNED if planned else Kind.FAULT
        reading.add(
            kind,
            code,
            part=[detail.value.get("eventArn"), detail.value.get("statusCode"), message, dict(entity.value)],
            key=(event, account, value),
            id=join_key("health", message, account, page, value, "closed" if over else "open"),
            subject=subject,
            actionable=subject is not None,
            statement=Statement.LEVEL,
            starts_at=None if planned else start,
            not_before=start if planned else None,
            ends_at=end,
            summary=f"{code}: {words}",
            detail={**common, "entity": value},
        )
