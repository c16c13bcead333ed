"""Machines in Auto Scaling groups: ended through their group, so that its size stays what its owner made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from activities.ports import NotSent, Unreadable
from activities.providers.aws.access import Access, Place
from activities.providers.aws.instances import GROUP_TAG, JOINS_TAG, Instance

WAITS = "Terminating:Wait"
OVER = ("Terminating", "Terminated", "Terminating:Proceed", WAITS)


class Groups:
    def __init__(self, access: Access) -> None:
        self._access = access

    def group(self, place: Place, name: str) -> Mapping[str, Any]:
        """Raises `NotSent` where there is none of that name, or it can't be read."""
        found = self._ask(place, "DescribeAutoScalingGroups", AutoScalingGroupNames=[name])["AutoScalingGroups"]
        if not found:
            raise NotSent(f"there is no Auto Scaling group {name} in {place}", final=True)
        group: Mapping[str, Any] = found[0]
        return group

    def member(self, place: Place, id: str) -> Mapping[str, Any] | None:
        found = self._ask(place, "DescribeAutoScalingInstances", InstanceIds=[id])["AutoScalingInstances"]
        return found[0] if found else None

    def template(self, place: Place, name: str) -> dict[str, str]:
        """What the group launches from. Raises `NotSent` where there is no room for one more, or no template."""
        group = self.group(place, name)
        has, most = int(group["DesiredCapacity"]), int(group["MaxSize"])
        if has + 1 > most:
            raise NotSent(
                f"group {name} is full ({has} of at most {most}); a successor needs room for one more:"
                " raise its maximum",
                final=True,
            )
        mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
        found = group.get("LaunchTemplate") or mixed
        if not found:
            raise NotSent(f"group {name} has a launch configuration; give it a launch template", final=True)
        return {"LaunchTemplateId": found["LaunchTemplateId"], "Version": found.get("Version", "$Default")}

    def join(self, place: Place, instance: Instance) -> str | None:
        """A successor that runs and stands outside becomes a member, which raises the group's size by it."""
        name = instance.tags.get(JOINS_TAG)
        if name is None or instance.state != "running" or GROUP_TAG in instance.tags or self.member(place, instance.id):
            return None
        self._access.write(
            place, "autoscaling", "AttachInstances", who=f"attach/{instance.id}",
            InstanceIds=[instance.id], AutoScalingGroupName=name,
        )  # fmt: skip
        return f"{instance.id} joined group {name}"

    def may_end(self, place: Place, id: str) -> Mapping[str, Any]:
        """As its group has it. Raises `NotSent` where that, or whoever protects it there, doesn't allow its end."""
        member = self._member(place, id)
        if member.get("ProtectedFromScaleIn") and self._access.options.scale_in_protected == "refuse":
            raise NotSent(
                f"{id} is protected from scale-in; lift that, or set `scale_in_protected: terminate`", final=True
            )
        return member

    def terminate(self, place: Place, instance: Instance, *, shrink: bool, made_by_us: bool = False) -> str:
        """What we have made is protected from others only. Raises `NotSent`."""
        member = self._member(place, instance.id) if made_by_us else self.may_end(place, instance.id)
        if member["LifecycleState"] in OVER:
            return f"already {member['LifecycleState']}"
        # What stands by isn't counted by its group: nothing is to be taken from its size, nor refilled.
        standby = member["LifecycleState"] in ("Standby", "EnteringStandby")
        if not shrink and not standby:
            self._refills(place, str(member["AutoScalingGroupName"]))
        answer = self._access.write(
            place, "autoscaling", "TerminateInstanceInAutoScalingGroup", who=f"terminate/{instance.id}",
            InstanceId=instance.id, ShouldDecrementDesiredCapacity=shrink and not standby,
        )  # fmt: skip
        return str(answer.get("Activity", {}).get("ActivityId", "asked"))

    def complete(self, place: Place, instance: Instance) -> str | None:
        """Ends the wait of termination hooks that are ours: the machine is empty, nobody needs the time."""
        if not (hooks := self._access.options.lifecycle_hooks):
            return None
        member = self.member(place, instance.id)
        if member is None or member["LifecycleState"] != WAITS:
            return None
        group = str(member["AutoScalingGroupName"])
        for hook in self._ours(place, group, hooks):
            self._access.write(
                place, "autoscaling", "CompleteLifecycleAction", who=f"hook/{instance.id}",
                AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance.id,
                LifecycleActionResult="CONTINUE",
            )  # fmt: skip
        return f"termination hooks of {group} completed"

    def hold(self, place: Place, instance: Instance) -> bool:
        """Asks for more time before a group ends the machine by itself; whether there was anything to hold."""
        member = self.member(place, instance.id)
        if member is None or member["LifecycleState"] != WAITS:
            return False
        group = str(member["AutoScalingGroupName"])
        hooks = self._ours(place, group, self._access.options.lifecycle_hooks)
        for hook in hooks:
            self._access.write(
                place, "autoscaling", "RecordLifecycleActionHeartbeat", who=f"hold/{instance.id}",
                AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance.id,
            )  # fmt: skip
        return bool(hooks)

    def _member(self, place: Place, id: str) -> Mapping[str, Any]:
        member = self.member(place, id)
        if member is None:
            raise NotSent(f"{id} is tagged as a group's, but its group doesn't know it; see to it", final=True)
        return member

    def _ours(self, place: Place, group: str, named: tuple[str, ...]) -> list[str]:
        found = self._ask(place, "DescribeLifecycleHooks", AutoScalingGroupName=group)["LifecycleHooks"]
        ending = {str(hook["LifecycleHookName"]) for hook in found
                  if hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"}  # fmt: skip
        return [name for name in named if name in ending]

    def _refills(self, place: Place, name: str) -> None:
        stopped = {process["ProcessName"] for process in self.group(place, name).get("SuspendedProcesses", ())}
        if "Launch" in stopped:
            raise NotSent(
                f"group {name} launches nothing (its Launch process is suspended), so no successor would come;"
                " resume it, or ask for one with the rung `replace`",
                final=True,
            )

    def _ask(self, place: Place, api: str, **given: Any) -> Mapping[str, Any]:
        """A look of our own before a call: what can't be read is not sent."""
        try:
            return self._access.read(place, "autoscaling", api, **given)
        except Unreadable as error:
            raise NotSent(str(error)) from None
