"""`AwsProvider`: the machine port on EC2. Published as kind `aws` of `medevac.providers`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import JsonValue, ValidationError

from activities.ports import NEEDS, MachineState, NotAllowed, NotSent, Unclear, Unreadable, Verb
from activities.providers.aws import launching, rights
from activities.providers.aws.access import Access, Place
from activities.providers.aws.groups import Groups
from activities.providers.aws.instances import GROUP_TAG, KARPENTER_TAG, NODE_GROUP_TAG, Instance, Reader, Seen
from activities.providers.aws.node_groups import NodeGroups
from activities.providers.aws.options import Options
from activities.providers.aws.planned import Planned
from activities.registry import ConfigurationError, complaints
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Capability, Machine, Node

FRESH_S = 2.0
"""How old the look before a call may be: the act has just read the machine's state."""
KARPENTER_LABEL = "karpenter.sh/nodepool"
NODE_GROUP = "NodeGroup/"
"""What the owner of a node begins with that a cloud's group keeps."""
MANY = 4096
SOON_S = 5.0
TASKS_S = 30.0
"""How often a root volume's replacement is asked about while its proof is waited for."""


class AwsProvider:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self._access = Access(options)
        self._groups = Groups(self._access)
        self._node_groups = NodeGroups(self._access)
        self._planned = Planned(self._access, self._groups)
        self._readers: dict[Place, Reader] = {}
        self._seen = _Recent()
        """What the look before a call saw."""
        self._carried = _Recent()
        """What the verbs that are carried on saw, where they changed nothing: of one poll, one reading."""
        self._asked_tasks: dict[str, float] = {}
        self._lock = threading.Lock()

    # -- reading -----------------------------------------------------------------------------------------------

    def capabilities(self, node: Node) -> frozenset[Capability]:
        """Without a call: what isn't so for one machine after all, its call says. Raises `NotAllowed` where nobody
        has said in which account or region it is: its node isn't emptied for that first."""
        self._access.place(node)
        can = {Capability.POWER_STATE, Capability.SERIAL}
        kept = KARPENTER_LABEL in node.labels or node.owner.startswith(NODE_GROUP)
        if self.options.reboot == "reboot":
            can.add(Capability.REBOOT)
        elif not kept:
            can |= {Capability.REBOOT, Capability.REBOOT_MOVES}
        if self.options.reinstall:
            can.add(Capability.REINSTALL)
        if KARPENTER_LABEL not in node.labels:
            can |= {Capability.REPLACE, Capability.TERMINATE}
        return frozenset(can)

    def cannot_make(self, node: Node) -> str:
        try:
            place = self._access.place(node)
        except NotAllowed as error:
            return str(error)
        if node.pool not in self.options.launch_templates:
            return f"`launch_templates` names none for pool {node.pool} ({place})"
        return ""

    def state(self, node: Node, tag: str) -> MachineState:
        seen = self._carried.pop(node, tag) or self._look(node, tag)
        self._seen.keep(node, tag, seen)
        instance = seen.instance
        successor = seen.successors[0] if seen.successors else None
        return MachineState(
            exists=instance is not None and instance.state != "terminated",
            power=instance.power if instance else "unknown",
            image_mark=instance.root_volume if instance else None,
            ready=instance is not None and instance.ready,
            successor_id=successor.id if successor else None,
            successor_ready=successor is not None and successor.ready,
        )

    def locate(self, machine_id: str) -> Machine | None:
        found = self._find(machine_id)
        if found is None or found.gone:
            return None
        return Machine(
            provider=self.name,
            id=found.id,
            virtual=not str(found.raw.get("InstanceType", "")).split(".")[-1].startswith("metal"),
            reserved="CapacityReservationId" in found.raw,
        )

    def take_inventory(self, inventory: Inventory) -> None:
        """For the roles by which its accounts are reached."""
        self._access.take(inventory)

    def missing_rights(self) -> list[str]:
        """One line for each account and region."""
        return rights.missing(self._access)

    def unasked_rights(self) -> list[str]:
        """One line for each account and region."""
        return rights.unasked(self._access)

    def evidence(self, node: Node, incident: str) -> Iterable[tuple[str, bytes]]:
        place = self._access.place(node)
        given = {"InstanceIds": [node.machine.id], "IncludeAllInstances": True}
        status = self._access.read(place, "ec2", "DescribeInstanceStatus", **given)
        yield "instance-status.json", json.dumps(status.get("InstanceStatuses", []), default=str, indent=1).encode()
        console = self._access.read(place, "ec2", "GetConsoleOutput", InstanceId=node.machine.id, Latest=True)
        yield "console.txt", str(console.get("Output", "")).encode()

    # -- acting ------------------------------------------------------------------------------------------------

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        ours = bool(node.machine.id)
        try:
            if (NEEDS[verb] not in self.capabilities(node)) if ours else verb is not Verb.REQUEST:
                raise NotSent(f"{self.name} can't {verb} {node.name}", final=True)
            if not ours and (why := self.cannot_make(node)):
                raise NotSent(why, final=True)
            place = self._access.place(node)
            seen = self._seen.pop(node, tag) or self._reader(place).look(node.machine.id, tag)
        except Unreadable as error:
            raise NotSent(str(error), final=isinstance(error, NotAllowed)) from None
        if not ours:
            return self._make(place, node, seen, tag)
        instance = self._there(place, node, seen.instance)
        if instance.gone:
            if verb is Verb.TERMINATE:
                return f"{instance.id} is {instance.state} already"
            raise NotSent(f"{instance.id} is {instance.state}", final=True)
        match verb:
            case Verb.REBOOT:
                return self._reboot(place, instance)
            case Verb.REINSTALL:
                return self._replace_root(place, instance, tag, node.machine.image or self.options.image)
            case Verb.REQUEST:
                return self._request(place, node, seen, instance, tag)
            case _:
                return self._terminate(place, seen, instance, tag)

    def proceed(self, verb: Verb, node: Node, tag: str) -> str | None:
        if verb is Verb.REBOOT and self.options.reboot == "reboot":
            return None
        place, seen = self._place(node, tag), self._carried.pop(node, tag) or self._look(node, tag)
        did = self._next(verb, place, seen, tag)
        if did is None:
            self._carried.keep(node, tag, seen)
        return did

    def _next(self, verb: Verb, place: Place, seen: Seen, tag: str) -> str | None:
        instance = seen.instance
        match verb:
            case Verb.REBOOT if instance and instance.state == "stopped":
                self._access.write(
                    place, "ec2", "StartInstances", who=f"start/{instance.id}", InstanceIds=[instance.id]
                )
                return f"{instance.id} is started"
            case Verb.REINSTALL if instance:
                self._task_failed(place, instance)
            case Verb.REQUEST:
                return self._bring_in(place, seen, tag)
            case Verb.TERMINATE if instance and not instance.gone and GROUP_TAG in instance.tags:
                return self._groups.complete(place, instance)
        return None

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        if not tag:
            raise NotSent("nothing is released without the tag of what asked for it", final=True)
        place = self._place(node, tag)
        seen = self._claimed(place, node, tag)
        ended = []
        for one in seen.successors:
            if one.id in joined or one.id == node.machine.id:
                continue
            if GROUP_TAG in one.tags:
                self._groups.terminate(place, one, shrink=True, made_by_us=True)
            else:
                self._access.write(place, "ec2", "TerminateInstances", who=f"release/{one.id}", InstanceIds=[one.id])
            ended.append(one.id)
        if seen.instance and launching.asked(seen.instance, tag) and len(ended) == len(seen.successors):
            # Its group is as large as before: a later end of it must not shrink that once more.
            launching.forget_asked(self._access, place, seen.instance)
        return tuple(ended)

    def hold(self, node: Node) -> bool:
        """More time for a machine that its group is ending by itself; whether there was anything to hold."""
        place, seen = self._access.place(node), self._look(node, "")
        return seen.instance is not None and self._groups.hold(place, seen.instance)

    def acknowledge(self, node: Node, incident: str) -> tuple[str, ...]:
        place, seen = self._access.place(node), self._look(node, "")
        return self._planned.acknowledge(place, seen.instance) if seen.instance and not seen.instance.gone else ()

    # -- parts -------------------------------------------------------------------------------------------------

    def _reboot(self, place: Place, instance: Instance) -> str:
        if instance.state != "running":
            raise NotSent(f"{instance.id} is {instance.state}, and only what runs can be rebooted", final=True)
        api = "RebootInstances" if self.options.reboot == "reboot" else "StopInstances"
        if api == "StopInstances":
            _nobody_keeps_it(instance)
        self._access.write(place, "ec2", api, who=f"{api}/{instance.id}", InstanceIds=[instance.id])
        return f"{api} accepted"

    def _replace_root(self, place: Place, instance: Instance, tag: str, image: str) -> str:
        if instance.root_volume is None:
            raise NotSent(f"{instance.id} has no EBS root volume, so it can't be replaced in place", final=True)
        given: dict[str, Any] = {"ImageId": image} if image else {}
        answer = self._access.write(
            place, "ec2", "CreateReplaceRootVolumeTask", who=f"reinstall/{instance.id}", InstanceId=instance.id,
            ClientToken=launching.token("reinstall", tag, instance.id, instance.root_volume, image),
            DeleteReplacedRootVolume=True, **given,
        )  # fmt: skip
        return str(answer["ReplaceRootVolumeTask"]["ReplaceRootVolumeTaskId"])

    def _request(self, place: Place, node: Node, seen: Seen, old: Instance, tag: str) -> JsonValue:
        if seen.successors:
            return f"asked for before: {seen.successors[0].id}"
        _not_karpenters(old)
        if GROUP_TAG in old.tags:
            self._groups.may_end(place, old.id)
        if NODE_GROUP_TAG in old.tags:
            return self._growing(place, old, lambda: dict(self._node_groups.grow(place, old, tag)))
        if group := old.tags.get(GROUP_TAG):
            template = self._groups.template(place, group)
            launching.note_asked(self._access, place, old, tag)
            return self._growing(
                place, old, lambda: launching.launch(self._access, place, seen, old, tag, template, joins=group)
            )
        template = launching.template_of(self._access, node, old)
        return launching.launch(self._access, place, seen, old, tag, template)

    def _make(self, place: Place, node: Node, seen: Seen, tag: str) -> JsonValue:
        """A successor of somebody else's machine: all that it is, its pool's template says."""
        if seen.successors:
            return f"asked for before: {seen.successors[0].id}"
        return launching.launch(self._access, place, seen, None, tag, launching.template_of(self._access, node, None))

    def _growing(self, place: Place, old: Instance, ask: Callable[[], JsonValue]) -> JsonValue:
        try:
            return ask()
        except NotSent as error:
            if error.final:
                launching.forget_asked(self._access, place, old)
            raise

    def _terminate(self, place: Place, seen: Seen, instance: Instance, tag: str) -> str:
        _not_karpenters(instance)
        if GROUP_TAG not in instance.tags:
            self._access.write(
                place, "ec2", "TerminateInstances", who=f"terminate/{instance.id}", InstanceIds=[instance.id]
            )
            return "TerminateInstances accepted"
        # A group that was made to grow for the successor goes back to its size; another is refilled or shrunk.
        grown = bool(seen.successors) or launching.asked(instance, tag) is not None
        if grown:
            self._has_a_place(place, seen, tag)
        shrink = grown or self.options.terminate_in_group == "shrink"
        return self._groups.terminate(place, instance, shrink=shrink)

    def _bring_in(self, place: Place, seen: Seen, tag: str) -> str | None:
        if seen.successors:
            return self._groups.join(place, seen.successors[0])
        if (
            old := seen.instance
        ) and NODE_GROUP_TAG in old.tags:  # in place of one that has ended, EKS launches another
            return self._node_groups.claim(self._reader(place), place, old, tag)
        if why := launching.ended_by_itself(seen):
            raise NotSent(why, final=True)
        return None

    def _has_a_place(self, place: Place, seen: Seen, tag: str) -> None:
        """The group loses a place with the old machine, so its successor has one before. Raises `NotSent`."""
        try:
            claimed = self._bring_in(place, seen, tag)
        except (Unclear, Unreadable) as error:
            raise NotSent(str(error)) from None
        if not seen.successors and not claimed:
            raise NotSent("its group has launched no successor yet", retry_after_s=SOON_S)
        if seen.successors and seen.successors[0].state != "running":
            raise NotSent(f"its successor {seen.successors[0].id} is not running yet", retry_after_s=SOON_S)

    def _claimed(self, place: Place, node: Node, tag: str) -> Seen:
        """With the newcomer of a node group that was made to grow. Raises `NotSent` where that is still to come."""
        seen = self._look(node, tag)
        old = seen.instance
        if seen.successors or old is None or NODE_GROUP_TAG not in old.tags:
            return seen
        if self._node_groups.claim(self._reader(place), place, old, tag):
            return self._look(node, tag)
        if size := self._node_groups.pending(place, old, tag):
            raise NotSent(
                f"node group {old.tags[NODE_GROUP_TAG]} was made to grow to {size} for it, and its newcomer isn't"
                " there yet; nobody can take that back but its owner, by its size",
            )
        return seen

    def _task_failed(self, place: Place, instance: Instance) -> None:
        now = time.monotonic()
        if now - self._asked_tasks.get(instance.id, float("-inf")) < TASKS_S:
            return
        if len(self._asked_tasks) > MANY:
            self._asked_tasks.clear()
        self._asked_tasks[instance.id] = now
        filters = [{"Name": "instance-id", "Values": [instance.id]}]
        answer = self._access.read(place, "ec2", "DescribeReplaceRootVolumeTasks", Filters=filters)
        tasks = sorted(answer.get("ReplaceRootVolumeTasks", ()), key=lambda task: str(task.get("StartTime", "")))
        if tasks and str(tasks[-1]["TaskState"]).startswith("failed"):
            raise NotSent(f"the replacement of its root volume ended {tasks[-1]['TaskState']}", final=True)

    def _there(self, place: Place, node: Node, instance: Instance | None) -> Instance:
        if instance is None:
            raise NotSent(
                f"{node.machine.id} isn't known in {place}: it is gone for more than an hour, or of another account"
                " or region",
                final=True,
            )
        return instance

    def _look(self, node: Node, tag: str) -> Seen:
        return self._reader(self._place(node, tag)).look(node.machine.id, tag)

    def _place(self, node: Node, tag: str) -> Place:
        """Of a node that is gone, and with it the label that told its account, wherever its machine is, or what was
        asked for in its place. Raises `Unreadable`."""
        if node.labels or not self._access.several:
            return self._access.place(node)
        region = node.topology.get("region")
        for place in self._access.places:
            if region in (None, place.region):
                seen = self._reader(place).look(node.machine.id, tag)
                if seen.instance or seen.asked:
                    return place
        return self._access.place(node)

    def _find(self, machine_id: str) -> Instance | None:
        for place in self._access.places:
            if (found := self._reader(place).by("instance-id", {machine_id}).get(machine_id)) is not None:
                return found
        return None

    def _reader(self, place: Place) -> Reader:
        with self._lock:
            if place not in self._readers:
                self._readers[place] = Reader(self._access, place)
            return self._readers[place]


