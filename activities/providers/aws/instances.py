"""Instances as DescribeInstances tells them, read for many askers at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from activities.ports import Unreadable
from activities.providers.aws.access import Access, Place

INCIDENT_TAG = "medevac.dev/incident"
"""Names the incident that a machine was asked for by; how its successor is found again."""
REPLACES_TAG = "medevac.dev/replaces"
JOINS_TAG = "medevac.dev/joins"
"""On a successor: the group that it becomes a member of once it runs."""
ASKED_TAG = "medevac.dev/asked"
"""On the old machine: for which incident its group was made to grow, since when, and to how many where EKS does it."""
GROUP_TAG = "aws:autoscaling:groupName"
NODE_GROUP_TAG = "eks:nodegroup-name"
CLUSTER_TAGS = ("eks:cluster-name", "eks:eks-cluster-name", "aws:eks:cluster-name")
"""One of them names a node group's cluster."""
KARPENTER_TAG = "karpenter.sh/nodeclaim"
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
VERSION_TAG = "aws:ec2launchtemplate:version"

AT_ONCE = 200
"""Values in one filter, as the API allows."""
STATUSES = 100
"""Ids in one question for status checks."""
WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Instance:
    id: str
    state: str
    raw: Mapping[str, Any]
    impaired: str = ""
    """Which of EC2's own status checks fail."""

    @property
    def tags(self) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self.raw.get("Tags", ())}

    @property
    def gone(self) -> bool:
        return self.state in ("shutting-down", "terminated")

    @property
    def power(self) -> Literal["on", "off", "unknown"]:
        powers: dict[str, Literal["on", "off"]] = {"running": "on", "stopped": "off"}
        return powers.get(self.state, "unknown")

    @property
    def ready(self) -> bool:
        return self.state == "running" and not self.impaired

    @property
    def root_volume(self) -> str | None:
        """None where the root is no EBS volume; that one can't be replaced."""
        for device in self.raw.get("BlockDeviceMappings", ()):
            if device.get("DeviceName") == self.raw.get("RootDeviceName"):
                return str(device.get("Ebs", {}).get("VolumeId", "")) or None
        return None

    @property
    def launched(self) -> datetime:
        at: datetime = self.raw["LaunchTime"]
        return at

    @property
    def why(self) -> str:
        """Why it is in its state, as AWS tells."""
        reason = self.raw.get("StateReason", {})
        return ": ".join(part for part in (reason.get("Code", ""), reason.get("Message", "")) if part)


@dataclass(frozen=True, slots=True)
class Seen:
    """One machine, and those that were asked for under one tag, oldest first."""

    instance: Instance | None
    asked: tuple[Instance, ...] = ()

    @property
    def successors(self) -> tuple[Instance, ...]:
        return tuple(one for one in self.asked if not one.gone)


@dataclass(slots=True)
class _Round:
    wanted: set[tuple[str, str]] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)
    found: dict[tuple[str, str], Seen] = field(default_factory=dict)
    error: Unreadable | None = None


class Reader:
    """Of one place. Whoever asks while a reading is under way shares the next one.

    So an answer is never older than its question, and a thousand who wait for a thousand machines cost the calls of
    a few: three for up to `AT_ONCE` machines.
    """

    def __init__(self, access: Access, place: Place) -> None:
        self._access = access
        self._place = place
        self._open: _Round | None = None
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def look(self, id: str, tag: str) -> Seen:
        """Raises `Unreadable`."""
        with self._lock:
            leads = self._open is None
            current = self._open = self._open or _Round()
            current.wanted.add((id, tag))
        if leads:
            self._lead(current)
        elif not current.done.wait(WAIT_S):
            raise Unreadable(f"no answer from {self._place} within {WAIT_S:g} s")
        if current.error is not None:
            raise current.error
        return current.found[id, tag]

    def _lead(self, current: _Round) -> None:
        with self._reading:
            with self._lock:
                self._open = None  # whoever comes from here on is too late for this one
            try:
                current.found = self._read(current.wanted)
            except Unreadable as error:
                current.error = error
            except BaseException:
                current.error = Unreadable(f"{self._place} could not be read")
                raise
            finally:
                current.done.set()

    def _read(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Seen]:
        ids = self.by("instance-id", {id for id, _ in wanted if id})
        tagged = self.by(f"tag:{INCIDENT_TAG}", {tag for _, tag in wanted if tag})
        ill = self._impaired(one.id for one in {**ids, **tagged}.values() if one.state == "running")

        def told(one: Instance) -> Instance:
            return Instance(one.id, one.state, one.raw, ill.get(one.id, ""))

        found = {}
        for id, tag in wanted:
            asked = [told(one) for one in tagged.values() if one.tags.get(INCIDENT_TAG) == tag and one.id != id]
            seen = told(ids[id]) if id in ids else None
            found[id, tag] = Seen(seen, tuple(sorted(asked, key=lambda one: (one.launched, one.id))))
        return found

    def by(self, name: str, values: Iterable[str]) -> dict[str, Instance]:
        """Instances by a filter; an id that isn't known is left out, where asking by id would refuse all."""
        found = {}
        for some in _chunks(values):
            answer = self._access.read(
                self._place, "ec2", "DescribeInstances", Filters=[{"Name": name, "Values": some}]
            )
            for reservation in answer.get("Reservations", ()):
                for raw in reservation["Instances"]:
                    found[raw["InstanceId"]] = Instance(raw["InstanceId"], raw["State"]["Name"], raw)
        return found

    def _impaired(self, running: Iterable[str]) -> dict[str, str]:
        found = {}
        for some in _chunks(running, STATUSES):
            answer = self._access.read(self._place, "ec2", "DescribeInstanceStatus", InstanceIds=some)
            for status in answer.get("InstanceStatuses", ()):
                failed = [kind for kind in ("InstanceStatus", "SystemStatus", "AttachedEbsStatus")
                          if status.get(kind, {}).get("Status") == "impaired"]  # fmt: skip
                if failed:
                    found[status["InstanceId"]] = ", ".join(failed)
        return found


def _chunks(values: Iterable[str], size: int = AT_ONCE) -> Iterable[list[str]]:
    ordered = sorted(set(values))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]
