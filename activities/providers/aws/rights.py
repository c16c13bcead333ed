"""What the accounts lack of what the options mean them to do; asked for without changing anything."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable
from activities.providers.aws import errors, simulating
from activities.providers.aws.access import OWN, Access, Place
from activities.providers.aws.instances import INCIDENT_TAG

NOBODY = "i-00000000000000000"
"""An id that no machine has: EC2 answers a call for it with what isn't allowed, or with that it isn't there."""
AT_ONCE = 8
NO_TEMPLATE = "lt-00000000000000000"
NO_IMAGE = "ami-00000000000000000"
NO_EVENT = "instance-event-00000000000000000"
NO_GROUP = "medevac-doctor"


def missing(access: Access) -> list[str]:
    """One line for each account and region that lacks anything; one that can't sign in hides no other."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        each = pool.map(lambda place: list(_lacks(access, place)), access.places)
        found = [f"in {place}: {', '.join(lacks)}" for place, lacks in zip(access.places, each, strict=True) if lacks]
    return [*access.wrong, *found]


def unasked(access: Access) -> list[str]:
    """One line for each account and region of which something can't be asked, with what to check by hand."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        each = pool.map(lambda place: _unasked(access, place), access.places)
        return [
            f"in {place}: not asked: {why}" for place, told in zip(access.places, each, strict=True) for why in told
        ]


def _unasked(access: Access, place: Place) -> tuple[str, ...]:
    try:
        who = access.read(place, "sts", "GetCallerIdentity")
    except Unreadable:
        return ()  # which is told among what is missing
    return simulating.told(access, place, str(who["Arn"])).unasked


def _lacks(access: Access, place: Place) -> Iterator[str]:
    try:
        who = access.read(place, "sts", "GetCallerIdentity")
    except Unreadable as error:
        yield str(error)
        return
    if place.account not in (OWN, who["Account"]):
        yield f"the credentials are of account {who['Account']}"
        return
    for service, api, given in _reads(access, place):
        if not _readable(access, place, service, api, given):
            yield api
    yield from simulating.told(access, place, str(who["Arn"])).lacks
    for api, given in _writes(access):
        if not _writable(access, place, api, given):
            yield f"{api} from {given['LaunchTemplate']['LaunchTemplateId']}" if "LaunchTemplate" in given else api


def _reads(access: Access, place: Place) -> Iterator[tuple[str, str, dict[str, Any]]]:
    options = access.options
    ids = {"Filters": [{"Name": "instance-id", "Values": [NOBODY]}]}
    template = {"LaunchTemplateId": NO_TEMPLATE, "Versions": ["$Default"]}
    yield from (
        ("ec2", "DescribeInstances", ids),
        ("ec2", "DescribeInstanceStatus", {"Filters": [{"Name": "instance-state-code", "Values": ["48"]}]}),
        ("ec2", "GetConsoleOutput", {"InstanceId": NOBODY}),
        ("ec2", "DescribeLaunchTemplateVersions", template),
        ("autoscaling", "DescribeAutoScalingInstances", {"InstanceIds": [NOBODY]}),
        ("autoscaling", "DescribeAutoScalingGroups", {"AutoScalingGroupNames": [NO_GROUP]}),
    )
    if options.reinstall:
        yield "ec2", "DescribeReplaceRootVolumeTasks", ids
    if options.lifecycle_hooks:
        yield "autoscaling", "DescribeLifecycleHooks", {"AutoScalingGroupName": NO_GROUP}
    if its := simulating.node_group(access, place):
        yield "eks", "DescribeNodegroup", its


def _writes(access: Access) -> list[tuple[str, dict[str, Any]]]:
    """Those of EC2, which can be asked for without doing them; of the others IAM is asked (`simulating`)."""
    options, one, its = access.options, {"InstanceIds": [NOBODY]}, {"InstanceId": NOBODY}
    tags = {"Resources": [NOBODY], "Tags": [{"Key": INCIDENT_TAG, "Value": "doctor"}]}
    found: list[tuple[str, dict[str, Any]]] = [("TerminateInstances", one)]
    if options.reboot == "reboot":
        found.append(("RebootInstances", one))
    else:
        found += [("StopInstances", one), ("StartInstances", one)]
    if options.reinstall:
        found.append(("CreateReplaceRootVolumeTask", its))
    found += [("RunInstances", launched) for launched in _launches(access)]
    found += [("CreateTags", tags), ("DeleteTags", tags)]
    at = datetime.now(UTC) + timedelta(days=1)
    found.append(("ModifyInstanceEventStartTime", {**its, "InstanceEventId": NO_EVENT, "NotBefore": at}))
    return found


def _launches(access: Access) -> list[dict[str, Any]]:
    """From each template that is named: its image, network and profile are asked for with it."""
    spec = [{"ResourceType": "instance", "Tags": [{"Key": INCIDENT_TAG, "Value": "doctor"}]}]
    common = {"MinCount": 1, "MaxCount": 1, "TagSpecifications": spec}
    named = {(one.id, one.version) for one in access.options.launch_templates.values()}
    if not named:
        return [{**common, "ImageId": NO_IMAGE}]
    return [{**common, "LaunchTemplate": {"LaunchTemplateId": id, "Version": of}} for id, of in sorted(named)]


def _readable(access: Access, place: Place, service: str, api: str, given: dict[str, Any]) -> bool:
    """Only a denial counts; an account that can't be asked at all has told so before."""
    try:
        access.read(place, service, api, **given)
    except NotAllowed:
        return False
    except Unreadable:
        return True
    return True


def _writable(access: Access, place: Place, api: str, given: dict[str, Any]) -> bool:
    try:
        access.write(place, "ec2", api, who="doctor", DryRun=True, **given)
    except (NotSent, Unclear) as error:
        return not any(f"({denied})" in str(error) for denied in errors.DENIED)
    return True