class _Recent:
    """Readings that serve once, and not for long. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, Seen]] = {}
        self._lock = threading.Lock()

    def keep(self, node: Node, tag: str, seen: Seen) -> None:
        now = time.monotonic()
        with self._lock:
            for key in [key for key, (at, _) in self._kept.items() if now - at > FRESH_S]:
                del self._kept[key]
            self._kept[node.machine.id, tag] = (now, seen)

    def pop(self, node: Node, tag: str) -> Seen | None:
        with self._lock:
            at, seen = self._kept.pop((node.machine.id, tag), (float("-inf"), None))
        return seen if time.monotonic() - at <= FRESH_S else None


def _not_karpenters(instance: Instance) -> None:
    if KARPENTER_TAG in instance.tags:
        raise NotSent(
            f"{instance.id} is Karpenter's ({instance.tags[KARPENTER_TAG]}): its NodeClaim is what is deleted",
            final=True,
        )


def _nobody_keeps_it(instance: Instance) -> None:
    """Who keeps machines up takes a stopped one for a broken one. Raises `NotSent`."""
    group = instance.tags.get(GROUP_TAG)
    keeper = f"group {group}" if group else "Karpenter" if KARPENTER_TAG in instance.tags else ""
    if keeper:
        raise NotSent(
            f"{instance.id} is kept up by {keeper}, which ends a machine that is stopped;"
            " only `reboot: reboot` can restart it",
            final=True,
        )


def make(name: str, options: dict[str, Any]) -> AwsProvider:
    """Raises `ConfigurationError`."""
    try:
        return AwsProvider(name, Options.model_validate(options))
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"provider {name}: {said}") from None
