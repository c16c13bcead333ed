"""What is EC2's own: groups, capacity, stops, root volumes, accounts, and errors that a person must understand."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from activities.inventory_file import read_inventory
from activities.ports import (
    HasEvidence,
    HasRights,
    HasSteps,
    NotAllowed,
    NotSent,
    TakesInventory,
    Unclear,
    Unreadable,
    Verb,
)
from activities.providers.aws.provider import make
from activities.registry import ConfigurationError
from medevac.fleet.node import Capability
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.contracts.rigs import ProviderRig, Trouble
from tests.integration.providers.aws_rig import GROUP, AwsRig, GroupRig, NodeGroupRig, StopStartRig
from tests.integration.providers.far_side import REGION, FarSide
from worker import doctor
from worker.parts import Built
from worker.settings import Settings

TAG = "inc-1"
Opens = Callable[[ProviderRig], Desk]


def refusal(rig: AwsRig, verb: Verb) -> str:
    """It is final, and changed nothing."""
    before = len(rig.far.effects)
    with pytest.raises(NotSent) as caught:
        rig.aws.do(verb, rig.node, TAG)
    assert caught.value.final
    assert len(rig.far.effects) == before
    return str(caught.value)


# -- groups ----------------------------------------------------------------------------------------------------


def test_a_group_is_refilled_by_a_mere_termination(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.aws.do(Verb.TERMINATE, rig.node, TAG)
    assert rig.group()["DesiredCapacity"] == 1
    assert rig.members() != [rig.node.machine.id]


def test_a_group_is_shrunk_where_that_is_asked_for(far: FarSide) -> None:
    rig = GroupRig(far, terminate_in_group="shrink")
    rig.aws.do(Verb.TERMINATE, rig.node, TAG)
    assert (rig.group()["DesiredCapacity"], rig.members()) == (0, [])


def test_a_replacement_leaves_the_group_as_large_as_it_was(far: FarSide, desk: Opens) -> None:
    rig = GroupRig(far)
    on = desk(rig)
    on.act(Verb.REQUEST)
    on.act(Verb.TERMINATE)
    rig.pass_time()
    proof = on.prove(Verb.REQUEST, Verb.TERMINATE)
    assert proof.outcome is Outcome.DONE, proof.reason
    assert rig.group()["DesiredCapacity"] == 1
    [successor] = rig.members()
    assert proof.identity
    assert proof.identity.machine_id == successor
    tags = {tag["Key"]: tag["Value"] for tag in rig.instance(successor)["Tags"]}
    assert (tags["medevac.dev/incident"], tags["team"]) == (TAG, "llm")


def test_a_replacement_leaves_the_node_group_as_large_as_it_was(far: FarSide, desk: Opens) -> None:
    rig = NodeGroupRig(far)
    on = desk(rig)
    on.act(Verb.REQUEST)
    assert rig.size() == 2
    rig.pass_time()
    on.act(Verb.TERMINATE)
    rig.pass_time()
    proof = on.prove(Verb.REQUEST, Verb.TERMINATE)
    assert proof.outcome is Outcome.DONE, proof.reason
    assert (rig.group()["DesiredCapacity"], len(rig.members())) == (1, 1)


def test_a_full_group_has_no_room_for_a_successor(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.autoscaling.update_auto_scaling_group(AutoScalingGroupName=GROUP, MaxSize=1)
    assert "full (1 of at most 1)" in refusal(rig, Verb.REQUEST)


def test_what_is_protected_from_scale_in_is_left_to_whoever_protects_it(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.autoscaling.set_instance_protection(
        InstanceIds=[rig.node.machine.id], AutoScalingGroupName=GROUP, ProtectedFromScaleIn=True
    )
    assert "protected from scale-in" in refusal(rig, Verb.TERMINATE)
    anyway = make("aws", {"regions": [REGION], "endpoint": far.url, "scale_in_protected": "terminate"})
    anyway.do(Verb.TERMINATE, rig.node, TAG)
    assert rig.applied(Verb.TERMINATE) == 1


def test_nothing_is_ended_in_a_group_that_launches_nothing(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.autoscaling.suspend_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    assert "Launch process is suspended" in refusal(rig, Verb.TERMINATE)


def test_what_stands_by_is_neither_refilled_nor_counted(far: FarSide) -> None:
    rig = GroupRig(far)
    rig.autoscaling.enter_standby(
        InstanceIds=[rig.node.machine.id], AutoScalingGroupName=GROUP, ShouldDecrementDesiredCapacity=True
    )
    rig.aws.do(Verb.TERMINATE, rig.node, TAG)
    [call] = far.done("TerminateInstanceInAutoScalingGroup")
    assert call.given["ShouldDecrementDesiredCapacity"] == "false"


def test_own_termination_hooks_are_held_and_completed_and_no_others(far: FarSide) -> None:
    rig = GroupRig(far, lifecycle_hooks=["medevac-drain"])
    for hook in ("medevac-drain", "somebody-elses"):
        rig.autoscaling.put_lifecycle_hook(
            LifecycleHookName=hook, AutoScalingGroupName=GROUP,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        )  # fmt: skip
    assert rig.aws.hold(rig.node) is False
    far.rewrite["DescribeAutoScalingInstances"] = (b">InService<", b">Terminating:Wait<")
    assert rig.aws.hold(rig.node) is True
    assert isinstance(rig.aws, HasSteps)
    rig.aws.proceed(Verb.TERMINATE, rig.node, TAG)
    hooks = [(call.api, call.given["LifecycleHookName"]) for call in far.effects if "LifecycleHookName" in call.given]
    assert hooks == [
        ("RecordLifecycleActionHeartbeat", "medevac-drain"),
        ("CompleteLifecycleAction", "medevac-drain"),
    ]


def test_karpenters_machines_are_its_own(far: FarSide) -> None:
    rig = AwsRig(far)
    rig.ec2.create_tags(
        Resources=[rig.node.machine.id], Tags=[{"Key": "karpenter.sh/nodeclaim", "Value": "default-x7k2"}]
    )
    assert "NodeClaim" in refusal(rig, Verb.TERMINATE)
    assert "NodeClaim" in refusal(rig, Verb.REQUEST)
    labelled = rig.node.model_copy(update={"labels": {"karpenter.sh/nodepool": "default"}})
    assert not {Capability.REPLACE, Capability.TERMINATE} & rig.aws.capabilities(labelled)


# -- capacity --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [AwsRig, GroupRig])
def test_no_capacity_is_told_and_ends_nothing(far: FarSide, desk: Opens, kind: type[AwsRig]) -> None:
    rig = kind(far)
    far.script("RunInstances", Trouble.REFUSE, code="InsufficientInstanceCapacity")
    result = desk(rig).act(Verb.REQUEST)
    assert result.outcome is Outcome.FAILED
    assert "no capacity" in result.reason
    assert "InsufficientInstanceCapacity" in result.reason
    assert rig.billed() == 0
    # A later termination must not take the group for one that was made to grow.
    assert "medevac.dev/asked" not in {tag["Key"] for tag in rig.instance(rig.node.machine.id).get("Tags", ())}


def test_a_successor_that_ended_by_itself_is_not_waited_for(far: FarSide, desk: Opens) -> None:
    rig = AwsRig(far)
    on = desk(rig)
    on.act(Verb.REQUEST)
    [successor] = [one["InstanceId"] for one in rig.live() if one["InstanceId"] != rig.node.machine.id]
    rig.ec2.terminate_instances(InstanceIds=[successor])
    proof = on.prove(Verb.REQUEST)
    assert proof.outcome is Outcome.FAILED
    assert f"{successor}, which was asked for, has ended" in proof.reason


def test_without_a_template_nobody_knows_how_a_successor_boots(far: FarSide) -> None:
    rig = AwsRig(far)
    bare = rig.ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    rig.node = rig.join("bare", bare)
    assert "launch_templates" in refusal(rig, Verb.REQUEST)


# -- reboots and root volumes ----------------------------------------------------------------------------------


def test_stop_and_start_moves_the_host_and_is_proved_by_the_boot(far: FarSide, desk: Opens) -> None:
    rig = StopStartRig(far)
    on = desk(rig)
    on.act(Verb.REBOOT)
    assert rig.instance(rig.node.machine.id)["State"]["Name"] == "stopped"
    proof = on.prove(Verb.REBOOT)
    assert proof.outcome is Outcome.DONE, proof.reason
    assert [call.api for call in far.effects] == ["StopInstances", "StartInstances"]


def test_what_a_group_keeps_up_is_never_stopped(far: FarSide) -> None:
    rig = GroupRig(far, reboot="stop_start")
    assert f"kept up by group {GROUP}" in refusal(rig, Verb.REBOOT)
    alone = AwsRig(far, reboot="stop_start")
    assert alone.aws.capabilities(alone.node) >= {Capability.REBOOT, Capability.REBOOT_MOVES}
    for known in ({"owner": "NodeGroup/gpus"}, {"labels": {"karpenter.sh/nodepool": "default"}}):
        of_a_group = alone.node.model_copy(update=known)
        assert not {Capability.REBOOT, Capability.REBOOT_MOVES} & alone.aws.capabilities(of_a_group)
    assert Capability.REBOOT_MOVES not in AwsRig(far).aws.capabilities(alone.node)


def test_no_capacity_at_the_start_again_is_told(far: FarSide, desk: Opens) -> None:
    rig = StopStartRig(far)
    on = desk(rig)
    on.act(Verb.REBOOT)
    far.script("StartInstances", Trouble.REFUSE, code="InsufficientInstanceCapacity")
    proof = on.prove(Verb.REBOOT)
    assert proof.outcome is Outcome.FAILED
    assert "no capacity" in proof.reason


def test_a_stopped_machine_is_not_rebooted(far: FarSide) -> None:
    rig = AwsRig(far)
    rig.ec2.stop_instances(InstanceIds=[rig.node.machine.id])
    assert "only what runs" in refusal(rig, Verb.REBOOT)


def test_the_image_of_an_order_goes_before_that_of_the_options(far: FarSide) -> None:
    rig = AwsRig(far, image="ami-11111111")
    rig.aws.do(Verb.REINSTALL, rig.node, TAG)
    machine = rig.node.machine.model_copy(update={"image": "ami-22222222"})
    rig.aws.do(Verb.REINSTALL, rig.node.model_copy(update={"machine": machine}), TAG)
    assert [call.given["ImageId"] for call in far.done("CreateReplaceRootVolumeTask")] == [
        "ami-11111111",
        "ami-22222222",
    ]


def test_a_failed_replacement_of_the_root_volume_is_told(far: FarSide, desk: Opens) -> None:
    rig = AwsRig(far)
    far.failed_tasks.add(rig.node.machine.id)
    on = desk(rig)
    on.act(Verb.REINSTALL)
    proof = on.prove(Verb.REINSTALL)
    assert proof.outcome is Outcome.FAILED
    assert "ended failed" in proof.reason


# -- accounts, rights, bad input -------------------------------------------------------------------------------


def test_each_account_is_reached_by_its_own_role_and_external_id(far: FarSide) -> None:
    rig = AwsRig(far)
    other = "210987654321"
    role = f"arn:aws:iam::{other}:role/medevac"
    accounts: list[dict[str, Any]] = [
        {"id": "123456789012", "clusters": ["prod"]},
        {"id": other, "role": role, "external_id": "fleet-7", "clusters": ["lab"]},
    ]
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "accounts": accounts})
    keys = far.direct("sts").assume_role(RoleArn=role, RoleSessionName="owner")["Credentials"]
    theirs = far.direct(
        "ec2", aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )  # fmt: skip
    id = theirs.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    machine = rig.node.machine.model_copy(update={"id": id})
    node = rig.node.model_copy(update={"cluster": "lab", "machine": machine})

    assert aws.state(node, TAG).exists
    assert aws.state(rig.node, TAG).exists
    aws.do(Verb.REBOOT, node, TAG)
    [assumed] = [call for call in far.calls if call.api == "AssumeRole"]
    assert (assumed.given["RoleArn"], assumed.given["ExternalId"]) == (role, "fleet-7")
    located = aws.locate(id)
    assert located is not None
    assert located.id == id

    # The same machine, taken for one of the other account.
    wrong = node.model_copy(update={"cluster": "prod"})
    with pytest.raises(NotSent, match="isn't known in account 123456789012") as caught:
        aws.do(Verb.TERMINATE, wrong, TAG)
    assert caught.value.final
    nowhere = node.model_copy(update={"cluster": "elsewhere", "labels": {"kubernetes.io/hostname": "n"}})
    for ask in (lambda: aws.state(nowhere, TAG), lambda: aws.capabilities(nowhere)):
        with pytest.raises(NotAllowed, match="which of the 2 accounts"):
            ask()
    with pytest.raises(NotSent, match="which of the 2 accounts") as caught:
        aws.do(Verb.REBOOT, nowhere, TAG)
    assert caught.value.final
    # Its node is gone, and with it the label that told its account: its end can still be seen.
    gone = nowhere.model_copy(update={"labels": {}})
    assert aws.state(gone, TAG).exists
    theirs.terminate_instances(InstanceIds=[id])
    assert not aws.state(gone, TAG).exists
    with pytest.raises(NotAllowed, match="which of the 2 accounts"):
        aws.state(gone.model_copy(update={"machine": machine.model_copy(update={"id": "i-00000000000000001"})}), TAG)


def test_an_account_is_reached_by_the_role_that_the_inventory_names(far: FarSide, tmp_path: Path) -> None:
    rig = AwsRig(far)
    other = "210987654321"
    role = f"arn:aws:iam::{other}:role/medevac"
    file = tmp_path / "machines.csv"
    file.write_text(
        "node,provider_id,account,role\n"
        f"n-1,i-0abc,{other},{role}\n"
        "n-2,i-0abd,333333333333,arn:aws:iam::333333333333:role/a\n"
        "n-3,i-0abe,333333333333,arn:aws:iam::333333333333:role/b\n"
    )
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "share": 1.0})
    assert isinstance(aws, TakesInventory)
    inventory = read_inventory([file], ["prod"])
    aws.take_inventory(inventory)
    machine = rig.node.machine.model_copy(update={"id": "i-0abc"})
    theirs = inventory.enrich(rig.node.model_copy(update={"name": "n-1", "machine": machine}))
    with pytest.raises(NotSent, match=f"isn't known in account {other}"):
        aws.do(Verb.REBOOT, theirs, TAG)
    assert [call.given["RoleArn"] for call in far.calls if call.api == "AssumeRole"] == [role]
    assert aws.state(rig.node, TAG).exists, "of which nobody says an account is in that of our own credentials"
    [said] = aws.missing_rights()
    assert said.startswith("account 333333333333: the inventory gives it 2 roles")


@pytest.mark.parametrize("code", ["AuthFailure", "UnauthorizedOperation", "ExpiredToken"])
def test_wrong_credentials_end_the_step_with_their_reason(far: FarSide, desk: Opens, code: str) -> None:
    rig = AwsRig(far)
    far.script("DescribeInstances", Trouble.REFUSE, times=100, code=code)
    result = desk(rig).act(Verb.REBOOT)
    assert result.outcome is Outcome.FAILED
    assert code in result.reason


def test_a_missing_right_is_told_once_and_for_all(far: FarSide, desk: Opens) -> None:
    rig = AwsRig(far)
    far.script("RebootInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    result = desk(rig).act(Verb.REBOOT)
    assert result.outcome is Outcome.FAILED
    assert "UnauthorizedOperation" in result.reason


def test_the_doctor_is_told_what_is_missing(far: FarSide) -> None:
    rig = AwsRig(far)
    assert isinstance(rig.aws, HasRights)
    assert rig.aws.missing_rights() == []
    assert not far.effects
    far.script("TerminateInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    assert rig.aws.missing_rights() == [f"in account of our own credentials, {REGION}: TerminateInstances"]
    account = {"id": "999999999999"}
    foreign = make("aws", {"regions": [REGION], "endpoint": far.url, "accounts": [account]})
    assert "credentials are of account 123456789012" in foreign.missing_rights()[0]
    far.script("GetCallerIdentity", Trouble.REFUSE, code="InvalidClientTokenId")
    [said] = rig.aws.missing_rights()
    assert "InvalidClientTokenId" in said


ALWAYS = {
    "DescribeInstances", "DescribeInstanceStatus", "GetConsoleOutput", "DescribeLaunchTemplateVersions",
    "DescribeAutoScalingInstances", "DescribeAutoScalingGroups", "RunInstances", "TerminateInstances", "CreateTags",
    "DeleteTags", "ModifyInstanceEventStartTime", "RebootInstances",
}  # fmt: skip
USED = [
    pytest.param({}, set(), set(), id="as shipped"),
    pytest.param({"reboot": "stop_start"}, {"StopInstances", "StartInstances"}, {"RebootInstances"}, id="stop, start"),
    pytest.param(
        {"reinstall": True}, {"CreateReplaceRootVolumeTask", "DescribeReplaceRootVolumeTasks"}, set(), id="reinstall"
    ),
    pytest.param({"lifecycle_hooks": ["medevac-drain"]}, {"DescribeLifecycleHooks"}, set(), id="hooks"),
]


@pytest.mark.parametrize(("options", "more", "less"), USED)
def test_all_that_the_options_have_it_do_is_asked_for_and_nothing_else(
    far: FarSide, options: dict[str, Any], more: set[str], less: set[str]
) -> None:
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "share": 1.0} | options)
    assert aws.missing_rights() == []
    wanted = ALWAYS - less | more
    assert {call.api for call in far.calls} - {"GetCallerIdentity"} == wanted
    for api in sorted(wanted):
        far.script(api, Trouble.REFUSE, code="UnauthorizedOperation")
    [said] = aws.missing_rights()
    assert set(said.partition(f"{REGION}: ")[2].split(", ")) == wanted
    assert not far.effects


def test_machines_of_a_node_group_have_eks_asked_too(far: FarSide) -> None:
    rig = NodeGroupRig(far)
    assert rig.aws.missing_rights() == []
    far.script("DescribeNodegroup", Trouble.REFUSE, code="AccessDeniedException")
    assert rig.aws.missing_rights() == [f"in account of our own credentials, {REGION}: DescribeNodegroup"]


# -- what has no dry run ---------------------------------------------------------------------------------------

GROUP_RIGHTS = ["autoscaling:AttachInstances", "autoscaling:TerminateInstanceInAutoScalingGroup"]


def of_a_role(far: FarSide, *statements: dict[str, Any], path: str = "/", **options: Any) -> Any:
    """A provider whose own role has these statements alone."""
    iam = far.direct("iam")
    role = iam.create_role(RoleName="medevac", Path=path, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    if statements:
        iam.put_role_policy(RoleName="medevac", PolicyName="own", PolicyDocument=json.dumps(document))
    accounts = [{"id": "123456789012", "role": role}]
    return make("aws", {"regions": [REGION], "endpoint": far.url, "share": 1.0, "accounts": accounts} | options)


def allowing(*actions: str, on: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": list(actions), "Resource": on, **more}


def test_writes_without_a_dry_run_are_asked_of_iam(far: FarSide) -> None:
    GroupRig(far)
    aws = of_a_role(far, allowing("autoscaling:AttachInstances"))
    assert aws.missing_rights() == [f"in account 123456789012, {REGION}: {GROUP_RIGHTS[1]}"]
    assert aws.unasked_rights() == []
    assert {call.given["PolicySourceArn"] for call in far.calls if call.api == "SimulatePrincipalPolicy"} == {
        "arn:aws:iam::123456789012:role/medevac"
    }
    assert not [call for call in far.effects if call.api not in ("AssumeRole", "CreateAutoScalingGroup")]


def test_a_right_to_one_s_own_groups_is_enough(far: FarSide) -> None:
    rig = GroupRig(far)
    aws = of_a_role(far, allowing(*GROUP_RIGHTS, on=rig.group()["AutoScalingGroupARN"]))
    assert aws.missing_rights() == []
    assert aws.unasked_rights() == []


def test_node_groups_and_hooks_are_asked_about_where_they_are_used(far: FarSide) -> None:
    NodeGroupRig(far)
    aws = of_a_role(far, allowing(*GROUP_RIGHTS), lifecycle_hooks=["medevac-drain"])
    [said] = aws.missing_rights()
    hooks = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
    assert said.partition(f"{REGION}: ")[2].split(", ") == [*hooks, "eks:UpdateNodegroupConfig"]


def test_a_role_with_a_path_is_known_by_the_options(far: FarSide) -> None:
    GroupRig(far)
    aws = of_a_role(far, allowing(*GROUP_RIGHTS), path="/ops/")
    assert (aws.missing_rights(), aws.unasked_rights()) == ([], [])


def test_what_iam_may_not_be_asked_is_left_to_a_person_and_is_no_lack(far: FarSide) -> None:
    GroupRig(far)
    aws = of_a_role(far)
    far.script("SimulatePrincipalPolicy", Trouble.REFUSE, times=2, code="AccessDenied")
    assert aws.missing_rights() == []
    assert aws.unasked_rights() == [
        f"in account 123456789012, {REGION}: not asked: no dry run and iam:SimulatePrincipalPolicy is not allowed;"
        f" check by hand: {', '.join(GROUP_RIGHTS)}"
    ]


def test_a_right_bound_to_tags_is_left_to_a_person(far: FarSide) -> None:
    GroupRig(far)
    bound = {"StringEquals": {"aws:ResourceTag/team": "llm"}}
    aws = of_a_role(far, allowing(*GROUP_RIGHTS, Condition=bound))
    assert aws.missing_rights() == []
    [said] = aws.unasked_rights()
    assert "autoscaling:AttachInstances (by aws:ResourceTag/team)" in said


def test_an_identity_whose_policies_iam_does_not_know_is_named(far: FarSide) -> None:
    rig = GroupRig(far)
    assert rig.aws.missing_rights() == []
    [said] = rig.aws.unasked_rights()
    assert "user/moto is no user or role" in said
    assert GROUP_RIGHTS[0] in said


def test_without_groups_nothing_is_asked_of_iam(far: FarSide) -> None:
    AwsRig(far)
    aws = of_a_role(far)
    assert (aws.missing_rights(), aws.unasked_rights()) == ([], [])
    assert far.count("SimulatePrincipalPolicy") == 0


def test_a_launch_is_asked_for_with_each_template_that_is_named(far: FarSide) -> None:
    id = AwsRig(far).template
    given = {"regions": [REGION], "endpoint": far.url, "share": 1.0, "launch_templates": {"train": {"id": id}}}
    far.script("RunInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    assert make("aws", given).missing_rights() == [
        f"in account of our own credentials, {REGION}: RunInstances from {id}"
    ]


def test_an_account_that_cannot_be_signed_in_to_hides_no_other(far: FarSide) -> None:
    role = "arn:aws:iam::210987654321:role/medevac"
    accounts = [{"id": "210987654321", "role": role}, {"id": "123456789012"}]
    aws = make("aws", {"regions": [REGION], "endpoint": far.url, "share": 1.0, "accounts": accounts})
    far.script("AssumeRole", Trouble.REFUSE, code="AccessDenied")
    far.script("RebootInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    one, other = aws.missing_rights()
    assert one.startswith(f"in account 210987654321, {REGION}: GetCallerIdentity")
    assert "AccessDenied" in one
    assert other == f"in account 123456789012, {REGION}: RebootInstances"


async def test_the_doctor_has_one_line_for_it(far: FarSide, desk: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = desk(AwsRig(far)).registry
    monkeypatch.setattr(doctor, "find_config", lambda settings: None)
    monkeypatch.setattr(doctor, "build_parts", lambda config, data_dir: Built.of(registry))

    async def said() -> str:
        [found] = [one for one in await doctor._parts(doctor.House(Settings())) if one.what == "provider aws"]
        return found.text

    assert await said() == "has what it needs"
    GroupRig(far)
    assert "not asked: no dry run and " in await said()
    far.script("RebootInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    assert await said() == "lacks: in account of our own credentials, us-east-1: RebootInstances"
    far.script("GetCallerIdentity", Trouble.REFUSE, code="InvalidClientTokenId")
    assert re.search(r"^lacks: in account of our own .*: GetCallerIdentity .*InvalidClientTokenId", await said())


def test_a_page_of_something_in_between_is_no_answer(far: FarSide) -> None:
    rig = AwsRig(far)
    far.rewrite = dict.fromkeys(("DescribeInstances", "RebootInstances"), (b"<", b"<<"))
    with pytest.raises(Unreadable):
        rig.aws.state(rig.node, TAG)
    far.rewrite.pop("DescribeInstances")
    with pytest.raises(Unclear):
        rig.aws.do(Verb.REBOOT, rig.node, TAG)


def test_no_credentials_at_all_are_told(far: FarSide, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = AwsRig(far)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    aws = make("aws", {"regions": [REGION], "endpoint": far.url})
    with pytest.raises(NotAllowed, match="no AWS credentials"):
        aws.state(rig.node, TAG)


def test_an_unknown_region_is_told(far: FarSide) -> None:
    rig = AwsRig(far)
    [said] = make("aws", {"regions": ["mars-north-1"]}).missing_rights()
    assert "region mars-north-1 is unknown" in said
    elsewhere = rig.node.model_copy(update={"topology": {"region": "eu-west-1"}})
    for ask in (lambda: rig.aws.state(elsewhere, TAG), lambda: rig.aws.capabilities(elsewhere)):
        with pytest.raises(NotAllowed, match="`regions` doesn't name"):
            ask()


@pytest.mark.parametrize("wrong", [
    {}, {"regions": []}, {"regions": ["us-east-1"], "accounts": [{"id": "12"}]},
    {"regions": ["us-east-1"], "accounts": [{"id": "123456789012", "role": "arn:aws:iam::999999999999:role/x"}]},
    {"regions": ["us-east-1"], "reboots": "reboot"},
])  # fmt: skip
def test_wrong_options_are_told_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="provider aws: "):
        make("aws", wrong)


def test_a_dry_run_asks_and_changes_nothing(far: FarSide) -> None:
    rig = GroupRig(far, dry_run=True)
    for verb in (Verb.REBOOT, Verb.TERMINATE):
        assert "dry run" in refusal(rig, verb)
    alone = AwsRig(far, dry_run=True)
    for verb in (Verb.REQUEST, Verb.TERMINATE):
        assert "dry run" in refusal(alone, verb)
    assert alone.applied(Verb.REQUEST) == 0


def test_errors_of_the_network_say_whether_it_was_sent(far: FarSide, moto: str) -> None:
    rig = AwsRig(far, read_timeout_s=8.0)
    far.script("RebootInstances", Trouble.REFUSE, code="InternalError")
    with pytest.raises(Unclear):
        rig.aws.do(Verb.REBOOT, rig.node, TAG)
    rig.aws.state(rig.node, TAG)
    given_up = threading.Event()
    far.script("RebootInstances", lambda call, point: given_up.wait(60))
    with pytest.raises(Unclear):
        rig.aws.do(Verb.REBOOT, rig.node, TAG)
    given_up.set()
    gone = make("aws", {"regions": [REGION], "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(Unreadable):
        gone.state(rig.node, TAG)
    with pytest.raises(NotSent) as caught:
        gone.do(Verb.REBOOT, rig.node, TAG)
    assert not caught.value.final


def test_no_secret_leaves_in_an_error(far: FarSide) -> None:
    rig = AwsRig(far)
    far.script("RebootInstances", Trouble.REFUSE, code="UnauthorizedOperation")
    far.said = "You are not authorized. Encoded authorization failure message: q7H2secretsecretsecret"
    with pytest.raises(NotSent) as caught:
        rig.aws.do(Verb.REBOOT, rig.node, TAG)
    assert "not authorized" in str(caught.value)
    assert "q7H2" not in str(caught.value)


# -- evidence --------------------------------------------------------------------------------------------------


def test_console_and_status_are_evidence(far: FarSide) -> None:
    rig = AwsRig(far)
    far.impaired.add(rig.node.machine.id)
    assert isinstance(rig.aws, HasEvidence)
    found = dict(rig.aws.evidence(rig.node, TAG))
    assert json.loads(found["instance-status.json"])[0]["InstanceStatus"]["Status"] == "impaired"
    assert found["console.txt"]
    assert not far.effects


def test_a_hundred_who_wait_share_their_reads(far: FarSide) -> None:
    rig = AwsRig(far)
    with ThreadPoolExecutor(50) as pool:
        states = list(pool.map(lambda _: rig.aws.state(rig.node, TAG), range(100)))
    assert all(state.ready for state in states)
    assert far.count("DescribeInstances") < 60
