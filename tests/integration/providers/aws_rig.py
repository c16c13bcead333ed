"""The rig of the AWS provider: machines at the far side, and their nodes as a cluster would show them."""

from __future__ import annotations

import itertools
from typing import Any

from activities.ports import Provider, Verb
from activities.providers.aws.provider import AwsProvider
from activities.providers.aws.provider import make as make_provider
from medevac.fleet.node import Capability, Machine, Node
from tests.contracts.rigs import Trouble
from tests.integration.providers.far_side import REGION, Call, FarSide

CLUSTER = "prod"
IMAGE = "ami-12345678"
GROUP = "train"
TEMPLATES = itertools.count(1)
CAN = frozenset({Verb.REBOOT, Verb.REINSTALL, Verb.REQUEST, Verb.TERMINATE})
LIVE = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]


class AwsRig:
    """A machine that stands alone."""

    apis = {
        Verb.REBOOT: "RebootInstances",
        Verb.REINSTALL: "CreateReplaceRootVolumeTask",
        Verb.REQUEST: "RunInstances",
        Verb.TERMINATE: "TerminateInstances",
    }
    name = "gpu-1"

    def __init__(self, far: FarSide, **options: Any) -> None:
        self.far = far
        far.heard = self._heard
        self.ec2 = far.direct("ec2")
        self.template = self.ec2.create_launch_template(
            LaunchTemplateName=f"gpu-{next(TEMPLATES)}",
            LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t3.micro"},
        )["LaunchTemplate"]["LaunchTemplateId"]
        self._uids = (f"uid-{n}" for n in itertools.count(1))
        self._nodes: dict[str, Node] = {}
        """By machine."""
        self._booting: set[str] = set()
        self._dead = False
        self._joins = True
        given = {"regions": [REGION], "reinstall": True, "endpoint": far.url, "share": 1.0} | options
        self.aws: AwsProvider = make_provider("aws", given)
        self.provider: Provider = self.aws
        self.node = self.join(self.name, self.first())

    # -- the far side ------------------------------------------------------------------------------------------

    def first(self) -> str:
        return self.launch()

    def launch(self) -> str:
        answer = self.ec2.run_instances(
            LaunchTemplate={"LaunchTemplateId": self.template}, MinCount=1, MaxCount=1, ClientToken="others"
        )
        return str(answer["Instances"][0]["InstanceId"])

    def instance(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"][0]
        return found

    def live(self) -> list[dict[str, Any]]:
        answer = self.ec2.get_paginator("describe_instances").paginate(Filters=LIVE).build_full_result()
        return [one for reservation in answer["Reservations"] for one in reservation["Instances"]]

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        self.far.script(self.apis[verb], trouble)

    def unreadable(self) -> None:
        self.far.script("DescribeInstances", Trouble.TIMEOUT_BEFORE)

    def calls(self, verb: Verb) -> int:
        return self.far.count(self.apis.get(verb, "-"))

    def applied(self, verb: Verb) -> int:
        return len(self.far.done(self.apis.get(verb, "-")))

    def billed(self) -> int:
        ours = ("medevac.dev/incident",)
        return sum(any(tag["Key"] in ours for tag in one.get("Tags", ())) for one in self.live())

    def _heard(self, call: Call) -> None:
        if call.api in ("RebootInstances", "CreateReplaceRootVolumeTask"):
            self._booting.update(call.ids)

    # -- the cluster's view ------------------------------------------------------------------------------------

    def join(self, name: str, id: str) -> Node:
        can = {Capability.REBOOT, Capability.REINSTALL, Capability.REPLACE, Capability.TERMINATE}
        self._nodes[id] = Node(
            cluster=CLUSTER,
            name=name,
            uid=next(self._uids),
            pool="train",
            gpus=8,
            machine=Machine(
                provider="aws",
                id=id,
                boot_id=f"boot-{id}-1",
                capabilities=frozenset(can | {Capability.POWER_STATE, Capability.SERIAL}),
            ),
            topology={"region": REGION},
        )
        return self._nodes[id]

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def boot(self, id: str) -> None:
        node = self._nodes[id]
        boot_id = f"{node.machine.boot_id}+"
        self._nodes[id] = node.model_copy(update={"machine": node.machine.model_copy(update={"boot_id": boot_id})})

    def pass_time(self) -> None:
        booting, self._booting = self._booting & set(self._nodes), set()
        for id in booting:
            if self._dead:
                self._nodes[id] = self._nodes[id].model_copy(update={"ready": False})
                self.far.impaired.add(id)
            else:
                self.boot(id)
        live = {one["InstanceId"] for one in self.live()}
        for id in live - set(self._nodes) if self._joins else ():
            self.join(f"node-{id}", id)
        for id in set(self._nodes) - live:
            del self._nodes[id]

    def swap(self) -> Node:
        self.lose()
        return self.join(self.node.name, self.launch())

    def lose(self) -> None:
        self.ec2.terminate_instances(InstanceIds=[self.node.machine.id])
        del self._nodes[self.node.machine.id]

    def never_boots(self) -> None:
        self._dead = True

    def never_joins(self) -> None:
        self._joins = False


class StopStartRig(AwsRig):
    """Reboots by stopping and starting, which moves the machine to another host."""

    apis = AwsRig.apis | {Verb.REBOOT: "StopInstances"}

    def __init__(self, far: FarSide) -> None:
        super().__init__(far, reboot="stop_start")

    def _heard(self, call: Call) -> None:
        super()._heard(call)
        if call.api == "StartInstances":
            self._booting.update(call.ids)
            self.pass_time()


class GroupRig(AwsRig):
    """A machine of an Auto Scaling group."""

    apis = AwsRig.apis | {Verb.TERMINATE: "TerminateInstanceInAutoScalingGroup"}
    tags: dict[str, str] = {"team": "llm"}

    def first(self) -> str:
        self.autoscaling = self.far.direct("autoscaling")
        self.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=GROUP, MinSize=0, MaxSize=4, DesiredCapacity=1,
            LaunchTemplate={"LaunchTemplateId": self.template, "Version": "1"}, AvailabilityZones=[f"{REGION}a"],
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in self.tags.items()],
        )  # fmt: skip
        return self.members()[0]

    def group(self) -> dict[str, Any]:
        found: dict[str, Any] = self.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]
        return found

    def members(self) -> list[str]:
        return [str(one["InstanceId"]) for one in self.group()["Instances"]]

    def lose(self) -> None:
        self.autoscaling.detach_instances(
            AutoScalingGroupName=GROUP, InstanceIds=[self.node.machine.id], ShouldDecrementDesiredCapacity=True
        )
        super().lose()


