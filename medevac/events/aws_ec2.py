"""EC2 and Auto Scaling: notices, state changes, lifecycle hooks, status checks, scheduled events of API and IMDS."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from pydantic import JsonValue

from medevac.events.event import Kind, Statement
from medevac.events.freetext import severity_of, xid_codes
from medevac.events.parsing import ParseError
from medevac.events.reading import Fields, Reading, fault_code, instant, keyed, quote, rfc1123

_INSTANCE = re.compile(r"(?:arn:aws[a-z-]{0,20}:ec2:[^:]{0,40}:[0-9]{0,12}:?instance/|arn:aws[^/]{0,80}instance/)?"
                       r"(i-[0-9a-f]{3,17})")  # fmt: skip
SPOT_WARNING = timedelta(minutes=2)
"""Between a Spot notice and the instance's end; with `hibernate` it begins at once."""
_WITHDRAWN = re.compile(r"\[(?:canceled|cancelled|completed)\]", re.IGNORECASE)


def instance_id(value: object) -> str | None:
    """Of a bare id or any spelling of its ARN (`us-east-1b:instance/` without an account, too)."""
    m = _INSTANCE.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 200 else None
    return m[1] if m else None


def _subject(fields: Fields) -> str:
    """`detail.instance-id`, else the one instance among `resources`."""
    found = instance_id(fields.fields("detail").get("instance-id"))
    if found is None:
        resources = fields.get("resources")
        ids = {i for r in (resources if isinstance(resources, list) else [resources]) if (i := instance_id(r))}
        found = ids.pop() if len(ids) == 1 else None
    if found is None:
        raise ParseError("detail.instance-id names no instance")
    return found


def other(reading: Reading, fields: Fields, source: str, kind: str) -> None:
    """An event of a type that nobody here reads: seen by people, acted on by nobody."""
    detail = fields.get("detail")
    named = instance_id(detail.get("instance-id")) if isinstance(detail, dict) else None
    reading.add(
        Kind.INFO, fault_code("eventbridge", kind), part=fields.value, key=("eventbridge", source, kind, named),
        id=fields.maybe_text("id"), subject=named, actionable=False, starts_at=instant(fields.get("time")),
        summary=f"{kind} of {source or 'nobody'}, a type that isn't read",
        detail={"event_source": source, "detail_type": kind, **_place(fields)},
    )  # fmt: skip


def _spot(reading: Reading, fields: Fields) -> None:
    subject, detail = _subject(fields), fields.fields("detail")
    action, time = detail.text("instance-action", "terminate"), instant(fields.get("time"))
    reading.add(
        Kind.PLANNED, "spot-interruption", part=fields.value, key=(subject, "spot-interruption"),
        id=fields.maybe_text("id"), subject=subject, starts_at=time,
        not_before=time + (SPOT_WARNING if action != "hibernate" else timedelta(0)) if time else None,
        summary=f"Spot interruption of {subject}: {action}", detail={"instance_action": action, **_place(fields)},
    )  # fmt: skip


def _rebalance(reading: Reading, fields: Fields) -> None:
    subject = _subject(fields)
    reading.add(
        Kind.PLANNED, "rebalance", part=fields.value, key=(subject, "rebalance"), id=fields.maybe_text("id"),
        subject=subject, starts_at=instant(fields.get("time")), detail=_place(fields),
        summary=f"Spot capacity of {subject} is at an elevated risk of interruption",
    )  # fmt: skip


def _state_change(reading: Reading, fields: Fields) -> None:
    subject, state = _subject(fields), fields.fields("detail").text("state")
    reading.add(
        Kind.LIFECYCLE, fault_code("instance-state", state), part=fields.value,
        key=(subject, "state", state, fields.text("time", "")), id=fields.maybe_text("id"), subject=subject,
        starts_at=instant(fields.get("time")), summary=f"{subject} is {state}", detail=_place(fields),
    )  # fmt: skip


