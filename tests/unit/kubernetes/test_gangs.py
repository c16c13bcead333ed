"""Who starts a gang anew, by which switch, or why nobody does."""

from __future__ import annotations

from typing import Any

import pytest

from activities.kubernetes.gangs import Left, Switch, comes_back, in_queue
from activities.kubernetes.owners import Root


def root(api: str, kind: str, **spec: Any) -> Root:
    return Root("team", kind, "llm", {"apiVersion": api, "kind": kind, "metadata": {"name": "llm"}, "spec": spec})


TOGETHER = {"template": {"spec": {"subdomain": "llm"}}}
VOLCANO = "batch.volcano.sh/v1alpha1"


@pytest.mark.parametrize(
    ("one", "plural", "patch"),
    [
        (root("batch/v1", "Job", **TOGETHER), "jobs", {"spec": {"suspend": True}}),
        (root("jobset.x-k8s.io/v1alpha2", "JobSet"), "jobsets", {"spec": {"suspend": True}}),
        (root("kubeflow.org/v1", "PyTorchJob"), "pytorchjobs", {"spec": {"runPolicy": {"suspend": True}}}),
        (root("ray.io/v1", "RayJob", shutdownAfterJobFinishes=True), "rayjobs", {"spec": {"suspend": True}}),
    ],
)
def test_what_has_a_switch_is_stopped_and_started_by_it(one: Root, plural: str, patch: dict[str, Any]) -> None:
    switch = comes_back(one, [])
    assert isinstance(switch, Switch)
    assert (switch.plural, switch.patch(on=True)) == (plural, patch)
    assert switch.stopped({**(one.thing or {}), **patch})
    assert not switch.stopped(one.thing or {})


def test_a_workload_of_kueue_is_switched_the_other_way_round() -> None:
    switch = in_queue({"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"namespace": "team", "name": "job-llm"}})
    assert isinstance(switch, Switch)
    assert switch.patch(on=True) == {"spec": {"active": False}}
    assert switch.patch(on=False) == {"spec": {"active": True}}


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Root("team", "Campaign", "llm"), "its owner must"),
        (root("batch/v1", "Job"), "its indexes work alone"),
        (root("batch/v1", "Job", **TOGETHER, backoffLimitPerIndex=1), "its indexes work alone"),
        (root("batch/v1", "Job", **TOGETHER, managedBy="kueue.x-k8s.io/multikueue"), "multikueue"),
        (root("batch/v1", "Job", **TOGETHER, suspend=True), "suspended by someone"),
        (root("kubeflow.org/v1", "PyTorchJob", elasticPolicy={"minReplicas": 1}), "elastic"),
        (root("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), "makes the whole group anew"),
        (
            root("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"restartPolicy": "None"}),
            "its owner must see to the rest",
        ),
        (root("ray.io/v1", "RayCluster"), "KubeRay makes another worker"),
        (root("ray.io/v1", "RayJob"), "KubeRay makes another worker"),
        (root(VOLCANO, "Job"), "its owner must restart it"),
        (
            root(VOLCANO, "Job", policies=[{"event": "PodEvicted", "action": "RestartJob"}]),
            "RestartJob, which counts as one of its retries",
        ),
        (root(VOLCANO, "Job", tasks=[{"policies": [{"events": ["PodEvicted"], "action": "AbortJob"}]}]), "AbortJob"),
    ],
)
def test_what_is_left_to_others_says_to_whom(one: Root, says: str) -> None:
    left = comes_back(one, [])
    assert isinstance(left, Left)
    assert says in left.why


def test_a_ray_cluster_that_loses_its_head_is_lost() -> None:
    head = {"metadata": {"labels": {"ray.io/node-type": "head"}}}
    left = comes_back(root("ray.io/v1", "RayCluster"), [head])
    assert isinstance(left, Left)
    assert "submit it again" in left.why
