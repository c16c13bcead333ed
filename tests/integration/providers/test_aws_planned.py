"""What AWS has planned for an emptied machine goes on: its group's hook is completed, a movable event comes soon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import ANY, Stubber  # type: ignore[import-untyped]

from activities.ports import HasPlanned, NotSent
from activities.providers.aws.access import Access, Place
from activities.providers.aws.groups import Groups
from activities.providers.aws.instances import GROUP_TAG, Instance
from activities.providers.aws.options import Options
from activities.providers.aws.planned import Planned
from activities.providers.aws.provider import make

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLACE = Place("", "us-east-1")
ALONE = Instance("i-0abc", "running", {})
MEMBER = Instance("i-0abc", "running", {"Tags": [{"Key": GROUP_TAG, "Value": "train"}]})
OPTIONS: dict[str, Any] = {"regions": ["us-east-1"], "lifecycle_hooks": ["medevac-drain"], "share": 1.0}


class Rig:
    def __init__(self) -> None:
        self.access = Access(Options.model_validate(OPTIONS))
        self.planned = Planned(self.access, Groups(self.access))
        self.ec2 = Stubber(self.access.client(PLACE, "ec2"))
        self.groups = Stubber(self.access.client(PLACE, "autoscaling"))

    def events(self, *events: dict[str, Any]) -> None:
        asked = {"InstanceIds": ["i-0abc"], "IncludeAllInstances": True}
        self.ec2.add_response("describe_instance_status", {"InstanceStatuses": [{"Events": list(events)}]}, asked)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    rig = Rig()
    with rig.ec2, rig.groups:
        yield rig
        rig.ec2.assert_no_pending_responses()
        rig.groups.assert_no_pending_responses()


def event(*, hours: float, movable: bool = True, text: str = "scheduled reboot") -> dict[str, Any]:
    deadline = {"NotBeforeDeadline": NOW + timedelta(days=9)} if movable else {}
    at = NOW + timedelta(hours=hours)
    return {
        "InstanceEventId": "instance-event-1",
        "Code": "system-reboot",
        "Description": text,
        "NotBefore": at,
    } | deadline


def test_it_is_a_provider_that_can_be_told() -> None:
    assert isinstance(make("aws", OPTIONS), HasPlanned)


def test_a_movable_event_comes_as_soon_as_ec2_lets_it(rig: Rig) -> None:
    rig.events(event(hours=40))
    start = NOW + timedelta(minutes=65)
    wanted = {"InstanceId": "i-0abc", "InstanceEventId": "instance-event-1", "NotBefore": start}
    rig.ec2.add_response("modify_instance_event_start_time", {"Event": {}}, wanted)
    (said,) = rig.planned.acknowledge(PLACE, ALONE, NOW)
    assert "brought forward from 2026-05-03 04:00 to 13:05 UTC" in said


@pytest.mark.parametrize(
    "left",
    [event(hours=40, movable=False), event(hours=1.1), event(hours=40, text="[Completed] scheduled reboot")],
    ids=["may not be moved", "comes soon, or was moved before", "is over"],
)
def test_any_other_is_left_to_its_time(rig: Rig, left: dict[str, Any]) -> None:
    rig.events(left)
    assert rig.planned.acknowledge(PLACE, ALONE, NOW) == ()


def test_a_refusal_is_said_and_nothing_is_called_twice(rig: Rig) -> None:
    rig.events(event(hours=40))
    rig.ec2.add_client_error("modify_instance_event_start_time", "UnauthorizedOperation", http_status_code=403)
    with pytest.raises(NotSent):
        rig.planned.acknowledge(PLACE, ALONE, NOW)


@pytest.mark.parametrize("waits", [True, False])
def test_a_group_that_waits_for_us_waits_no_longer(rig: Rig, waits: bool) -> None:
    member = {
        "InstanceId": "i-0abc", "AutoScalingGroupName": "train", "AvailabilityZone": "us-east-1a",
        "LifecycleState": "Terminating:Wait" if waits else "InService", "HealthStatus": "HEALTHY",
        "ProtectedFromScaleIn": False,
    }  # fmt: skip
    rig.groups.add_response("describe_auto_scaling_instances", {"AutoScalingInstances": [member]}, ANY_OF)
    if waits:
        hook = {"LifecycleHookName": "medevac-drain", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}
        rig.groups.add_response(
            "describe_lifecycle_hooks", {"LifecycleHooks": [hook]}, {"AutoScalingGroupName": "train"}
        )
        done = {
            "AutoScalingGroupName": "train", "LifecycleHookName": "medevac-drain", "InstanceId": "i-0abc",
            "LifecycleActionResult": "CONTINUE",
        }  # fmt: skip
        rig.groups.add_response("complete_lifecycle_action", {}, done)
    rig.events()
    said = rig.planned.acknowledge(PLACE, MEMBER, NOW)
    assert said == (("termination hooks of train completed",) if waits else ())


ANY_OF = {"InstanceIds": ANY}
