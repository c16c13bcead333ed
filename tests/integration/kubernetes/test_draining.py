"""Evictions on a real API server, each refusal told by its cause; and who has to leave a node at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.kubernetes.cluster import KubernetesCluster
from activities.kubernetes.nodes import metadata, notes
from activities.ports import Eviction, Mark, NotSent, Pod
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect, Plane
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until

MERGE = "application/merge-patch+json"


def the(cluster: KubernetesCluster, node: str, name: str) -> Pod:
    return next(pod for pod in cluster.pods(node) if pod.name == name)


def test_two_budgets_are_both_named_and_refuse(site: Site, connect: Connect) -> None:
    """The API server answers 500 for ever: a person's matter, told as a budget's and not as a server's fault."""
    node = site.add_node()
    site.pod("train", node)
    for name in ("one", "two"):
        site.budget(name, {"app": "train"})
    cluster = connect()
    pod = the(cluster, node, "train")
    assert pod.budget == f"{site.run}/one, {site.run}/two"
    assert cluster.evict(pod, 30) is Eviction.BUDGET
    assert cluster.delete(pod, 30) is Eviction.EVICTED


def test_a_budget_that_is_still_processed_is_no_refusal(site: Site, connect: Connect, plane: Plane) -> None:
    node = site.add_node()
    site.pod("train", node)
    cluster = connect()
    pod = the(cluster, node, "train")
    if plane.started is None:
        pytest.skip("the controller manager of a cluster that isn't ours is not stopped")
    plane.started.halt("kube-controller-manager")
    try:
        site.create(site.within("poddisruptionbudgets", api=("apis", "policy", "v1")), {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "fresh"},
            "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "train"}}},
        })  # fmt: skip
        with pytest.raises(NotSent, match="still being processed") as wait:
            cluster.evict(pod, 30)
        assert wait.value.retry_after_s == 10.0
    finally:
        plane.started.restart("kube-controller-manager")
    until("its controller has counted, and lets it go", lambda: _evicted(cluster, pod))


def test_throttling_is_no_budget(site: Site, connect: Connect, proxy: Proxy) -> None:
    node = site.add_node()
    site.pod("train", node)
    cluster = connect()
    proxy.script("POST", "/eviction", Trouble.THROTTLE)
    with pytest.raises(NotSent) as wait:
        cluster.evict(the(cluster, node, "train"), 30)
    assert wait.value.retry_after_s == 7.0


@pytest.mark.parametrize("trouble", [Trouble.TIMEOUT_AFTER, Trouble.TIMEOUT_BEFORE])
def test_an_eviction_without_an_answer_is_looked_up(
    site: Site, connect: Connect, proxy: Proxy, trouble: Trouble
) -> None:
    node = site.add_node()
    site.pod("train", node, held=True)
    cluster = connect()
    pod = the(cluster, node, "train")
    proxy.script("POST", "/eviction", trouble)
    if trouble is Trouble.TIMEOUT_AFTER:
        assert cluster.evict(pod, 30) is Eviction.EVICTED
    else:
        with pytest.raises(NotSent):
            cluster.evict(pod, 30)
        assert not the(cluster, node, "train").terminating


def test_an_unready_pod_goes_where_its_budget_lets_it(site: Site, connect: Connect) -> None:
    """A pod that crashes holds up no drain where the budget's owner said `AlwaysAllow`."""
    node = site.add_node()
    site.pod("crashing", node)
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    site.patch(site.within("pods", "crashing", "status"), status, kind="application/strategic-merge-patch+json")
    site.budget("strict", {"app": "crashing"}, pods=0, minAvailable=1)
    cluster = connect()
    pod = the(cluster, node, "crashing")
    assert cluster.evict(pod, 30) is Eviction.BUDGET
    path = site.within("poddisruptionbudgets", "strict", api=("apis", "policy", "v1"))
    site.patch(path, {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
    until("the new policy lets it go", lambda: _evicted(cluster, pod))


def _evicted(cluster: KubernetesCluster, pod: Pod) -> bool:
    try:
        return cluster.evict(pod, 30) in (Eviction.EVICTED, Eviction.GONE)
    except NotSent:
        return False


def test_a_terminating_namespace_is_waited_for(site: Site, connect: Connect) -> None:
    node = site.add_node()
    site.pod("train", node, held=True)
    cluster = connect()
    pod = the(cluster, node, "train")
    site.send("DELETE", f"/api/v1/namespaces/{site.run}")
    until("the pod is being deleted", lambda: the(cluster, node, "train").terminating)
    assert cluster.evict(pod, 30) is Eviction.EVICTED
    site.release()
    assert cluster.evict(pod, 30) is Eviction.GONE


def test_a_policy_that_denies_eviction_is_told_and_retried(site: Site, connect: Connect) -> None:
    node = site.add_node()
    site.pod("train", node)
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": site.run}}
    site.create(f"{api}ies", {
        **group, "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.run}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
                }],
            },
            "validations": [{"expression": "false", "message": "ask the data team first"}],
        },
    })  # fmt: skip
    site.create(f"{api}ybindings", {
        **group, "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": site.run, "validationActions": ["Deny"]},
    })  # fmt: skip
    probe = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "nobody"}}
    try:
        until(
            "the policy is in force",
            lambda: site.send("POST", site.within("pods", "nobody", "eviction"), probe).code == 422,
        )
        cluster = connect()
        with pytest.raises(NotSent, match="data team") as refusal:
            cluster.evict(the(cluster, node, "train"), 30)
        assert not refusal.value.final
    finally:
        site.send("DELETE", f"{api}ybindings/{site.run}")
        site.send("DELETE", f"{api}ies/{site.run}")


