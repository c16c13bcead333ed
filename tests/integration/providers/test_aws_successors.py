"""Successors on AWS: like the old machine, in the group before it goes, and released wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.ports import NotSent, Verb
from activities.providers.aws.instances import Instance
from activities.providers.aws.provider import make
from medevac.fleet.node import Machine, Node
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.contracts.rigs import ProviderRig, Trouble
from tests.integration.providers.aws_rig import GROUP, IMAGE, AwsRig, GroupRig, NodeGroupRig
from tests.integration.providers.far_side import REGION, FarSide

TAG = "inc-1"
OTHER = "210987654321"
ROLE = f"arn:aws:iam::{OTHER}:role/medevac"
Opens = Callable[[ProviderRig], Desk]


def gone(node: Node) -> Node:
    """The node once its cluster knows it no more: with its labels went the word of its account."""
    machine = Machine(provider="aws", id=node.machine.id, boot_id=node.machine.boot_id)
    return Node(cluster=node.cluster, name=node.name, uid=node.uid, machine=machine, topology={"region": REGION})


# -- in whatever account ---------------------------------------------------------------------------------------


def test_a_successor_is_released_in_the_account_that_only_the_node_named(far: FarSide) -> None:
    accounts: list[dict[str, Any]] = [{"id": "123456789012", "clusters": ["prod"]}, {"id": OTHER, "role": ROLE}]
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "share": 1.0, "accounts": accounts})
    keys = far.direct("sts").assume_role(RoleArn=ROLE, RoleSessionName="owner")["Credentials"]
    theirs = far.direct(
        "ec2", aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )  # fmt: skip
    template = theirs.create_launch_template(
        LaunchTemplateName="gpu-of-another-account",
        LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t3.micro"},
    )["LaunchTemplate"]["LaunchTemplateId"]
    launched = theirs.run_instances(LaunchTemplate={"LaunchTemplateId": template}, MinCount=1, MaxCount=1)
    machine = Machine(provider="aws", id=launched["Instances"][0]["InstanceId"])
    labels = {"medevac.dev/account": OTHER}
    node = Node(cluster="prod", name="gpu-1", labels=labels, machine=machine, topology={"region": REGION})

    aws.do(Verb.REQUEST, node, TAG)
    assert aws.state(gone(node), TAG).exists, "it isn't looked for in the cluster's own account only"
    [successor] = aws.release(gone(node), TAG, frozenset())
    state = theirs.describe_instances(InstanceIds=[successor])["Reservations"][0]["Instances"][0]["State"]
    assert state["Name"] in ("shutting-down", "terminated")

    # A successor of somebody else's machine has only its tag.
    told = node.model_copy(update={"machine": Machine(provider="aws", id="")})
    made = make(
        "aws",
        {"regions": [REGION], "endpoint": far.url, "accounts": accounts, "launch_templates": {"p": {"id": template}}},
    )
    made.do(Verb.REQUEST, told.model_copy(update={"pool": "p"}), "inc-2")
    assert len(made.release(gone(told), "inc-2", frozenset())) == 1


# -- like the old one ------------------------------------------------------------------------------------------


def test_network_interfaces_of_a_template_take_the_old_ones_subnet(far: FarSide) -> None:
    """EC2 refuses a subnet beside them."""
    rig = AwsRig(far)
    cards = [
        {"DeviceIndex": n, "NetworkCardIndex": n, "InterfaceType": "efa", "Groups": ["sg-1"]} for n in (0, 1)
    ]  # fmt: skip
    data = {"ImageId": IMAGE, "InstanceType": "t3.micro", "NetworkInterfaces": cards}
    rig.ec2.create_launch_template_version(LaunchTemplateId=rig.template, LaunchTemplateData=data)
    far.script("RunInstances", lambda call, point: True)
    templates = {"train": {"id": rig.template, "version": "2"}}
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "launch_templates": templates})
    with pytest.raises(Exception, match="RunInstances"):
        aws.do(Verb.REQUEST, rig.node, TAG)
    given = next(call.given for call in far.calls if call.api == "RunInstances")
    subnet = rig.instance(rig.node.machine.id)["SubnetId"]
    assert "SubnetId" not in given
    assert [given[f"NetworkInterface.{n}.SubnetId"] for n in (1, 2)] == [subnet, subnet]
    assert [given[f"NetworkInterface.{n}.InterfaceType"] for n in (1, 2)] == ["efa", "efa"]


def test_a_template_that_is_not_there_launches_nothing(far: FarSide) -> None:
    rig = AwsRig(far, launch_templates={"train": {"id": "lt-0123456789abcdef0"}})
    with pytest.raises(NotSent):
        rig.aws.do(Verb.REQUEST, rig.node, TAG)
    assert rig.billed() == 0


def test_a_spot_machines_successor_is_bought_at_the_same_market(far: FarSide, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = AwsRig(far)
    there = rig.aws._reader(rig.aws._access.place(rig.node))
    by = there.by

    def spot(name: str, values: Any) -> dict[str, Instance]:
        return {
            id: Instance(one.id, one.state, {**one.raw, "InstanceLifecycle": "spot"})
            for id, one in by(name, values).items()
        }

    monkeypatch.setattr(there, "by", spot)
    rig.aws.do(Verb.REQUEST, rig.node, TAG)
    [launch] = far.done("RunInstances")
    assert launch.given["InstanceMarketOptions.MarketType"] == "spot"


# -- in the group before the old one goes ----------------------------------------------------------------------


def test_the_old_machine_stays_where_its_group_takes_no_successor(far: FarSide, desk: Opens) -> None:
    rig = GroupRig(far)
    on = desk(rig)
    on.act(Verb.REQUEST)
    far.script("AttachInstances", Trouble.REFUSE, code="AccessDenied")
    assert on.act(Verb.TERMINATE).outcome is Outcome.FAILED
    assert (rig.group()["DesiredCapacity"], rig.members()) == (1, [rig.node.machine.id])


def test_the_old_machine_stays_until_its_node_group_has_launched_another(far: FarSide, desk: Opens) -> None:
    rig = NodeGroupRig(far)
    rig.slow = True
    on = desk(rig)
    on.act(Verb.REQUEST)
    with pytest.raises(ApplicationError, match="has launched no successor yet"):
        on.act(Verb.TERMINATE)
    assert rig.applied(Verb.TERMINATE) == 0
    rig.launches()
    assert on.act(Verb.TERMINATE).outcome is Outcome.DONE
    assert rig.group()["DesiredCapacity"] == 1


def test_a_newcomer_that_a_node_group_still_launches_is_not_said_to_be_nothing(far: FarSide) -> None:
    rig = NodeGroupRig(far)
    rig.slow = True
    rig.aws.do(Verb.REQUEST, rig.node, TAG)
    with pytest.raises(NotSent, match="made to grow to 2 for it, and its newcomer isn't there yet"):
        rig.aws.release(rig.node, TAG, frozenset())
    rig.launches()
    assert len(rig.aws.release(rig.node, TAG, frozenset())) == 1
    assert (rig.group()["DesiredCapacity"], rig.members()) == (1, [rig.node.machine.id])


def test_a_node_group_that_its_owner_made_small_again_owes_nothing(far: FarSide) -> None:
    rig = NodeGroupRig(far)
    rig.slow = True
    rig.aws.do(Verb.REQUEST, rig.node, TAG)
    rig.eks.update_nodegroup_config(
        clusterName="prod", nodegroupName="gpus", scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 1}
    )
    assert rig.aws.release(rig.node, TAG, frozenset()) == ()


def test_after_a_release_a_mere_termination_refills_the_group(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.aws.do(Verb.REQUEST, rig.node, TAG)
    assert len(rig.aws.release(rig.node, TAG, frozenset())) == 1
    rig.aws.do(Verb.TERMINATE, rig.node, TAG)
    assert rig.group()["DesiredCapacity"] == 1
    assert len(rig.members()) == 1


def test_nothing_is_bought_for_what_may_not_be_ended(far: FarSide) -> None:
    rig = GroupRig(far)
    protect(rig, rig.node.machine.id)
    with pytest.raises(NotSent, match="protected from scale-in"):
        rig.aws.do(Verb.REQUEST, rig.node, TAG)
    assert rig.billed() == 0


def test_a_successor_is_released_though_its_group_protects_newcomers(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.aws.do(Verb.REQUEST, rig.node, TAG)
    rig.aws.proceed(Verb.REQUEST, rig.node, TAG)
    [successor] = [id for id in rig.members() if id != rig.node.machine.id]
    protect(rig, successor)
    assert rig.aws.release(rig.node, TAG, frozenset()) == (successor,)
    assert (rig.group()["DesiredCapacity"], rig.members()) == (1, [rig.node.machine.id])


def protect(rig: GroupRig, id: str) -> None:
    rig.autoscaling.set_instance_protection(InstanceIds=[id], AutoScalingGroupName=GROUP, ProtectedFromScaleIn=True)