def _reservation(reading: Reading, fields: Fields) -> None:
    """An interruptible Capacity Reservation is taken back: 2 minutes, as with Spot."""
    subject, detail = _subject(fields), fields.fields("detail")
    end = instant(detail.get("instance-termination-time")) or rfc1123(detail.get("instance-termination-time"))
    reading.add(
        Kind.PLANNED, "capacity-reservation-interruption", part=fields.value, key=(subject, "capacity-reservation"),
        id=fields.maybe_text("id"), subject=subject, starts_at=instant(fields.get("time")), not_before=end,
        summary=f"The capacity reservation of {subject} is taken back",
        detail={"instance_action": detail.maybe_text("instance-action"), **_place(fields)},
    )  # fmt: skip


def _block(reading: Reading, fields: Fields) -> None:
    """Capacity Block notices name a reservation, no instance: its instances end 30 minutes before it does."""
    detail = fields.fields("detail")
    reservation = detail.text("capacity-reservation-id", "")
    reading.add(
        Kind.INFO, "capacity-reservation/expiry", part=fields.value, key=(reservation, "expiry"),
        id=fields.maybe_text("id"), actionable=False, starts_at=instant(fields.get("time")),
        ends_at=instant(detail.get("end-date")), summary=f"Capacity block {reservation} is about to end",
        detail={"capacity_reservation": reservation, **_place(fields)},
    )  # fmt: skip


DETAIL_TYPES: dict[str, Callable[[Reading, Fields], None]] = {
    "EC2 Spot Instance Interruption Warning": _spot,
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "EC2 Instance State-change Notification": _state_change,
    "EC2 Capacity Reservation Instance Interruption Warning": _reservation,
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning": _reservation,
    "Capacity Block Reservation Expiration Warning": _block,
}


def _place(fields: Fields) -> dict[str, JsonValue]:
    return {"account": fields.scalar("account"), "region": fields.scalar("region")}


# --- Auto Scaling --------------------------------------------------------------------------------------------


def auto_scaling(reading: Reading, envelope: Fields, detail: Fields) -> None:
    """From EventBridge, or straight from a hook or notification, which have no envelope.

    A waiting hook holds the instance until someone completes it with its token.
    """
    transition = detail.text("LifecycleTransition", "") or detail.text("Event", "") or envelope.text("detail-type", "")
    name = transition.removeprefix("autoscaling:")
    time = instant(envelope.get("time")) or instant(detail.get("Time"))
    request = detail.maybe_text("RequestId") or envelope.maybe_text("id")
    group = detail.maybe_text("AutoScalingGroupName")
    if name == "TEST_NOTIFICATION":
        reading.add(
            Kind.TEST, "asg/test-notification", part=detail.value, key=("asg-test", request), id=request,
            actionable=False, starts_at=time, summary=f"Test notification of {group}", detail={"group": group},
        )  # fmt: skip
        return
    subject = instance_id(detail.get("EC2InstanceId"))
    if subject is None:
        if detail.get("EC2InstanceId"):
            raise ParseError(f"EC2InstanceId {quote(detail.get('EC2InstanceId'))} is no instance id")
        return  # about the group: an instance refresh, a scaling policy
    token = detail.maybe_text("LifecycleActionToken")
    reading.add(
        Kind.LIFECYCLE, fault_code("asg", name.replace(" ", "-")), part=detail.value,
        key=("asg", subject, token or name), id=envelope.maybe_text("id") or (f"asg-{token}" if token else request),
        subject=subject, starts_at=time, summary=f"{group}: {name} {subject}",
        detail={
            "lifecycle_hook": detail.maybe_text("LifecycleHookName"),
            "lifecycle_action_token": token,
            "group": group,
            "origin": detail.maybe_text("Origin"),
            "destination": detail.maybe_text("Destination"),
            "cause": detail.maybe_text("Cause"),
            "account": detail.scalar("AccountId") or envelope.scalar("account"),
            "region": envelope.scalar("region"),
        },
    )  # fmt: skip


# --- ECS -----------------------------------------------------------------------------------------------------


