"""The provider contract on what manages machines in Kubernetes, with the real definitions where they can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.kubernetes.client import MERGE
from activities.kubernetes.nodes import labels, metadata, notes
from activities.ports import NotAllowed, NotSent, Verb
from activities.providers.cluster_managed.provider import make
from activities.registry import ConfigurationError
from medevac.fleet.node import Capability
from tests.contracts.provider import TAG, ProviderContract, ReplacingContract
from tests.contracts.rigs import ProviderRig, Trouble
from tests.control_plane.processes import write_kubeconfig
from tests.integration.kubernetes.conftest import Plane
from tests.integration.kubernetes.managed_rigs import (
    ClusterApiRig,
    ExternalRig,
    KarpenterRig,
    ManagedRig,
    Metal3Rig,
    NvSentinelRig,
    define_own,
)
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site
from tests.integration.kubernetes.test_workloads import define

Opens = Callable[..., Any]


@pytest.fixture
def opens(
    plane: Plane, site: Site, proxy: Proxy, allowed: Callable[[str], None], tmp_path: Path
) -> Iterator[Callable[..., ManagedRig]]:
    """Under the account and the rights that are shipped."""
    allowed("managed")
    made: list[ManagedRig] = []

    def open_rig(kind: type[ManagedRig], **options: Any) -> ManagedRig:
        if kind is KarpenterRig:
            define(site, "NodeClaim")
            define(site, "NodePool")
        elif kind is ClusterApiRig:
            define(site, "Machine")
            define(site, "MachineSet")
        elif kind is Metal3Rig:
            define_own(site, "metal3.io", "v1alpha1", "BareMetalHost", scope="Namespaced")
        elif kind is ExternalRig:
            define_own(site, "nvsentinel.nvidia.com", "v1", "ExternalRemediationRequest", scope="Cluster")
        else:
            for of in ("RebootNode", "TerminateNode"):
                define_own(
                    site, "janitor.dgxc.nvidia.com", "v1alpha1", of, scope="Cluster", required=("force", "nodeName")
                )
        kubeconfig = tmp_path / "managed.kubeconfig"
        write_kubeconfig(kubeconfig, site.token("medevac-evict"), proxy.url, plane.certificate)
        made.append(kind(site, proxy, kubeconfig, **options))
        return made[-1]

    yield open_rig
    for rig in made:
        if isinstance(rig, KarpenterRig):
            rig.close()
        rig.managed.close()


class TestKarpenter(ReplacingContract):
    """`activities.providers.cluster_managed`"""

    can = frozenset({Verb.REQUEST, Verb.TERMINATE})

    @pytest.fixture
    def rig(self, opens: Opens) -> ProviderRig:
        rig: ProviderRig = opens(KarpenterRig)
        return rig


class TestClusterApi(ProviderContract):
    can = frozenset({Verb.TERMINATE})

    @pytest.fixture
    def rig(self, opens: Opens) -> ProviderRig:
        rig: ProviderRig = opens(ClusterApiRig)
        return rig


class TestMetal3(ProviderContract):
    can = frozenset({Verb.REBOOT})

    @pytest.fixture
    def rig(self, opens: Opens) -> ProviderRig:
        rig: ProviderRig = opens(Metal3Rig)
        return rig

    def test_a_second_reboot_is_a_second_effect(self, rig: ProviderRig, reboot: Verb) -> None:
        """Once the first was carried out; until then they are one."""
        rig.provider.do(reboot, rig.node, TAG)
        rig.provider.do(reboot, rig.node, TAG)
        rig.pass_time()
        assert (rig.calls(reboot), rig.applied(reboot)) == (2, 1)
        rig.provider.do(reboot, rig.node, TAG)
        rig.pass_time()
        assert rig.applied(reboot) == 2


class TestNvSentinel(ProviderContract):
    can = frozenset({Verb.REBOOT, Verb.TERMINATE})

    @pytest.fixture
    def rig(self, opens: Opens) -> ProviderRig:
        rig: ProviderRig = opens(NvSentinelRig)
        return rig


class TestExternal(ProviderContract):
    can = frozenset({Verb.REBOOT, Verb.TERMINATE})

    @pytest.fixture
    def rig(self, opens: Opens) -> ProviderRig:
        rig: ProviderRig = opens(ExternalRig)
        return rig


# -- Karpenter -------------------------------------------------------------------------------------------------


def test_a_successor_is_as_its_pool_has_it_now_and_of_the_old_one_s_type(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    rig.provider.do(Verb.REQUEST, rig.node, TAG)
    [made] = [claim for claim in rig.claims() if "medevac.dev/incident" in notes(claim)]
    assert labels(made) == {"karpenter.sh/nodepool": rig.pool, "team": "llm"}
    assert notes(made)["karpenter.sh/nodepool-hash"] == "4711"
    assert metadata(made)["ownerReferences"][0]["name"] == rig.pool
    wanted = {one["key"]: one["values"] for one in made["spec"]["requirements"]}
    assert wanted == {"node.kubernetes.io/instance-type": ["p5.48xlarge"], "karpenter.sh/nodepool": [rig.pool]}
    assert made["spec"]["startupTaints"] == [{"key": "new", "effect": "NoSchedule"}]
    assert made["spec"]["resources"] == {"requests": {"nvidia.com/gpu": "8"}}


def test_a_pool_at_its_limit_has_no_room_for_a_successor(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    pool = f"{rig.POOLS}/{rig.pool}"
    rig.site.must(rig.site.send("PATCH", pool, {"spec": {"limits": {"nvidia.com/gpu": "8"}}}, MERGE))
    rig.status(pool, {"resources": {"nvidia.com/gpu": "8"}})
    with pytest.raises(NotSent, match="no capacity: NodePool") as refused:
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
    assert refused.value.final
    assert rig.billed() == 0


def test_a_successor_that_no_capacity_is_there_for_is_told_at_once(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    rig.provider.do(Verb.REQUEST, rig.node, TAG)
    [made] = [claim for claim in rig.claims() if "medevac.dev/incident" in notes(claim)]
    rig.status(f"{rig.CLAIMS}/{metadata(made)['name']}", {"conditions": [{
        "type": "Launched", "status": "False", "reason": "InsufficientCapacityError", "message": "no p5 in eu-west-1",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})  # fmt: skip
    with pytest.raises(NotSent, match="no p5 in eu-west-1") as hopeless:
        rig.managed.proceed(Verb.REQUEST, rig.node, TAG)
    assert hopeless.value.final


def test_a_machine_is_followed_to_its_end_after_its_node_is_gone(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    rig.provider.do(Verb.TERMINATE, rig.node, TAG)
    nameless = rig.node.model_copy(update={"owner": "", "labels": {}})
    assert rig.provider.state(nameless, TAG).exists
    rig.pass_time()
    rig.managed._api._listed.drop(rig.CLAIMS)
    assert not rig.provider.state(nameless, TAG).exists


# -- Cluster API -----------------------------------------------------------------------------------------------


def test_a_machine_that_nobody_would_make_anew_is_not_deleted(opens: Opens) -> None:
    rig: ClusterApiRig = opens(ClusterApiRig)
    alone = rig.machine(f"{rig.site.run}-alone", None)
    with pytest.raises(NotSent, match="no owner that would make another") as refused:
        rig.provider.do(Verb.TERMINATE, alone, TAG)
    assert refused.value.final
    assert rig.calls(Verb.TERMINATE) == 0


@pytest.mark.parametrize(
    ("note", "said"),
    [("cluster.x-k8s.io/paused", "paused"), ("cluster.x-k8s.io/delete-machine", "as cluster-autoscaler does")],
)
def test_a_machine_that_others_hold_is_left_to_them(opens: Opens, note: str, said: str) -> None:
    rig: ClusterApiRig = opens(ClusterApiRig)
    path = rig.path(rig.names[rig.node.machine.id])
    rig.site.must(rig.site.send("PATCH", path, {"metadata": {"annotations": {note: "true"}}}, MERGE))
    with pytest.raises(NotSent, match=said) as refused:
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
    assert refused.value.final


def test_its_owner_may_be_asked_to_remediate_it(opens: Opens) -> None:
    rig: ClusterApiRig = opens(ClusterApiRig, cluster_api="remediate")
    said = rig.provider.do(Verb.TERMINATE, rig.node, TAG)
    assert said == f"{rig.names[rig.node.machine.id]} is marked for MachineSet train to remediate"
    machine = rig.site.get(rig.path(rig.names[rig.node.machine.id]))
    assert machine is not None
    assert "cluster.x-k8s.io/remediate-machine" in notes(machine)
    assert "marked already" in str(rig.provider.do(Verb.TERMINATE, rig.node, TAG))


# -- Metal3, NVSentinel ----------------------------------------------------------------------------------------


def test_a_host_that_nobody_hears_is_rebooted_hard(opens: Opens) -> None:
    rig: Metal3Rig = opens(Metal3Rig)
    assert rig.provider.do(Verb.REBOOT, rig.node.model_copy(update={"reachable": False}), TAG) == (
        "reboot.metal3.io is set, hard"
    )
    name = rig.node.machine.id.split("/")[1]
    rig.site.must(rig.site.send("PATCH", rig.path(name), {"spec": {"online": False}}, MERGE))
    with pytest.raises(NotSent, match="somebody else turned it off"):
        rig.provider.do(Verb.REBOOT, rig.node, TAG)


def test_what_nvsentinel_gives_up_is_told(opens: Opens) -> None:
    rig: NvSentinelRig = opens(NvSentinelRig)
    rig.provider.do(Verb.TERMINATE, rig.node, TAG)
    assert rig.provider.do(Verb.TERMINATE, rig.node, TAG) == "terminatenodes: made before"
    [made] = [
        one for one in rig.site.admin.list(f"{rig.API}/terminatenodes") if one["spec"]["nodeName"] == rig.node.name
    ]
    assert made["spec"] == {"nodeName": rig.node.name, "force": False}
    rig.status(f"{rig.API}/terminatenodes/{metadata(made)['name']}", {
        "completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "NodeTerminated", "status": "False", "reason": "Timeout", "message": "took too long"}],
    })  # fmt: skip
    with pytest.raises(NotSent, match="took too long"):
        rig.managed.proceed(Verb.TERMINATE, rig.node, TAG)


def test_what_is_asked_of_somebody_outside_says_what_is_wanted(opens: Opens) -> None:
    rig: ExternalRig = opens(ExternalRig)
    assert rig.provider.do(Verb.TERMINATE, rig.node, TAG) == "externalremediationrequests: made"
    assert rig.provider.do(Verb.TERMINATE, rig.node, TAG) == "externalremediationrequests: made before"
    every = rig.site.admin.list(f"{rig.API}/externalremediationrequests")
    [made] = [one for one in every if one["spec"]["healthEvent"]["nodeName"] == rig.node.name]
    assert made["spec"]["healthEvent"]["recommendedAction"] == "REPLACE_VM"
    failed = {"type": "ExternalRemediationComplete", "status": "False", "reason": "No", "message": "no spare"}
    rig.status(f"{rig.API}/externalremediationrequests/{metadata(made)['name']}", {"conditions": [failed]})
    with pytest.raises(NotSent, match="given up: no spare") as hopeless:
        rig.managed.proceed(Verb.TERMINATE, rig.node, TAG)
    assert hopeless.value.final


# -- the cloud beside ------------------------------------------------------------------------------------------


def test_what_its_owner_cannot_the_cloud_beside_may(opens: Opens, tmp_path: Path) -> None:
    program = tmp_path / "cloud"
    state = '{"exists": true, "power": "on", "ready": true, "image_mark": "v1"}'
    pieces = '{"pieces": {"console.txt": "hm"}}'
    says = f"case $1 in state) echo '{state}';; evidence) echo '{pieces}';; esac"
    program.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/ran\n{says}\n")
    program.chmod(0o700)
    names = ("state", "reboot", "terminate", "evidence")
    cloud = {"kind": "command", "options": {"commands": {name: [str(program), name] for name in names}}}
    rig: KarpenterRig = opens(KarpenterRig, beside=cloud)
    can = {Capability.REPLACE, Capability.TERMINATE, Capability.REBOOT, Capability.POWER_STATE, Capability.SERIAL}
    assert rig.provider.capabilities(rig.node) == can
    found = rig.provider.state(rig.node, TAG)
    assert (found.exists, found.ready, found.power, found.image_mark) == (True, True, "on", "v1")
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert list(rig.managed.evidence(rig.node, TAG)) == [("console.txt", b"hm")]
    rig.provider.do(Verb.TERMINATE, rig.node, TAG)
    assert (tmp_path / "ran").read_text().split() == ["state", "reboot", "evidence"], "ended by its owner alone"
    assert rig.calls(Verb.TERMINATE) == 1
    rig.pass_time()
    assert not rig.provider.state(rig.node, TAG).exists, "whatever the cloud says"


def test_a_provider_beside_that_is_none_is_said(plane: Plane) -> None:
    at = str(plane.kubeconfig)
    with pytest.raises(ConfigurationError, match="beside: no kind is called 'cluster_managed'; there are: aws"):
        make("managed", {"owners": ["karpenter"], "beside": {"kind": "cluster_managed"}, "kubeconfig": at})


# -- all -------------------------------------------------------------------------------------------------------


def test_what_the_autoscaler_takes_away_is_left_to_it(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    going = rig.node.model_copy(update={"foreign_cordon": "cluster-autoscaler"})
    assert rig.provider.capabilities(going) == frozenset()
    with pytest.raises(NotSent, match="cluster-autoscaler is taking it away") as refused:
        rig.provider.do(Verb.TERMINATE, going, TAG)
    assert refused.value.final


@pytest.mark.parametrize("kind", [KarpenterRig, ClusterApiRig, Metal3Rig, NvSentinelRig, ExternalRig])
def test_a_dry_run_writes_nothing(opens: Opens, kind: type[ManagedRig]) -> None:
    rig: ManagedRig = opens(kind, dry_run=True)
    for verb in rig.calls_of:
        with pytest.raises(NotSent, match="dry run, nothing was done") as refused:
            rig.provider.do(verb, rig.node, TAG)
        assert refused.value.final
    assert [call for call in rig.proxy.calls if call.method != "GET"] == []


@pytest.mark.parametrize("kind", [KarpenterRig, ClusterApiRig, Metal3Rig, NvSentinelRig, ExternalRig])
def test_the_shipped_rights_are_enough_and_without_them_it_is_said(
    opens: Opens, plane: Plane, kind: type[ManagedRig], tmp_path: Path
) -> None:
    rig: ManagedRig = opens(kind)
    assert rig.managed.missing_rights() == []
    kubeconfig = tmp_path / "observe.kubeconfig"
    write_kubeconfig(kubeconfig, rig.site.token("medevac-observe"), rig.proxy.url, plane.certificate)
    poor = make("managed", {"owners": [kind.owner], "kubeconfig": str(kubeconfig)})
    assert poor.missing_rights() != []
    if kind not in (NvSentinelRig, ExternalRig):
        with pytest.raises(NotAllowed):
            poor.state(rig.node, TAG)
    with pytest.raises(NotSent) as refused:
        poor.do(next(iter(rig.calls_of)), rig.node, TAG)
    assert refused.value.final
    poor.close()


def test_an_owner_whose_kind_is_not_served_is_said(opens: Opens) -> None:
    rig: KarpenterRig = opens(KarpenterRig)
    rig.managed._api._versions.clear()
    rig.proxy.script("GET", r"/apis/karpenter\.sh$", Trouble.REFUSE)
    rig.proxy.refusal = 404
    with pytest.raises(NotAllowed, match="isn't served by this cluster"):
        rig.provider.state(rig.node, TAG)


def test_what_cannot_be_is_said_when_it_is_configured(tmp_path: Path) -> None:
    for given in (
        {"owners": []},
        {"owners": ["magic"]},
        {"owners": ["karpenter"], "kubeconfig": str(tmp_path / "none")},
    ):
        with pytest.raises(ConfigurationError, match="provider managed"):
            make("managed", given)
