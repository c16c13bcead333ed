"""Rights for writes without a dry run (Auto Scaling, EKS), as IAM's own simulation of our policies sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from activities.ports import NotAllowed, Unreadable
from activities.providers.aws.access import Access, Place
from activities.providers.aws.instances import CLUSTER_TAGS, GROUP_TAG, NODE_GROUP_TAG

SIMULATE = "iam:SimulatePrincipalPolicy"
ANYTHING = "*"
SOME = {"MaxItems": 20}
"""Machines that are looked at for one that says which group it is of."""
GROUP_WRITES = ("autoscaling:AttachInstances", "autoscaling:TerminateInstanceInAutoScalingGroup")
HOOK_WRITES = ("autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat")
NODE_GROUP_WRITES = ("eks:UpdateNodegroupConfig",)
_CALLER = re.compile(r"arn:(?P<partition>[\w-]+):(?P<service>iam|sts)::(?P<account>\d+):(?P<what>[\w-]+)/(?P<name>\S+)")


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one place's rights without a call that would do anything."""

    lacks: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    """Why something couldn't be asked, and what to check by hand."""


def told(access: Access, place: Place, caller: str) -> Told:
    """`caller`: the ARN that STS says we are."""
    lacks, depends, failed = list[str](), list[str](), dict[str, list[str]]()
    for resource, actions in _wanted(access, place):
        try:
            for action, decision, missing in _simulated(access, place, caller, resource, actions):
                if decision == "allowed":
                    continue
                if missing:
                    depends.append(f"{action} (by {', '.join(missing)})")
                else:
                    lacks.append(action)
        except NotAllowed:
            failed.setdefault(f"{SIMULATE} is not allowed", []).extend(actions)
        except Unreadable as error:
            failed.setdefault(str(error), []).extend(actions)
    unasked = [f"no dry run and {why}; check by hand: {', '.join(actions)}" for why, actions in failed.items()]
    if depends:
        unasked.append(f"allowed under conditions that only a real call meets; check by hand: {', '.join(depends)}")
    return Told(tuple(lacks), tuple(unasked))


def node_group(access: Access, place: Place) -> dict[str, str]:
    """One that a machine says it is of, as EKS is asked about it; empty where none does."""
    for tags in _tags(access, place, NODE_GROUP_TAG):
        if cluster := next((tags[tag] for tag in CLUSTER_TAGS if tag in tags), ""):
            return {"clusterName": cluster, "nodegroupName": tags[NODE_GROUP_TAG]}
    return {}


def _wanted(access: Access, place: Place) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is called on groups, where there are machines of any, with one of them to ask about."""
    hooks = HOOK_WRITES if access.options.lifecycle_hooks else ()
    tags = next(_tags(access, place, GROUP_TAG), None)
    if tags is not None:
        yield _group_arn(access, place, tags[GROUP_TAG]), (*GROUP_WRITES, *hooks)
    elif hooks:
        yield ANYTHING, hooks
    if its := node_group(access, place):
        yield _node_group_arn(access, place, its), NODE_GROUP_WRITES


def _simulated(
    access: Access, place: Place, caller: str, resource: str, actions: tuple[str, ...]
) -> Iterator[tuple[str, str, list[str]]]:
    """Each action with IAM's decision, and the condition keys that it would have needed. Raises `Unreadable`."""
    principal = _principal(access, place, caller)
    answer = access.read(
        place, "iam", "SimulatePrincipalPolicy",
        PolicySourceArn=principal, ActionNames=list(actions), ResourceArns=[resource],
    )  # fmt: skip
    for one in answer["EvaluationResults"]:
        yield one["EvalActionName"], one["EvalDecision"], sorted(one.get("MissingContextValues", ()))


def _principal(access: Access, place: Place, caller: str) -> str:
    """Whose policies are simulated: a session's are those of its role. Raises `Unreadable`."""
    found = _CALLER.fullmatch(caller)
    if found and found["service"] == "iam" and found["what"] in ("user", "role"):
        return caller
    if found and found["service"] == "sts" and found["what"] == "assumed-role":
        role = found["name"].partition("/")[0]
        known = access.role(place)
        # A session doesn't say its role's path; the options do.
        if known.rpartition("/")[2] == role:
            return known
        return f"arn:{found['partition']}:iam::{found['account']}:role/{role}"
    raise Unreadable(f"{caller} is no user or role whose policies {SIMULATE} knows")


def _tags(access: Access, place: Place, key: str) -> Iterator[dict[str, str]]:
    """Of some machines that carry it; of none where they can't be read, which is told by itself."""
    tagged = [{"Name": "tag-key", "Values": [key]}]
    try:
        answer = access.read(place, "ec2", "DescribeInstances", Filters=tagged, PaginationConfig=SOME)
    except Unreadable:
        return
    for reservation in answer.get("Reservations", ()):
        for instance in reservation["Instances"]:
            yield {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def _group_arn(access: Access, place: Place, name: str) -> str:
    try:
        answer = access.read(place, "autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[name])
    except Unreadable:
        return ANYTHING
    return next((str(one["AutoScalingGroupARN"]) for one in answer["AutoScalingGroups"]), ANYTHING)


def _node_group_arn(access: Access, place: Place, its: dict[str, str]) -> str:
    try:
        answer = access.read(place, "eks", "DescribeNodegroup", **its)
    except Unreadable:
        return ANYTHING
    return str(answer["nodegroup"].get("nodegroupArn", ANYTHING))
