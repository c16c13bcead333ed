"""What went wrong for others, each as a test of its kind. Where the kind has its own file, it stands there:

* the signal lies, or comes twice, late, or for nobody: `tests/unit/faults`, `test_watcher`, `tests/acceptance`
* who owns a cordon, an uncordon in mid-drain, a policy that denies the mark, many writers: `test_marks`, `test_others`
* budgets of all sorts, throttling, webhooks, daemons of any group, grace, late pods: `test_draining`, `test_evacuation`
* a name that another pod or machine took over: the cluster contract, `test_identity`
* a cancelled or timed-out drain is none, volumes that never detach, pods that never end: `test_evacuation`
* a kubelet that is gone, fencing, "assumed to have rebooted", the taint that is left behind: `test_dead_node`
* gangs that lose one pod, that spend their restarts, that hang; queues that swap nodes: `test_gangs`
* an API server that is gone: `test_outage`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.kubernetes.nodes import metadata
from medevac.incident import Outcome
from medevac.policy.plan import Drain
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import MARK, RealHouse
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import run

STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[RealHouse]:
    built = RealHouse(tmp_path, connect())
    yield built
    built.close()


def test_pods_that_never_started_hold_up_no_drain_whatever_their_budget(site: Site, house: RealHouse) -> None:
    """An image that can't be pulled, under a budget that is never met: such nodes hung by the hundred."""
    name = site.add_node()
    body = site.pod_template(labels={"app": "pull"}, nodeName=name, annotations={"test.medevac.dev/stuck": "true"})
    body["metadata"]["name"] = "pull"
    site.create(site.within("pods"), {"apiVersion": "v1", "kind": "Pod", **body})
    site.budget("strict", {"app": "pull"}, pods=0, minAvailable=1)
    node = house.marked(name)
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 120, 1), start_to_close_s=400, whole_s=400)
    assert result.outcome is Outcome.DONE, result
    assert site.pods() == []


def test_a_service_that_crashes_under_its_budget_is_blocked_by_name_and_the_node_stays_out(
    site: Site, house: RealHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas crash, so that the budget is never met. It ends, with whose it is; a bad node isn't given back."""
    name = site.add_node()
    for n in range(2):
        site.pod(f"dns-{n}", name, labels={"app": "dns"})
        status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        site.patch(site.within("pods", f"dns-{n}", "status"), status, kind=STRATEGIC)
    site.budget("dns", {"app": "dns"}, pods=0, maxUnavailable="25%")
    node = house.marked(name)
    house.ends_after_an_eviction(monkeypatch)
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 240, 1), start_to_close_s=400, whole_s=400)
    assert result.outcome is Outcome.BLOCKED, result
    assert f"{site.run}/dns" in result.who
    assert not any("deletionTimestamp" in metadata(pod) for pod in site.pods())
    after = house.read(name)
    assert (after.schedulable, after.marked_by) == (False, MARK.incident)


def test_a_mark_alone_ends_no_pod(site: Site, house: RealHouse) -> None:
    """A taint with NoExecute would, past budgets and grace. Ours keeps new work away and nothing else."""
    name = site.add_node()
    site.pod("train", name)
    house.cluster.mark(name, MARK)
    effects = {t["key"]: t["effect"] for t in site.node(name)["spec"]["taints"]}
    until("Kubernetes has added its own taint", lambda: len(site.node(name)["spec"]["taints"]) >= 2)
    assert effects["medevac.dev/unhealthy"] == "NoSchedule"
    assert {t["effect"] for t in site.node(name)["spec"]["taints"]} == {"NoSchedule"}
    assert ["deletionTimestamp" in metadata(pod) for pod in site.pods()] == [False]


def test_what_is_over_and_what_is_suspended_counts_for_nothing(site: Site, house: RealHouse) -> None:
    name = site.add_node()
    site.pod("done", name)
    site.patch(site.within("pods", "done", "status"), {"status": {"phase": "Succeeded"}})
    template = site.pod_template(labels={}, restartPolicy="Never")
    site.create(site.within("jobs", api=("apis", "batch", "v1")), {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "later"},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template},
    })  # fmt: skip
    node = house.marked(name)
    assert house.cluster.workloads(name) == []
    result = run(house.drains.evacuate, house.request(node, Drain.JOB_END, 120, 1), start_to_close_s=400, whole_s=400)
    assert result.outcome is Outcome.ALREADY, result
    assert [metadata(pod)["name"] for pod in site.pods()] == ["done"]


def test_a_drain_never_follows_a_pod_to_another_node(site: Site, house: RealHouse, proxy: Proxy) -> None:
    """The successor of a StatefulSet's pod has its name: it is another pod, somewhere else, and runs on."""
    first, second = site.add_node(), site.add_node()
    site.set_of("StatefulSet", "db", replicas=1)
    (pod,) = site.running(1)
    here = str(pod["spec"]["nodeName"])
    there = second if here == first else first
    node = house.marked(here)
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 120, 5), start_to_close_s=400, whole_s=400)
    assert result.outcome is Outcome.DONE, result
    (successor,) = site.running(1)
    assert metadata(successor)["name"] == metadata(pod)["name"]
    assert successor["spec"]["nodeName"] == there
    assert len([call for call in proxy.calls if "/eviction" in call.path]) == 1


def test_data_on_the_nodes_own_disks_is_seen_before_the_machine_goes(site: Site, connect: Connect) -> None:
    """Instance stores that were lost with a replaced machine, because nobody had asked."""
    name = site.add_node()
    own = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
    site.create("/api/v1/persistentvolumes", {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": site.run},
        "spec": {
            **own, "local": {"path": "/mnt/nvme0"}, "claimRef": {"namespace": site.run, "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}},
        },
    })  # fmt: skip
    volumes: list[dict[str, object]] = [
        {"name": "raid", "hostPath": {"path": "/raid/scratch"}},
        {"name": "weka", "hostPath": {"path": "/mnt/weka/team"}},
        {"name": "shm", "hostPath": {"path": "/dev/shm"}},  # noqa: S108 - what pods mount
        {"name": "models", "hostPath": {"path": "/models"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    mounts = [{"name": v["name"], "mountPath": f"/{v['name']}", "readOnly": v["name"] == "models"} for v in volumes]
    site.pod("train", name, volumes=volumes, containers=[{"name": "main", "image": "none", "volumeMounts": mounts}])
    try:
        assert connect(shared_paths=["/mnt/weka"]).local_data(name) == (
            "host path /raid/scratch",
            f"local volume {site.run} of {site.run}/data",
        )
    finally:
        site.send("DELETE", f"/api/v1/persistentvolumes/{site.run}")
