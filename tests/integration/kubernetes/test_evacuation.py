"""The whole drain on a real API server: how it ends, and that it ends well through everything that goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.kubernetes.nodes import metadata, notes
from activities.ports import Eviction, Pod
from medevac.incident import Outcome, StepResult
from medevac.policy.plan import Drain
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import MARK, RealHouse
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import environment, run

LONG = {"start_to_close_s": 500.0, "whole_s": 500.0}
"""Of an attempt: longer than whatever it waits for."""


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[RealHouse]:
    built = RealHouse(tmp_path, connect())
    yield built
    built.close()


def after_each_eviction(house: RealHouse, patch: pytest.MonkeyPatch, then: Callable[[], object]) -> list[str]:
    """Pods for which eviction was called; something happens right after each call."""
    evict, called = house.cluster.evict, list[str]()

    def watched(pod: Pod, grace_s: float) -> Eviction:
        answer = evict(pod, grace_s)
        called.append(pod.name)
        then()
        return answer

    patch.setattr(house.cluster, "evict", watched)
    patch.setattr("activities.precondition.FRESH_S", 0.0)
    patch.setattr("activities.storage.fences.FRESH_S", 0.0)
    return called


def names(site: Site) -> set[str]:
    return {str(metadata(pod)["name"]) for pod in site.pods()}


def test_a_node_is_emptied_tier_by_tier_and_no_pod_twice(site: Site, house: RealHouse, proxy: Proxy) -> None:
    name = site.add_node()
    site.set_of("DaemonSet", "agent", tolerates_all=True, gpus=0)
    csi = [{"name": "s", "hostPath": {"path": "/var/lib/kubelet/plugins/x"}}]
    site.pod("storage", name, gpus=0, volumes=csi)
    for n in range(3):
        site.pod(f"train-{n}", name)
    until("the daemon runs", lambda: len(site.running(5)))
    node = house.marked(name)
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 240), **LONG)
    assert result.outcome is Outcome.DONE, result
    assert {left.partition("-")[0] for left in names(site)} == {"agent"}
    evicted = [call.path.rsplit("/", 2)[1] for call in proxy.calls if "/eviction" in call.path and call.status == 201]
    assert sorted(evicted[:3]) == ["train-0", "train-1", "train-2"]
    assert evicted[3:] == ["storage"]


def test_an_attempt_after_a_death_goes_on(site: Site, house: RealHouse, proxy: Proxy) -> None:
    name = site.add_node()
    for n in range(3):
        site.pod(f"train-{n}", name, held=n == 0)
    node = house.marked(name)
    first = next(pod for pod in house.cluster.pods(name) if pod.name == "train-0")
    house.cluster.evict(first, 5)  # then the worker died
    threading.Timer(1.0, site.release).start()
    request = house.request(node, Drain.NOW, 240)
    assert run(house.drains.evacuate, request, attempt=2, ago_s=1, **LONG).outcome is Outcome.DONE
    evictions = [call.path for call in proxy.calls if "/eviction" in call.path]
    assert len(evictions) == len(set(evictions)) == 3


def test_a_budget_in_the_way_is_named_with_its_owner(
    site: Site, house: RealHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.add_node()
    site.pod("serve", name)
    path = site.within("poddisruptionbudgets", "never", api=("apis", "policy", "v1"))
    site.budget("never", {"app": "serve"})
    site.patch(path, {"metadata": {"labels": {"app.kubernetes.io/name": "search"}}})
    node = house.marked(name)
    house.ends_after_an_eviction(monkeypatch)
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 240, 1), **LONG)
    assert result.outcome is Outcome.BLOCKED
    assert result.who == f"budget {site.run}/never of search"
    assert names(site) == {"serve"}
    assert "medevac.dev/evacuate-by" not in notes(site.pods()[0]), "nobody wants it to go any more"


def test_bypassing_a_budget_is_the_plans_word_and_waits_for_the_deadline(site: Site, house: RealHouse) -> None:
    name = site.add_node()
    site.pod("serve", name)
    site.budget("never", {"app": "serve"})
    node = house.marked(name)
    before = time.monotonic()
    request = house.request(node, Drain.SOON, 10, 60, budget_bypass=True)
    assert run(house.drains.evacuate, request, **LONG).outcome is Outcome.DONE
    assert time.monotonic() - before >= 10
    assert names(site) == set()


def test_jobs_get_notice_and_go_as_soon_as_they_say_so(site: Site, house: RealHouse) -> None:
    name = site.add_node()
    site.pod("train", name)
    node = house.marked(name)

    def answer() -> None:
        until("the notice", lambda: "medevac.dev/evacuate-by" in notes(site.pods()[0]))
        note = {"medevac.dev/ready-to-evict": "true"}
        site.patch(site.within("pods", "train"), {"metadata": {"annotations": note}})

    job = threading.Thread(target=answer)
    job.start()
    began = time.monotonic()
    request = house.request(node, Drain.JOB_END, 600)
    assert run(house.drains.evacuate, request, start_to_close_s=900, whole_s=900).outcome is Outcome.DONE
    assert time.monotonic() - began < 300, "the job's word was waited for, not the deadline"
    job.join()


def test_pods_that_never_end_time_out_and_are_named(
    site: Site, house: RealHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.add_node()
    site.pod("stuck", name, held=True)
    node = house.marked(name)
    house.ends_after_an_eviction(monkeypatch)
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 240, 1), **LONG)
    assert result.outcome is Outcome.TIMED_OUT
    assert f"{site.run}/stuck" in result.reason


def test_volumes_must_be_detached_but_not_those_of_daemons_that_stay(site: Site, house: RealHouse) -> None:
    name = site.add_node()
    for claim in ("data", "kept"):
        site.create("/api/v1/persistentvolumes", {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{site.run}-{claim}"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "csi.example.com", "volumeHandle": claim},
                "claimRef": {"namespace": site.run, "name": claim},
            },
        })  # fmt: skip
        site.create("/apis/storage.k8s.io/v1/volumeattachments", {
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"{site.run}-{claim}"},
            "spec": {
                "attacher": "csi.example.com", "nodeName": name,
                "source": {"persistentVolumeName": f"{site.run}-{claim}"},
            },
        })  # fmt: skip
    daemon = {"apiVersion": "apps.kruise.io/v1", "kind": "DaemonSet", "name": "d", "uid": "u-1", "controller": True}
    for claim, owner in (("data", None), ("kept", daemon)):
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
        site.pod(f"uses-{claim}", name, owner=owner, tolerates_all=owner is not None, volumes=[volume])
    node = house.marked(name)
    (gone,) = (pod for pod in house.cluster.pods(name) if pod.name == "uses-data")
    house.cluster.evict(gone, 1)
    until("its pod is gone", lambda: names(site) == {"uses-kept"})
    try:
        result = run(house.drains.evacuate, house.request(node, Drain.NOW, 2, 1), **LONG)
        assert (result.outcome, result.reason) == (
            Outcome.TIMED_OUT,
            f"volumes are still attached: {site.run}-data",
        )
        site.must(site.send("DELETE", f"/apis/storage.k8s.io/v1/volumeattachments/{site.run}-data"))
        result = run(house.drains.evacuate, house.request(node, Drain.NOW, 60, 1), **LONG)
        assert result.outcome is Outcome.ALREADY
    finally:
        for claim in ("data", "kept"):
            site.send("DELETE", f"/apis/storage.k8s.io/v1/volumeattachments/{site.run}-{claim}")
            site.send("DELETE", f"/api/v1/persistentvolumes/{site.run}-{claim}")


def test_a_freeze_stops_it_between_two_evictions(site: Site, house: RealHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    name = site.add_node()
    for n in range(3):
        site.pod(f"train-{n}", name, held=True)
    node = house.marked(name)
    called = after_each_eviction(house, monkeypatch, lambda: house.fences.freeze("all", "ada", "wait"))
    with pytest.raises(ApplicationError, match="frozen"):
        run(house.drains.evacuate, house.request(node, Drain.NOW, 240), **LONG)
    assert len(called) == 1
    assert sum("deletionTimestamp" in metadata(pod) for pod in site.pods()) == 1


def test_an_uncordon_in_mid_drain_is_a_veto(site: Site, house: RealHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    name = site.add_node()
    for n in range(3):
        site.pod(f"train-{n}", name)
    node = house.marked(name)
    called = after_each_eviction(house, monkeypatch, lambda: site.cordon(name, "kubectl", on=False))
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 240), **LONG)
    assert (result.outcome, len(called)) == (Outcome.REFUSED, 1)
    assert "uncordoned" in result.reason


@pytest.mark.parametrize("what", ["node", "provider id", "boot"])
def test_another_machine_under_the_name_is_never_drained(site: Site, house: RealHouse, what: str) -> None:
    name = site.add_node()
    node, known = house.marked(name), site.node(name)["spec"]["providerID"]
    if what == "boot":
        info = site.node(name)["status"]["nodeInfo"] | {"bootID": "another"}
        kind = "application/strategic-merge-patch+json"
        site.patch(site.node_path(name, "status"), {"status": {"nodeInfo": info}}, kind=kind)
    else:
        site.must(site.send("DELETE", site.node_path(name)))
        site.add_node(name, providerID=known if what == "node" else f"{known}x")
        house.cluster.mark(name, MARK)
    site.pod("new-work", name, tolerations=[])
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 60), **LONG)
    assert result.outcome is Outcome.REFUSED
    assert "in the plan" in result.reason
    assert names(site) == {"new-work"}


def test_a_cancelled_drain_says_so(site: Site, house: RealHouse) -> None:
    name = site.add_node()
    site.pod("train", name)
    node = house.marked(name)
    env = environment(start_to_close_s=900, whole_s=900)
    results: list[StepResult] = []
    request = house.request(node, Drain.JOB_END, 600)
    drain = threading.Thread(target=lambda: results.append(env.run(house.drains.evacuate, request)))
    drain.start()
    until("the notice", lambda: "medevac.dev/evacuate-by" in notes(site.pods()[0]))
    env.cancel()
    drain.join(240)
    assert [result.outcome for result in results] == [Outcome.CANCELLED]
    assert names(site) == {"train"}
    assert "medevac.dev/evacuate-by" not in notes(site.pods()[0])


def test_throttling_delays_a_drain_and_is_never_called_a_budget(site: Site, house: RealHouse, proxy: Proxy) -> None:
    name = site.add_node()
    site.pod("train", name)
    node = house.marked(name)
    proxy.script("POST", "/eviction", Trouble.THROTTLE)
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 300), start_to_close_s=600, whole_s=600)
    assert result.outcome is Outcome.DONE
