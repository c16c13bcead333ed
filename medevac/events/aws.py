"""AWS: EventBridge events raw, or inside SQS, SNS and Lambda envelopes; what EC2's APIs and IMDS answer.

One delivery may hold many messages; each is judged by itself. An event of a type that isn't known only informs.
Envelope ids and times are not the event's.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from medevac.events import aws_cloudwatch, aws_ec2, aws_health
from medevac.events.aws_ec2 import DETAIL_TYPES
from medevac.events.envelopes import aws_inner
from medevac.events.event import Kind
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Fields, Reading, instant, looks_like_json, peek_json, quote, read_json, read_text

SOURCE = "aws"

SNS_URL = re.compile(r"https://sns\.[a-z]{2}(?:-[a-z]{1,12}){1,3}-[0-9]{1,2}\.amazonaws\.com(?:\.cn)?/[!-~]{0,2000}")
"""The only addresses that a subscription is confirmed at."""


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    if not looks_like_json(payload):
        if not _imds_text(reading, read_text(payload.body).strip()):
            read_json(payload.body)  # raises, and says where
        return reading.parsed()
    document = read_json(payload.body)
    if isinstance(document, list) and document and not aws_ec2.is_imds_event(document[0]):
        parts = [(f"item {i}", item) for i, item in enumerate(reading.first(document), 1)]
    else:
        parts = [("body", document)]
    for where, part in parts:
        for inner in aws_inner(reading, part, where):
            with reading.part(inner.where):
                if inner.error is not None:
                    raise inner.error
                if inner.document is not None:
                    _read(reading, inner.document, carried=inner.document is not part)
    if len(reading.refused) == 1 and not reading.events and reading.refused[0].where == "body":
        raise ParseError(reading.refused[0].reason)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    if "x-amz-sns-message-type" in payload.headers:
        return True
    document = peek_json(payload)
    if isinstance(document, list):
        return bool(document) and aws_ec2.is_imds_event(document[0])
    if not isinstance(document, dict):
        return False
    source = document.get("source")
    if "detail-type" in document and isinstance(source, str) and source.startswith("aws."):
        return True
    for key, mark in (("Messages", "Body"), ("Records", "body"), ("Records", "Sns")):
        items = document.get(key)
        if isinstance(items, list) and items and isinstance(items[0], dict) and mark in items[0]:
            return True
    return (
        "InstanceStatuses" in document
        or document.get("Service") == "AWS Auto Scaling"
        or {"LifecycleTransition", "EC2InstanceId"} <= document.keys()
        or {"AlarmName", "NewStateValue"} <= document.keys()
        or ("TopicArn" in document and "Type" in document)
        or set(document) in ({"action", "time"}, {"noticeTime"})
    )


def _read(reading: Reading, document: JsonValue, carried: bool) -> None:
    """`carried`: it came in an envelope of AWS, whose topics and queues carry other people's messages, too."""
    if isinstance(document, list):
        for i, item in enumerate(reading.first(document), 1):
            with reading.part(f"event {i}"):
                aws_ec2.scheduled_event(reading, Fields.of(item, f"event {i}"), None)
        return
    fields = Fields.of(document)
    if fields.get("Type") in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        _subscription(reading, fields)
    elif "detail-type" in fields or ("detail_type" in fields and "detail" in fields):
        _event_bridge(reading, fields)
    elif "InstanceStatuses" in fields:
        for i, item in enumerate(reading.first(fields.parts("InstanceStatuses")), 1):
            with reading.part(f"InstanceStatuses {i}"):
                aws_ec2.instance_status(reading, Fields.of(item, f"InstanceStatuses {i}"))
    elif fields.get("Service") == "AWS Auto Scaling" or {"LifecycleTransition", "EC2InstanceId"} <= fields.value.keys():
        aws_ec2.auto_scaling(reading, fields, fields)
    elif "AlarmName" in fields and "NewStateValue" in fields:
        aws_cloudwatch.from_sns(reading, fields)
    elif set(fields.value) == {"action", "time"}:
        aws_ec2.spot_action(reading, fields)
    elif set(fields.value) == {"noticeTime"}:
        notice = fields.text("noticeTime")
        reading.add(
            Kind.PLANNED, "rebalance", part=fields.value, key=("imds", "rebalance", notice), starts_at=instant(notice),
            summary="Spot capacity is at an elevated risk of interruption",
        )  # fmt: skip
    elif carried:
        reading.add(
            Kind.INFO, "aws/message", part=fields.value, key=("message", str(sorted(fields.value))), actionable=False,
            summary="a message that isn't AWS's", detail={"fields": sorted(fields.value)},
        )  # fmt: skip
    else:
        raise ParseError("neither an event, a notification, an alarm nor an answer of AWS")


def _event_bridge(reading: Reading, fields: Fields) -> None:
    kind = fields.text("detail-type" if "detail-type" in fields else "detail_type")
    source = fields.text("source", "")
    if source == "aws.health":
        aws_health.read(reading, fields)
    elif source == "aws.autoscaling":
        aws_ec2.auto_scaling(reading, fields, fields.fields("detail"))
    elif source == "aws.cloudwatch" and kind == "CloudWatch Alarm State Change":
        aws_cloudwatch.from_event_bridge(reading, fields)
    elif source == "aws.ecs" and kind == "ECS Container Instance Health Change":
        aws_ec2.container_instance(reading, fields)
    elif source == "aws.ec2" and (reader := DETAIL_TYPES.get(kind)) is not None:
        reader(reading, fields)
    else:
        aws_ec2.other(reading, fields, source, kind)


def _subscription(reading: Reading, fields: Fields) -> None:
    kind, topic = fields.text("Type"), fields.text("TopicArn")
    if kind == "UnsubscribeConfirmation":
        reading.add(
            Kind.INFO, "sns/unsubscribe-confirmation", part=fields.value, key=(topic, "unsubscribe"),
            actionable=False, summary=f"Unsubscribed from {topic}", detail={"topic_arn": topic},
        )  # fmt: skip
        return
    url = fields.text("SubscribeURL")
    if not SNS_URL.fullmatch(url):
        raise ParseError(f"SubscribeURL {quote(url)} is no address of SNS")
    reading.add(
        Kind.HANDSHAKE, "sns/subscription-confirmation", part=fields.value, key=(topic, fields.text("Token")),
        actionable=False, starts_at=instant(fields.get("Timestamp")), summary=f"SNS asks to confirm {topic}",
        detail={"topic_arn": topic, "subscribe_url": url},
    )  # fmt: skip


def _imds_text(reading: Reading, text: str) -> bool:
    """`spot/termination-time`, or the page that says that no notice is there: IMDS answers 404 until there is one."""
    if text.startswith("<") and "404 - Not Found" in text[:2_000]:
        return True
    when = instant(text)
    if when is not None:
        reading.add(
            Kind.PLANNED, "spot-interruption", part=text, key=("imds", "spot-interruption"), not_before=when,
            summary="Spot termination time", detail={"instance_action": "terminate"},
        )  # fmt: skip
    return when is not None
