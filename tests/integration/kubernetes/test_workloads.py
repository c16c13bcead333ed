"""From pods to the work that people mean, with the real definitions of the projects that make them.

No controller of theirs runs here: the tests write what it would write, which is what medevac reads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.kubernetes.client import Object, url
from activities.kubernetes.nodes import metadata
from activities.ports import ListsWork, Unreadable
from tests.control_plane.build import NotBuilt, definitions
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.site import Site, until

DEFINED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(site: Site, kind: str) -> tuple[str, str]:
    """The API version and path below which things of that kind live in this cluster."""
    try:
        text = definitions(kind).read_text()
    except NotBuilt as error:
        pytest.skip(str(error))
    site.admin._call("POST", DEFINED, {}, text, "application/yaml", 4)

    def served() -> Object | None:
        for one in site.admin.list(DEFINED):
            accepted = any(
                c["type"] == "Established" and c["status"] == "True"
                for c in one.get("status", {}).get("conditions") or ()
            )
            if one["spec"]["names"]["kind"] == kind and accepted:
                return one
        return None

    spec = until(f"{kind} is served", served)["spec"]
    version = next(v["name"] for v in spec["versions"] if v["storage"])
    api = ("apis", spec["group"], version)
    plural = spec["names"]["plural"]
    path = site.within(plural, api=api) if spec["scope"] == "Namespaced" else url(*api, plural)
    until(f"{kind} can be listed", lambda: _listed(site, path))
    return f"{spec['group']}/{version}", path


def _listed(site: Site, path: str) -> bool:
    try:
        return site.get(path) is not None
    except Unreadable:  # its storage is being made
        return False


def owned(thing: Object) -> Object:
    return {
        "apiVersion": thing["apiVersion"], "kind": thing["kind"], "name": metadata(thing)["name"],
        "uid": metadata(thing)["uid"], "controller": True,
    }  # fmt: skip


def containers() -> Object:
    return {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}


def job(site: Site, name: str, owner: Object | None = None, *, parallelism: int, **template: Any) -> Object:
    """A real one: its controller makes the pods."""
    body = site.pod_template(restartPolicy="Never", **{"labels": {}, **template})
    return site.create(site.within("jobs", api=("apis", "batch", "v1")), {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [owner] if owner else []},
        "spec": {
            "completionMode": "Indexed", "completions": parallelism, "parallelism": parallelism, "template": body,
        },
    })  # fmt: skip


def test_a_jobset_is_one_gang_over_its_jobs_and_nodes(site: Site, connect: Connect) -> None:
    version, path = define(site, "JobSet")
    replicated = {"name": "w", "replicas": 2, "template": {"spec": {"template": {"spec": containers()}}}}
    jobset = site.create(path, {
        "apiVersion": version, "kind": "JobSet", 
        "metadata": {"name": "llm", "annotations": {"medevac.dev/owner": "nlp"}},
        "spec": {"suspend": True, "replicatedJobs": [replicated]},
    })  # fmt: skip
    nodes = [site.add_node(), site.add_node()]
    tag = {"jobset.sigs.k8s.io/jobset-name": "llm"}
    for n, node in enumerate(nodes):
        job(site, f"llm-w-{n}", owned(jobset), parallelism=1, labels=tag, gpus=8, nodeName=node)
    site.running(2)
    cluster = connect()
    (work,) = cluster.workloads(nodes[0])
    assert (work.name, work.kind, work.owner) == (f"{site.run}/JobSet/llm", "JobSet", "nlp")
    assert (work.nodes, work.gpus) == (2, 16)
    assert work.gang is not None
    assert [other.gang for other in cluster.workloads(nodes[1])] == [work.gang]
    assert [pod.workload for pod in cluster.pods(nodes[0])] == [work.name]
    site.pod("alone", nodes[0], gpus=1)
    site.running(3)
    assert isinstance(cluster, ListsWork)
    every = cluster.all_workloads()
    for node in nodes:
        assert every[node] == cluster.workloads(node), "asked together, the same"
    assert len(every[nodes[0]]) == 2


BY = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def test_a_pytorchjob_is_ready_when_all_its_pods_say_so(site: Site, connect: Connect) -> None:
    version, path = define(site, "PyTorchJob")
    made = site.create(path, {
        "apiVersion": version, "kind": "PyTorchJob", "metadata": {"name": "sft"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": containers()}}}},
    })  # fmt: skip
    nodes = [site.add_node(), site.add_node()]
    tag = {"training.kubeflow.org/job-name": "sft"}
    for n, node in enumerate(nodes):
        site.pod(f"sft-worker-{n}", node, owner=owned(made), labels=tag, gpus=8)
    cluster = connect()

    def says(n: int, **words: str) -> None:
        notes = {f"medevac.dev/{key.replace('_', '-')}": value for key, value in words.items()}
        site.patch(site.within("pods", f"sft-worker-{n}"), {"metadata": {"annotations": notes}})

    says(0, ready_to_evict="true")
    says(1, ready_to_evict="true")
    assert not cluster.workloads(nodes[1])[0].ready_to_evict, "nobody has asked it"
    cluster.notice(nodes[0], BY)
    says(0, ready_to_evict="true", checkpointed_at="2026-05-04T10:00:00Z")
    (work,) = cluster.workloads(nodes[1])
    assert work.kind == "PyTorchJob"
    # One rank wrote the whole checkpoint; that it may go itself says nothing about the other.
    assert work.last_checkpoint == datetime(2026, 5, 4, 10, tzinfo=UTC)
    assert not work.ready_to_evict
    says(1, ready_to_evict=(BY - timedelta(hours=2)).isoformat())
    assert not cluster.workloads(nodes[1])[0].ready_to_evict, "that was another notice"
    says(1, ready_to_evict=BY.isoformat())
    assert cluster.workloads(nodes[1])[0].ready_to_evict
    assert isinstance(cluster, ListsWork)
    assert cluster.all_workloads()[nodes[0]][0].ready_to_evict


@pytest.mark.parametrize(("answer", "counts"), [(BY.isoformat(), True), ("true", False)], ids=["time", "bare yes"])
def test_a_workload_speaks_for_its_pods_by_the_notices_own_time(
    site: Site, connect: Connect, answer: str, counts: bool
) -> None:
    node = site.add_node()
    job(site, "many", parallelism=2)
    site.running(2)
    cluster = connect()
    cluster.notice(node, BY)
    note = {"metadata": {"annotations": {"medevac.dev/ready-to-evict": answer}}}
    site.patch(site.within("jobs", "many", api=("apis", "batch", "v1")), note)
    assert cluster.workloads(node)[0].ready_to_evict is counts, "nothing takes a `true` away from a workload"


@pytest.mark.parametrize("said", ["annotations", "labels"])
def test_the_owner_is_who_the_workload_says_or_its_pods_or_their_namespace(
    site: Site, connect: Connect, said: str
) -> None:
    node = site.add_node()
    set_of = {"kueue.x-k8s.io/pod-group-name": "eval"}
    site.pod("eval-0", node, labels=set_of)
    site.pod("eval-1", node, labels=set_of)
    group = connect()
    assert [work.owner for work in group.workloads(node)] == [site.run]
    site.patch(site.within("pods", "eval-1"), {"metadata": {said: {"medevac.dev/owner": "research"}}})
    (work,) = group.workloads(node)
    assert (work.kind, work.owner) == ("PodGroup", "research")
    site.set_of("Deployment", "web")
    site.running(3)
    site.patch(
        site.within("deployments", "web", api=("apis", "apps", "v1")),
        {"metadata": {said: {"medevac.dev/owner": "serving"}}},
    )
    (web,) = [work for work in connect().workloads(node) if work.kind == "Deployment"]
    assert web.owner == "serving"


def test_groups_of_a_leaderworkerset_die_apart(site: Site, connect: Connect) -> None:
    version, path = define(site, "LeaderWorkerSet")
    made = site.create(path, {
        "apiVersion": version, "kind": "LeaderWorkerSet", "metadata": {"name": "serve"},
        "spec": {
            "replicas": 2, "rolloutStrategy": {"type": "RollingUpdate"},
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": containers()}},
        },
    })  # fmt: skip
    node = site.add_node()
    for group in range(2):
        tags = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": str(group)}
        leader = site.pod(f"serve-{group}", node, owner=owned(made), labels=tags)
        # Workers belong to the leader pod, through a set of their own that the test leaves out.
        leader |= {"apiVersion": "v1", "kind": "Pod"}
        site.pod(f"serve-{group}-1", node, owner=owned(leader), labels=tags)
    cluster = connect()
    work = cluster.workloads(node)
    groups = {f"{site.run}/LeaderWorkerSet/serve/{group}" for group in range(2)}
    assert {one.name for one in work} == {pod.workload for pod in cluster.pods(node)} == groups
    assert len({one.gang for one in work}) == 2
    assert isinstance(cluster, ListsWork)
    assert cluster.all_workloads()[node] == work


def test_a_ray_cluster_is_one_gang(site: Site, connect: Connect) -> None:
    version, path = define(site, "RayCluster")
    made = site.create(path, {
        "apiVersion": version, "kind": "RayCluster", "metadata": {"name": "tune"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head"}]}}}},
    })  # fmt: skip
    node = site.add_node()
    for name in ("head", "worker"):
        site.pod(f"tune-{name}", node, owner=owned(made), labels={"ray.io/cluster": "tune"}, gpus=2)
    (work,) = connect().workloads(node)
    assert (work.name, work.gpus, work.nodes) == (f"{site.run}/RayCluster/tune", 4, 1)
    assert work.gang is not None


def test_an_indexed_job_is_a_gang_and_a_job_of_one_is_not(site: Site, connect: Connect) -> None:
    node = site.add_node()
    for name, parallelism in (("many", 2), ("one", 1)):
        job(site, name, parallelism=parallelism)
    site.running(3)
    gangs = {work.name.rpartition("/")[2]: work.gang is not None for work in connect().workloads(node)}
    assert gangs == {"many": True, "one": False}


def test_replicas_of_a_deployment_stand_alone(site: Site, connect: Connect) -> None:
    node = site.add_node()
    site.set_of("Deployment", "serve", replicas=2)
    site.running(2)
    cluster = connect()
    (work,) = cluster.workloads(node)
    assert (work.name, work.gang) == (f"{site.run}/Deployment/serve", None)
    first = metadata(site.pods()[0])["name"]
    note = {"medevac.dev/ready-to-evict": "true", "medevac.dev/checkpointed-at": "2026-05-04T10:00:00Z"}
    site.patch(site.within("pods", first), {"metadata": {"annotations": note}})
    (work,) = cluster.workloads(node)
    assert (work.ready_to_evict, work.last_checkpoint) == (False, None), "the other replica has said nothing"


def test_who_mounts_its_annotations_can_hear_the_notice(site: Site, connect: Connect) -> None:
    node = site.add_node()
    note = {"items": [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]}
    label = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    site.pod("own", node, volumes=[{"name": "podinfo", "downwardAPI": note}])
    site.pod("projected", node, volumes=[{"name": "podinfo", "projected": {"sources": [{"downwardAPI": note}]}}])
    site.pod("labels", node, volumes=[{"name": "podinfo", "downwardAPI": label}])
    site.pod("none", node)
    hears = {work.name.rpartition("/")[2]: work.hears_notice for work in connect().workloads(node)}
    assert hears == {"own": True, "projected": True, "labels": False, "none": False}


@pytest.mark.parametrize("said", ["2026-05-04T10:00:00", "tomorrow", "2999-01-01T00:00:00Z"])
def test_a_checkpoint_time_that_proves_nothing_is_none(site: Site, connect: Connect, said: str) -> None:
    node = site.add_node()
    site.pod("train", node, annotations={"medevac.dev/checkpointed-at": said})
    assert connect().workloads(node)[0].last_checkpoint is None


def test_an_unknown_owner_is_taken_by_its_name(site: Site, connect: Connect) -> None:
    node = site.add_node()
    owner = {"apiVersion": "example.com/v1", "kind": "Campaign", "name": "x", "uid": "u-1", "controller": True}
    site.pod("x-0", node, owner=owner)
    assert [work.name for work in connect().workloads(node)] == [f"{site.run}/Campaign/x"]
