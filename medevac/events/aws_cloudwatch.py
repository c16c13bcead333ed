"""CloudWatch alarms, from EventBridge and as SNS delivers them: one alarm's change of state.

A machine is known by the dimension `InstanceId`. An alarm without data is blind; it says nothing of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from medevac.events.alert_codes import alert_code
from medevac.events.aws_ec2 import instance_id
from medevac.events.event import Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import ParseError
from medevac.events.reading import Fields, Reading, instant, quote

KINDS = {"ALARM": Kind.FAULT, "OK": Kind.RECOVERED, "INSUFFICIENT_DATA": Kind.INFO}


def from_sns(reading: Reading, fields: Fields) -> None:
    """The body that an alarm's SNS action sends."""
    trigger = fields.fields("Trigger", {})
    named = {instance_id(d.get("value")) for d in _listed(trigger, "Dimensions") if d.get("name") == "InstanceId"}
    for metric in _listed(trigger, "Metrics"):
        inner = metric.fields("MetricStat", {}).fields("Metric", {})
        named |= {instance_id(d.get("value")) for d in _listed(inner, "Dimensions") if d.get("name") == "InstanceId"}
    name, account = fields.text("AlarmName"), fields.scalar("AWSAccountId")
    arn = fields.scalar("AlarmArn") or f"{account}/{name}"
    _say(
        reading, fields, name, fields.text("NewStateValue"), named, arn=arn,
        when=fields.get("StateChangeTime"), words=fields.text("AlarmDescription", ""),
        reason=fields.text("NewStateReason", ""), id=None,
    )  # fmt: skip


def from_event_bridge(reading: Reading, fields: Fields) -> None:
    """`CloudWatch Alarm State Change`."""
    detail = fields.fields("detail")
    state, configuration = detail.fields("state"), detail.fields("configuration", {})
    named: set[str | None] = set()
    for metric in _listed(configuration, "metrics"):
        dimensions = metric.fields("metricStat", {}).fields("metric", {}).texts("dimensions")
        if "InstanceId" in dimensions:
            named.add(instance_id(dimensions["InstanceId"]))
    name, held = detail.text("alarmName"), fields.get("resources")
    arn = str(held[0]) if isinstance(held, list) and held else f"{fields.scalar('account')}/{name}"
    _say(
        reading, fields, name, state.text("value"), named, arn=arn, when=state.get("timestamp") or fields.get("time"),
        words=configuration.text("description", ""), reason=state.text("reason", ""), id=fields.maybe_text("id"),
    )  # fmt: skip


def _listed(fields: Fields, key: str) -> Iterator[Fields]:
    for i, item in enumerate(fields.list(key, ()), 1):
        yield Fields.of(item, f"{key} {i}")


def _say(
    reading: Reading, fields: Fields, name: str, state: str, named: set[str | None], *, arn: str, when: object,
    words: str, reason: str, id: str | None,
) -> None:  # fmt: skip
    if state not in KINDS:
        raise ParseError(f"state of the alarm is {quote(state)}, expected ALARM, OK or INSUFFICIENT_DATA")
    kind, subjects = KINDS[state], [i for i in named if i]
    subject = subjects[0] if len(subjects) == 1 else None
    at = instant(when)
    code = alert_code(name, None, [words])
    reading.add(
        kind, code, part=fields.value, key=("cloudwatch", arn), id=id, subject=subject,
        actionable=kind is not Kind.INFO and subject is not None, severity=severity_of(code),
        statement=Statement.LEVEL, starts_at=at if kind is Kind.FAULT else None,
        ends_at=at if kind is Kind.RECOVERED else None, summary=f"{name}: {words or reason}",
        detail={"alarm": name, "state": state, "reason": reason or None},
    )  # fmt: skip
