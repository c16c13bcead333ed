"""Asking for a successor: one launch with a token, modelled on the machine that it takes the place of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable
from activities.providers.aws.access import Access, Place
from activities.providers.aws.instances import (
    ASKED_TAG,
    INCIDENT_TAG,
    JOINS_TAG,
    REPLACES_TAG,
    TEMPLATE_TAG,
    VERSION_TAG,
    Instance,
    Seen,
)
from medevac.fleet.node import Node

RESERVED_TAGS = ("aws:", "medevac.dev/", "eks:nodegroup")
MOST_TAGS = 48


def token(*parts: str) -> str:
    """The same for the same call, whoever makes it and how often."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:64]


def template_of(access: Access, node: Node, old: Instance | None) -> dict[str, str]:
    """Raises `NotSent` where nothing says what a successor is launched from."""
    named = access.options.launch_templates.get(node.pool or "")
    if named is not None:
        return {"LaunchTemplateId": named.id, "Version": named.version}
    if old is not None and TEMPLATE_TAG in old.tags:
        return {"LaunchTemplateId": old.tags[TEMPLATE_TAG], "Version": old.tags.get(VERSION_TAG, "$Default")}
    raise NotSent(
        f"{old.id if old else node.name} was launched without a template, so nobody knows how its successor boots;"
        f" name one for pool {node.pool} under `launch_templates`",
        final=True,
    )


def launch(
    access: Access,
    place: Place,
    seen: Seen,
    old: Instance | None,
    tag: str,
    template: Mapping[str, str],
    joins: str = "",
) -> dict[str, Any]:
    """One machine, in the old one's subnet and reservation. `joins`: its group. Raises `NotSent` or `Unclear`."""
    before, replaces = [one.id for one in seen.asked], old.id if old else ""
    given: dict[str, Any] = {
        # Those that were asked for before are in it: after one that never came up, another may be asked for.
        "ClientToken": token("request", tag, replaces, *before),
        "LaunchTemplate": dict(template),
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": _tags(old, tag, joins)}],
    }
    if old is not None:
        given |= _like(old, _told_by(access, place, template))
    answer = access.write(place, "ec2", "RunInstances", who=f"request/{tag}/{replaces}", **given)
    made = answer["Instances"][0]
    if made["State"]["Name"] in ("shutting-down", "terminated"):
        raise NotSent(f"{made['InstanceId']} was asked for by this token before, and has ended", final=True)
    return {"request": made["InstanceId"]}


def _tags(old: Instance | None, tag: str, joins: str) -> list[dict[str, str]]:
    given = old.tags.items() if old else ()
    kept = {key: value for key, value in given if not key.startswith(RESERVED_TAGS)}
    ours = {INCIDENT_TAG: tag} | ({REPLACES_TAG: old.id} if old else {}) | ({JOINS_TAG: joins} if joins else {})
    return [{"Key": key, "Value": value} for key, value in {**dict(list(kept.items())[:MOST_TAGS]), **ours}.items()]


def _told_by(access: Access, place: Place, template: Mapping[str, str]) -> Mapping[str, Any]:
    """What the template says of its machines. A look before the call: what can't be read is not sent."""
    id, version = template["LaunchTemplateId"], template["Version"]
    try:
        found = access.read(place, "ec2", "DescribeLaunchTemplateVersions", LaunchTemplateId=id, Versions=[version])
    except Unreadable as error:
        raise NotSent(str(error), final=isinstance(error, NotAllowed)) from None
    versions = found["LaunchTemplateVersions"]
    if not versions:
        raise NotSent(f"there is no version {version} of launch template {id} in {place}", final=True)
    told: Mapping[str, Any] = versions[0]["LaunchTemplateData"]
    return told


def _like(old: Instance, template: Mapping[str, Any]) -> dict[str, Any]:
    """In the old one's subnet, reservation and market, of its type."""
    given: dict[str, Any] = {"InstanceType": old.raw["InstanceType"]} if old.raw.get("InstanceType") else {}
    if subnet := old.raw.get("SubnetId"):
        # A template's network interfaces (EFA has them) take no subnet beside them: it goes into each.
        cards = [{**card, "SubnetId": subnet} for card in template.get("NetworkInterfaces", ())]
        given |= {"NetworkInterfaces": cards} if cards else {"SubnetId": subnet}
    if old.raw.get("InstanceLifecycle") == "spot" and "InstanceMarketOptions" not in template:
        given["InstanceMarketOptions"] = {"MarketType": "spot"}
    return given | _reservation(old)


def _reservation(old: Instance) -> dict[str, Any]:
    """In the same reservation, if the old one stands in one: another place would cost what is paid for already."""
    which = old.raw.get("CapacityReservationId")
    if not which:
        return {}
    found: dict[str, Any] = {
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": which}}
    }
    if old.raw.get("InstanceLifecycle") == "capacity-block":
        found["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    since: datetime
    size: int
    """Of the node group, with the newcomer; 0 where it isn't EKS that launches."""


def asked(old: Instance, tag: str) -> Asked | None:
    """What `tag` had the old machine's group do; None = nothing."""
    incident, since, size = ([*old.tags.get(ASKED_TAG, "").split(" "), "", ""])[:3]
    return Asked(datetime.fromisoformat(since), int(size or 0)) if incident == tag and since else None


def note_asked(access: Access, place: Place, old: Instance, tag: str, size: int = 0) -> None:
    """Before the call: whoever ends the old machine later must know whether its group was made to grow for it."""
    value = f"{tag} {datetime.now(UTC):%Y-%m-%dT%H:%M:%S+00:00} {size}"
    tags = [{"Key": ASKED_TAG, "Value": value}]
    access.write(place, "ec2", "CreateTags", who=f"asked/{old.id}", Resources=[old.id], Tags=tags)


def forget_asked(access: Access, place: Place, old: Instance) -> None:
    """Nothing came of it. What can't be taken back now is overwritten by the next who asks."""
    with suppress(NotSent, Unclear):
        access.write(place, "ec2", "DeleteTags", who=f"asked/{old.id}", Resources=[old.id], Tags=[{"Key": ASKED_TAG}])


def ended_by_itself(seen: Seen) -> str:
    """Why what was asked for can't come any more, in words; empty while one is on its way, or nothing was asked."""
    if seen.successors or not seen.asked:
        return ""
    last = seen.asked[-1]
    return f"{last.id}, which was asked for, has ended: {last.why or last.state}"