def container_instance(reading: Reading, fields: Fields) -> None:
    """ECS' own health checks of a container instance, with its GPUs' as `ACCELERATED_COMPUTE`."""
    detail = fields.fields("detail")
    subject = instance_id(detail.get("ec2InstanceId"))
    for i, item in enumerate(detail.list("details", ()), 1):
        check = Fields.of(item, f"details {i}")
        kind, status = check.text("type", "UNKNOWN"), check.text("status", "")
        if status not in ("IMPAIRED", "OK"):
            continue
        reason = check.text("statusReason", "")
        impaired = status == "IMPAIRED"
        codes = (xid_codes(reason, checked=True) if impaired else ()) or (fault_code("ecs", kind),)
        for code, key, series in keyed(codes, subject, "ecs", kind):
            reading.add(
                Kind.FAULT if impaired else Kind.RECOVERED, code, part=item, subject=subject,
                key=key, series=series,
                actionable=subject is not None, statement=Statement.LEVEL, severity=severity_of(code),
                starts_at=instant(check.get("lastStatusChange")) or instant(fields.get("time")),
                summary=f"ECS: {kind} {status} {reason}", detail=_place(fields),
            )  # fmt: skip


# --- DescribeInstanceStatus and IMDS -------------------------------------------------------------------------


def is_imds_event(value: JsonValue) -> bool:
    return isinstance(value, dict) and "Code" in value and ("EventId" in value or "InstanceEventId" in value)


def scheduled_event(reading: Reading, fields: Fields, subject: str | None) -> None:
    """IMDS doesn't name the instance: it is the one that was asked."""
    code = fields.text("Code")
    state, words = fields.text("State", "active"), fields.text("Description", "")
    over = state.lower() in ("canceled", "cancelled", "completed") or _WITHDRAWN.match(words) is not None
    number = fields.text("InstanceEventId", "") or fields.text("EventId", "")
    start = instant(fields.get("NotBefore")) or rfc1123(fields.get("NotBefore"))
    end = instant(fields.get("NotAfter")) or rfc1123(fields.get("NotAfter"))
    reading.add(
        Kind.RECOVERED if over else Kind.PLANNED, fault_code("maintenance", code), part=fields.value,
        key=(subject, number or code), subject=subject, statement=Statement.LEVEL, not_before=start, ends_at=end,
        summary=f"{code}: {words}",
        detail={"event_id": number, "state": state, "deadline": fields.maybe_text("NotBeforeDeadline")},
    )  # fmt: skip


def spot_action(reading: Reading, fields: Fields) -> None:
    """IMDS `spot/instance-action`."""
    action, time = fields.text("action"), fields.text("time")
    when = instant(time)
    if when is None:
        raise ParseError(f"field time is {quote(time)}, which is no time")
    reading.add(
        Kind.PLANNED, "spot-interruption", part=fields.value, key=("imds", "spot-interruption"), not_before=when,
        summary=f"Spot interruption: {action}", detail={"instance_action": action},
    )  # fmt: skip


def instance_status(reading: Reading, fields: Fields) -> None:
    subject = instance_id(fields.get("InstanceId"))
    if subject is None:
        raise ParseError(f"InstanceId {quote(fields.get('InstanceId'))} is no instance id")
    for i, item in enumerate(fields.list("Events", ()), 1):
        scheduled_event(reading, Fields.of(item, f"Events {i}"), subject)
    for key, name in (("SystemStatus", "system"), ("InstanceStatus", "instance"), ("AttachedEbsStatus", "ebs")):
        check = fields.fields(key, {})
        status = check.text("Status", "")
        if status not in ("impaired", "ok"):  # initializing, insufficient-data, not-applicable
            continue
        details = [Fields.of(d, f"{key}.Details") for d in check.list("Details", ())]
        since = [t for d in details if (t := instant(d.get("ImpairedSince")))]
        reading.add(
            Kind.FAULT if status == "impaired" else Kind.RECOVERED, f"instance-status/{name}-impaired",
            part=[subject, check.value], key=(subject, "status", name), subject=subject, statement=Statement.LEVEL,
            starts_at=min(since, default=None), summary=f"{subject}: {name} status {status}",
        )  # fmt: skip
