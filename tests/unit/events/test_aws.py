"""AWS: what carries an event, and each kind of event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medevac.events.event import Kind
from medevac.events.parsing import ParseError
from medevac.events.registry import detect
from tests.unit.events.payloads import forms, only, parsed, payload

INSTANCE = "i-0aa11bb22cc33dd44"


def bridge(kind: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "ev-1",
        "detail-type": kind,
        "source": source,
        "account": "123412341234",
        "time": "2026-03-01T08:00:00Z",
        "region": "eu-north-1",
        "resources": [f"arn:aws:ec2:eu-north-1:123412341234:instance/{INSTANCE}"],
        "detail": detail,
    }


SPOT = bridge("EC2 Spot Instance Interruption Warning", **{"instance-id": INSTANCE, "instance-action": "stop"})


def sns(message: Any, kind: str = "Notification", **more: Any) -> dict[str, Any]:
    text = message if isinstance(message, str) else json.dumps(message)
    return {"Type": kind, "MessageId": "m", "TopicArn": "arn:aws:sns:eu-north-1:1:t", "Message": text, **more}


def sqs(*bodies: Any) -> dict[str, Any]:
    texts = [b if isinstance(b, str) else json.dumps(b) for b in bodies]
    return {"Messages": [{"MessageId": str(i), "ReceiptHandle": "r", "Body": t} for i, t in enumerate(texts)]}


def of_lambda(*bodies: Any) -> dict[str, Any]:
    return {"Records": [{"messageId": "1", "receiptHandle": "r", "body": json.dumps(b)} for b in bodies]}


@pytest.mark.parametrize(
    "body",
    [
        SPOT,
        sns(SPOT),
        sqs(SPOT),
        sqs(sns(SPOT)),
        of_lambda(SPOT),
        of_lambda(sns(SPOT)),
        {"Records": [{"EventSource": "aws:sns", "Sns": sns(SPOT)}]},
        {"MessageId": "1", "ReceiptHandle": "r", "Body": json.dumps(SPOT)},
    ],
)
def test_every_envelope_holds_the_same_event(body: Any) -> None:
    found = only("aws", body)
    assert (found["subject"], found["kind"], found["fault"]) == (INSTANCE, "planned", "spot-interruption")
    assert found["not_before"] == "2026-03-01T08:02:00Z"
    assert found["dedupe_key"] == only("aws", SPOT)["dedupe_key"]
    assert found["detail"]["instance_action"] == "stop"


def test_a_bad_message_is_refused_alone() -> None:
    found = parsed("aws", sqs(SPOT, '{"cut', {**SPOT, "id": "ev-2"}, "plain words"))
    assert len(found.events) == 2
    assert [r.where for r in found.refused] == ["Messages 2"]


def test_envelopes_do_not_nest_for_ever() -> None:
    body: Any = SPOT
    for _ in range(7):
        body = sqs(body)
    assert parsed("aws", body).refused


@pytest.mark.parametrize(
    ("kind", "detail", "expected", "fault"),
    [
        ("EC2 Instance Rebalance Recommendation", {"instance-id": INSTANCE}, "planned", "rebalance"),
        ("EC2 Instance State-change Notification", {"instance-id": INSTANCE, "state": "stopping"}, "lifecycle",
         "instance-state/stopping"),
        ("EC2 Capacity Reservation Instance Interruption Warning",
         {"instance-id": INSTANCE, "instance-action": "terminate", "instance-termination-time": "2026-03-01T08:02:00Z"},
         "planned", "capacity-reservation-interruption"),
    ],
)  # fmt: skip
def test_ec2_events(kind: str, detail: dict[str, Any], expected: str, fault: str) -> None:
    found = only("aws", bridge(kind, **detail))
    assert (found["kind"], found["fault"], found["subject"]) == (expected, fault, INSTANCE)


def test_events_of_unknown_types_only_inform() -> None:
    call = only("aws", bridge("AWS API Call via CloudTrail", "aws.ec2", eventName="RunInstances"))
    assert (call["kind"], call["fault"], call["subject"]) == ("info", "eventbridge/AWS API Call via CloudTrail", None)
    new = only("aws", sqs(bridge("EC2 Instance Melts", **{"instance-id": INSTANCE})))
    assert (new["kind"], new["subject"], new["actionable"]) == ("info", INSTANCE, False)


def test_what_is_no_form_of_aws_is_refused_and_others_messages_on_its_way_only_inform() -> None:
    with pytest.raises(ParseError, match="neither an event"):
        parsed("aws", {"hello": "world"})
    assert only("aws", sns({"hello": "world"}))["fault"] == "aws/message"
    both = parsed("aws", sqs({"hello": "world"}, SPOT))
    assert [(e.kind, e.fault, e.actionable) for e in both.events] == [
        ("info", "aws/message", False),
        ("planned", "spot-interruption", True),
    ]
    assert forms("aws", {"Records": [{"eventSource": "aws:s3", "s3": {}}]}) == []


def test_an_event_without_its_instance_is_refused() -> None:
    event = bridge("EC2 Instance State-change Notification", state="running") | {"resources": []}
    assert parsed("aws", sqs(event)).refused
    with pytest.raises(ParseError, match="instance"):
        parsed("aws", event)


# --- Health --------------------------------------------------------------------------------------------------


def health(*entities: Any, category: str = "scheduledChange", **detail: Any) -> dict[str, Any]:
    held = {
        "eventArn": "arn:aws:health:eu-north-1::event/EC2/X/1",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
        "eventTypeCategory": category,
        "communicationId": "c-1",
        "affectedAccount": "123412341234",
        "startTime": "Mon, 9 Mar 2026 10:00:00 GMT",
        "statusCode": "upcoming",
        "affectedEntities": [e if isinstance(e, dict) else {"entityValue": e} for e in entities],
        "page": "1",
        "totalPages": "1",
        "backupEvent": "false",
        **detail,
    }
    return bridge("AWS Health Event", "aws.health", **held)


def test_each_entity_is_its_own_statement_in_any_spelling() -> None:
    found = forms(
        "aws", health(INSTANCE, "arn:aws:ec2:eu-north-1:1:instance/i-0ff", "arn:aws-cn:ec2:cn-north-1:1:instance/i-0ee")
    )
    assert [e["subject"] for e in found] == [INSTANCE, "i-0ff", "i-0ee"]
    assert {e["not_before"] for e in found} == {"2026-03-09T10:00:00Z"}
    assert len({e["dedupe_key"] for e in found}) == len({e["id"] for e in found}) == 3


def test_the_backup_copy_is_the_same_statement_and_a_closing_one_the_same_fault() -> None:
    first = only("aws", health(INSTANCE))
    copy = only("aws", health(INSTANCE, backupEvent="true") | {"region": "us-west-2", "id": "ev-2"})
    assert copy["id"] == first["id"]
    closed = only("aws", health(INSTANCE, statusCode="closed", communicationId="c-2"))
    assert closed["kind"] == "recovered"
    assert closed["dedupe_key"] == first["dedupe_key"]
    assert closed["id"] != first["id"]


def test_an_issue_is_a_fault_and_no_machine_means_no_action() -> None:
    assert only("aws", health(INSTANCE, category="issue", statusCode="open"))["kind"] == "fault"
    for body in (
        health(category="issue"),
        health("vol-1234", category="issue"),
        health("x", category="accountNotification"),
    ):
        found = only("aws", body)
        assert (found["subject"], found["kind"], found["actionable"]) == (None, "info", False)
    resolved = {"entityValue": INSTANCE, "status": "RESOLVED"}
    assert only("aws", health(resolved, category="issue"))["kind"] == "recovered"


# --- Auto Scaling --------------------------------------------------------------------------------------------

HOOK = {
    "LifecycleActionToken": "tok-1",
    "AutoScalingGroupName": "gpus",
    "LifecycleHookName": "drain-first",
    "EC2InstanceId": INSTANCE,
    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
}
DIRECT = {"Service": "AWS Auto Scaling", "Time": "2026-03-01T08:00:00.000Z", "RequestId": "r-1", "AccountId": "1"}


def test_a_waiting_hook_in_three_shapes_keeps_its_token() -> None:
    shapes = [
        bridge("EC2 Instance-terminate Lifecycle Action", "aws.autoscaling", **HOOK),
        sqs({**DIRECT, **HOOK}),
        sns({**DIRECT, **HOOK}),
    ]
    keys = set()
    for body in shapes:
        found = only("aws", body)
        assert (found["kind"], found["fault"]) == ("lifecycle", "asg/EC2_INSTANCE_TERMINATING")
        assert found["detail"]["lifecycle_action_token"] == "tok-1"
        assert found["detail"]["lifecycle_hook"] == "drain-first"
        keys.add(found["dedupe_key"])
    assert len(keys) == 1


def test_a_hooks_test_message_is_a_test_and_a_groups_own_event_says_nothing() -> None:
    test = only("aws", sqs({**DIRECT, "Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "gpus"}))
    assert (test["kind"], test["actionable"], test["subject"]) == ("test", False, None)
    assert (
        forms("aws", bridge("EC2 Auto Scaling Instance Refresh Started", "aws.autoscaling", AutoScalingGroupName="g"))
        == []
    )
    done = only("aws", sns({**DIRECT, "Event": "autoscaling:EC2_INSTANCE_TERMINATE", "EC2InstanceId": INSTANCE}))
    assert done["fault"] == "asg/EC2_INSTANCE_TERMINATE"


# --- subscriptions, API answers, IMDS ------------------------------------------------------------------------


def test_a_subscription_is_confirmed_at_sns_only() -> None:
    def ask(url: str) -> dict[str, Any]:
        return sns("", "SubscriptionConfirmation", Token="t", SubscribeURL=url)

    found = only("aws", ask("https://sns.eu-north-1.amazonaws.com/?Action=ConfirmSubscription"))
    assert (found["kind"], found["actionable"]) == ("handshake", False)
    for url in (
        "http://sns.eu-north-1.amazonaws.com/",
        "https://sns.eu-north-1.amazonaws.com.evil.example/",
        "https://user@sns.eu-north-1.amazonaws.com/",
        "https://sns.eu-north-1.amazonaws.com:8443/",
        "https://169.254.169.254/latest",
        "https://[",
    ):
        with pytest.raises(ParseError, match="SubscribeURL"):
            parsed("aws", ask(url))
    assert only("aws", sns("", "UnsubscribeConfirmation", Token="t"))["kind"] == "info"


def test_instance_status() -> None:
    status = {
        "InstanceId": INSTANCE,
        "Events": [
            {"InstanceEventId": "e-1", "Code": "instance-retirement", "NotBefore": "2026-03-09T10:00:00+00:00"},
            {"InstanceEventId": "e-2", "Code": "system-reboot", "Description": "[Completed] reboot"},
        ],
        "SystemStatus": {"Status": "ok"},
        "InstanceStatus": {"Status": "impaired", "Details": [{"ImpairedSince": "2026-03-01T07:00:00Z"}]},
        "AttachedEbsStatus": {"Status": "insufficient-data"},
    }
    planned, over, system, instance = forms("aws", {"InstanceStatuses": [status]})
    assert (planned["kind"], planned["fault"]) == ("planned", "maintenance/instance-retirement")
    assert over["kind"] == "recovered"
    assert (system["kind"], system["fault"]) == ("recovered", "instance-status/system-impaired")
    assert (instance["kind"], instance["starts_at"]) == ("fault", "2026-03-01T07:00:00Z")


def test_the_metadata_service_names_no_instance() -> None:
    active = {
        "Code": "system-maintenance",
        "EventId": "e-1",
        "State": "active",
        "NotBefore": "21 Mar 2026 09:00:43 GMT",
    }
    found = only("aws", [active])
    assert (found["kind"], found["subject"], found["not_before"]) == ("planned", None, "2026-03-21T09:00:43Z")
    assert forms("aws", []) == []
    assert only("aws", {"action": "hibernate", "time": "2026-03-01T08:00:00Z"})["fault"] == "spot-interruption"
    assert only("aws", {"noticeTime": "2026-03-01T08:00:00Z"})["fault"] == "rebalance"
    assert only("aws", "2026-03-01T08:00:00Z")["not_before"] == "2026-03-01T08:00:00Z"


def test_ecs_tells_a_bad_gpu_by_its_xid() -> None:
    details = [
        {"type": "ACCELERATED_COMPUTE", "status": "IMPAIRED", "statusReason": "NvidiaXID79Error"},
        {"type": "CONTAINER_RUNTIME", "status": "OK"},
    ]
    event = bridge("ECS Container Instance Health Change", "aws.ecs", ec2InstanceId=INSTANCE, details=details)
    bad, good = parsed("aws", event).events
    assert (bad.kind, bad.fault, bad.subject) == (Kind.FAULT, "xid/79", INSTANCE)
    assert good.kind is Kind.RECOVERED


@pytest.mark.parametrize(
    "body", [SPOT, sqs(SPOT), of_lambda(SPOT), sns(SPOT), sqs({**DIRECT, **HOOK}), {"InstanceStatuses": []}]
)
def test_recognised(body: Any) -> None:
    assert detect(payload(body)).SOURCE == "aws"
