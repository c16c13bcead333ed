"""What the accounts lack of what the options mean them to do; asked for without changing anything."""

from __future__ import annotations

from typing import Any

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable
from activities.providers.aws import errors
from activities.providers.aws.access import OWN, Access, Place

NOBODY = "i-00000000000000000"
"""An id that no machine has: EC2 answers a call for it with what isn't allowed, or with that it isn't there."""


def missing(access: Access) -> list[str]:
    """Raises `Unreadable` or `NotAllowed` where it can't even sign in."""
    lacks: list[str] = []
    for place in access.places:
        who = access.read(place, "sts", "GetCallerIdentity")
        if place.account not in (OWN, who["Account"]):
            lacks.append(f"sign in to {place}: the credentials are of account {who['Account']}")
            continue
        lacks += [
            f"{api} in {place}" for service, api, given in _reads() if not _readable(access, place, service, api, given)
        ]
        lacks += [f"{api} in {place}" for api, given in _writes(access) if not _writable(access, place, api, given)]
    return lacks


def _reads() -> list[tuple[str, str, dict[str, Any]]]:
    ids = {"Filters": [{"Name": "instance-id", "Values": [NOBODY]}]}
    return [
        ("ec2", "DescribeInstances", ids),
        ("ec2", "DescribeInstanceStatus", {"Filters": [{"Name": "instance-state-code", "Values": ["48"]}]}),
        ("autoscaling", "DescribeAutoScalingInstances", {"InstanceIds": [NOBODY]}),
    ]


def _writes(access: Access) -> list[tuple[str, dict[str, Any]]]:
    """Those of EC2, which can be asked for without doing them; Auto Scaling and EKS have no such way."""
    one = {"InstanceIds": [NOBODY]}
    found: list[tuple[str, dict[str, Any]]] = [("TerminateInstances", one)]
    if access.options.reboot == "reboot":
        found.append(("RebootInstances", one))
    else:
        found += [("StopInstances", one), ("StartInstances", one)]
    return found


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