class NodeGroupRig(GroupRig):
    """A machine of an EKS managed node group, whose launches are EKS's."""

    apis = GroupRig.apis | {Verb.REQUEST: "UpdateNodegroupConfig"}
    tags = {"eks:nodegroup-name": "gpus", "eks:cluster-name": CLUSTER}

    def first(self) -> str:
        self.eks = self.far.direct("eks")
        subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        role = "arn:aws:iam::123456789012:role/eks"
        self.eks.create_cluster(name=CLUSTER, roleArn=role, resourcesVpcConfig={"subnetIds": [subnet]})
        self.eks.create_nodegroup(
            clusterName=CLUSTER, nodegroupName="gpus", subnets=[subnet], nodeRole=role,
            scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 1},
        )  # fmt: skip
        return super().first()

    def size(self) -> int:
        group = self.eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName="gpus")["nodegroup"]
        return int(group["scalingConfig"]["desiredSize"])

    slow = False
    """EKS takes its time to launch what it was asked for."""

    def _heard(self, call: Call) -> None:
        super()._heard(call)
        if call.api == "UpdateNodegroupConfig" and not self.slow:
            self.launches()

    def launches(self) -> None:
        size = int(self.group()["DesiredCapacity"]) + 1
        self.autoscaling.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=size)