def test_the_pods_own_grace_is_never_lengthened(site: Site, connect: Connect) -> None:
    node = site.add_node()
    for name in ("short", "long"):
        site.pod(name, node, held=True, terminationGracePeriodSeconds=5 if name == "short" else 600)
    cluster = connect()
    for name in ("short", "long"):
        cluster.evict(the(cluster, node, name), 30)
    graces = {metadata(pod)["name"]: metadata(pod)["deletionGracePeriodSeconds"] for pod in site.pods()}
    assert graces == {"short": 5, "long": 30}


def test_who_must_leave_and_in_which_turn(site: Site, connect: Connect) -> None:
    node = site.add_node()
    other = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "DaemonSet",
        "name": "theirs",
        "uid": "u-1",
        "controller": True,
    }
    site.set_of("DaemonSet", "agent", tolerates_all=True, gpus=0)
    site.set_of("DaemonSet", "picky", gpus=0)
    site.set_of("Deployment", "serve")
    site.pod("bare", node)
    site.pod("anywhere", node, tolerates_all=True)
    site.pod("theirs-1", node, owner=other, tolerates_all=True)
    site.pod("csi", node, volumes=[{"name": "s", "hostPath": {"path": "/var/lib/kubelet/plugins/csi.example.com"}}])
    site.pod("static", node, annotations={"kubernetes.io/config.mirror": "x"})
    site.pod("finished", node)
    site.patch(site.within("pods", "finished", "status"), {"status": {"phase": "Succeeded"}})
    until("all are there", lambda: len(site.pods()) == 9)
    until("all but one run", lambda: sum(pod["status"].get("phase") == "Running" for pod in site.pods()) == 8)
    found = {pod.name.partition("-")[0]: pod for pod in connect().pods(node)}
    turns = {name: (pod.tier, pod.tolerates_mark) for name, pod in found.items()}
    assert turns == {
        "agent": ("daemon", True),
        "picky": ("daemon", False),
        "serve": ("workload", False),
        "bare": ("workload", False),
        # A training pod that tolerates everything must leave all the same.
        "anywhere": ("workload", False),
        "theirs": ("daemon", True),
        "csi": ("storage", False),
        "static": ("daemon", True),
    }


def test_more_pods_than_one_page_are_all_seen(site: Site, connect: Connect) -> None:
    node = site.add_node()
    for n in range(7):
        site.pod(f"p{n}", node, gpus=0)
    assert len(connect(page=3).pods(node)) == 7


def test_a_notice_reaches_the_pods_that_will_go(site: Site, connect: Connect) -> None:
    node = site.add_node()
    site.set_of("DaemonSet", "agent", tolerates_all=True, gpus=0)
    site.pod("train", node)
    site.running(2)
    cluster = connect()
    by = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
    cluster.notice(node, by)
    told = {metadata(pod)["name"].partition("-")[0]: notes(pod).get("medevac.dev/evacuate-by") for pod in site.pods()}
    assert told == {"train": "2026-05-04T12:30:00Z", "agent": None}
    # A worse fault shortens it.
    cluster.notice(node, by - timedelta(minutes=10))
    told = {metadata(pod)["name"].partition("-")[0]: notes(pod).get("medevac.dev/evacuate-by") for pod in site.pods()}
    assert told["train"] == "2026-05-04T12:20:00Z"


def test_only_our_own_notice_is_taken_back(site: Site, connect: Connect) -> None:
    node = site.add_node()
    for name in ("ours", "theirs"):
        site.pod(name, node)
    site.running(2)
    cluster = connect()
    by = datetime.now(UTC) + timedelta(minutes=5)
    cluster.notice(node, by)
    for name, note in (("ours", {"ready-to-evict": "true"}), ("theirs", {"evacuate-by": "2026-05-04T12:30:00Z"})):
        said = {f"medevac.dev/{key}": value for key, value in note.items()}
        site.patch(site.within("pods", name), {"metadata": {"annotations": said}})
    cluster.mark(node, Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason=""))
    cluster.lift(node, "inc-1")
    left = {metadata(pod)["name"]: notes(pod) for pod in site.pods()}
    assert left == {"ours": {}, "theirs": {"medevac.dev/evacuate-by": "2026-05-04T12:30:00Z"}}


def test_a_pod_that_starts_after_the_mark_is_still_found(site: Site, connect: Connect) -> None:
    """Bound just before the cordon, seen just after the first listing: why a drain wants two empty ones."""
    node = site.add_node()
    cluster = connect()
    cluster.mark(node, Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason=""))
    assert cluster.pods(node) == []
    site.pod("late", node)
    assert [pod.name for pod in cluster.pods(node)] == ["late"]
