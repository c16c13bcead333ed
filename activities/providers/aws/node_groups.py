"""Machines of EKS managed node groups: EKS launches, so a successor is one more node that this incident claims."""

from __future__ import annotations

from activities.ports import NotSent, Unreadable
from activities.providers.aws import launching
from activities.providers.aws.access import Access, Place
from activities.providers.aws.instances import (
    CLUSTER_TAGS,
    INCIDENT_TAG,
    NODE_GROUP_TAG,
    REPLACES_TAG,
    Instance,
    Reader,
)


class NodeGroups:
    def __init__(self, access: Access) -> None:
        self._access = access

    def grow(self, place: Place, old: Instance, tag: str) -> dict[str, str]:
        """Asks for one node more. Raises `NotSent` or `Unclear`."""
        cluster, name = self._names(old)
        has, most = self._size(place, cluster, name)
        before = launching.asked(old, tag)
        if before is not None and has >= before.size:
            return {"asked": f"before: {name}: {has} nodes"}
        if has + 1 > most:
            raise NotSent(
                f"node group {name} is full ({has} of at most {most}); a successor needs room for one more:"
                " raise its maximum",
                final=True,
            )
        launching.note_asked(self._access, place, old, tag, has + 1)
        answer = self._access.write(
            place, "eks", "UpdateNodegroupConfig", who=f"grow/{old.id}", clusterName=cluster, nodegroupName=name,
            scalingConfig={"desiredSize": has + 1}, clientRequestToken=launching.token("grow", tag, old.id, str(has)),
        )  # fmt: skip
        return {"update": str(answer["update"]["id"]), "asked": f"{name}: {has + 1} nodes"}

    def pending(self, place: Place, old: Instance, tag: str) -> int:
        """To how many nodes it was made to grow for `tag`; 0 where it wasn't, or isn't so large any more."""
        asked = launching.asked(old, tag)
        return asked.size if asked and self._size(place, *self._names(old))[0] >= asked.size else 0

    def claim(self, reader: Reader, place: Place, old: Instance, tag: str) -> str | None:
        """Tags the first newcomer of the group that no incident has claimed."""
        asked = launching.asked(old, tag)
        if asked is None:
            return None
        _, name = self._names(old)
        newcomers = [
            one for one in reader.by(f"tag:{NODE_GROUP_TAG}", {name}).values()
            if not one.gone and one.id != old.id and INCIDENT_TAG not in one.tags and one.launched >= asked.since
        ]  # fmt: skip
        if not newcomers:
            return None
        first = min(newcomers, key=lambda one: (one.launched, one.id))
        self._access.write(
            place, "ec2", "CreateTags", who=f"claim/{first.id}", Resources=[first.id],
            Tags=[{"Key": INCIDENT_TAG, "Value": tag}, {"Key": REPLACES_TAG, "Value": old.id}],
        )  # fmt: skip
        return f"{first.id} of node group {name} is this incident's"

    def _size(self, place: Place, cluster: str, name: str) -> tuple[int, int]:
        """As wanted, and at most. Raises `NotSent`."""
        try:
            group = self._access.read(place, "eks", "DescribeNodegroup", clusterName=cluster, nodegroupName=name)
        except Unreadable as error:
            raise NotSent(str(error)) from None
        size = group["nodegroup"]["scalingConfig"]
        return int(size["desiredSize"]), int(size["maxSize"])

    def _names(self, old: Instance) -> tuple[str, str]:
        cluster = next((old.tags[tag] for tag in CLUSTER_TAGS if tag in old.tags), "")
        if not cluster:
            raise NotSent(f"{old.id} doesn't say which EKS cluster its node group is of", final=True)
        return cluster, old.tags[NODE_GROUP_TAG]
