"""Gangs on a real API server, with the real definitions of their kinds: they come back whole, or someone is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.kubernetes.client import Object
from activities.kubernetes.nodes import labels, metadata, notes
from activities.ports import Requeue
from medevac.incident import Outcome, StepResult
from medevac.policy.plan import Drain
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.gangs import KINDS, Gang
from tests.integration.kubernetes.house import INCIDENT, MARK, RealHouse
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until
from tests.integration.kubernetes.test_workloads import containers, define, job, owned
from tests.unit.activities.house import run

Allow = Callable[[str], None]
JOBS = ("apis", "batch", "v1")
LONG = {"start_to_close_s": 600.0, "whole_s": 600.0}
"""Of an attempt: longer than whatever it waits for."""


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[RealHouse]:
    built = RealHouse(tmp_path, connect())
    yield built
    built.close()


def evacuated(house: RealHouse, name: str, drain: Drain = Drain.SOON, drain_s: float = 240, **info: Any) -> StepResult:
    node = house.marked(name)
    return run(house.drains.evacuate, house.request(node, drain, drain_s), **LONG, **info)


def evictions(proxy: Proxy) -> list[str]:
    return [call.path for call in proxy.calls if "/eviction" in call.path]


def the_job(site: Site, name: str) -> Object:
    found = site.get(site.within("jobs", name, api=JOBS))
    assert found is not None
    return found


def test_a_job_starts_anew_elsewhere_and_no_failure_is_counted(
    site: Site, house: RealHouse, proxy: Proxy, allowed: Allow
) -> None:
    """With the real Job controller, and a Job that would fail at the first lost pod."""
    allowed("requeue")
    first, second = site.add_node(), site.add_node()
    job(site, "llm", parallelism=2, subdomain="llm", gpus=8)
    site.patch(site.within("jobs", "llm", api=JOBS), {"spec": {"backoffLimit": 0}})
    before = {metadata(pod)["uid"] for pod in site.running(2)}
    spare = site.add_node()
    result = evacuated(house, first)
    assert result.outcome is Outcome.DONE, result
    assert "started anew" in result.reason
    after = site.running(2)
    assert not before & {metadata(pod)["uid"] for pod in after}
    assert {pod["spec"]["nodeName"] for pod in after} == {second, spare}
    status = the_job(site, "llm")["status"]
    assert not status.get("failed")
    assert evictions(proxy) == []
    assert house.read(first).requeuing == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_ends_as_a_whole_and_is_started_once(
    site: Site, house: RealHouse, proxy: Proxy, allowed: Allow, kind: str
) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    with Gang(site, kind, nodes) as gang:
        result = evacuated(house, nodes[0])
        assert result.outcome is Outcome.DONE, result
        until("its controller has seen it", lambda: gang.seen[-1:] == [False])
    assert gang.seen == [False, True, False]
    assert gang.pods() == []
    assert evictions(proxy) == []
    thing = site.get(gang.path) or {}
    assert notes(thing)["medevac.dev/requeued-by"] == INCIDENT
    assert "medevac.dev/stopped-by" not in labels(thing)
    # Once is enough: what is found of it on the node later is evicted.
    site.pod("llm-late", nodes[0], owner=owned(thing), labels={gang.tag: "llm"}, tolerates_all=True)
    (work,) = house.cluster.workloads(nodes[0])
    assert house.cluster.requeue(work, nodes[0], INCIDENT).state is Requeue.LEFT


def queued(site: Site, name: str, **status: Any) -> str:
    """Kueue's Workload of a Job, as its controller would make it."""
    version, path = define(site, "Workload")
    uid = metadata(the_job(site, name))["uid"]
    podset = {"name": "main", "count": 2, "template": {"spec": containers()}}
    site.create(path, {
        "apiVersion": version, "kind": "Workload",
        "metadata": {"name": f"job-{name}", "labels": {"kueue.x-k8s.io/job-uid": uid}},
        "spec": {"active": True, "queueName": "q", "podSets": [podset]},
    })  # fmt: skip
    if status:
        site.patch(f"{path}/job-{name}/status", {"status": status})
    return f"{path}/job-{name}"


def in_a_queue(site: Site) -> list[str]:
    nodes = [site.add_node(), site.add_node()]
    job(site, "llm", parallelism=2, subdomain="llm", gpus=8)
    site.patch(site.within("jobs", "llm", api=JOBS), {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    site.running(2)
    return nodes


def test_what_is_in_a_queue_is_queued_again_and_never_only_deactivated(
    site: Site, house: RealHouse, allowed: Allow, proxy: Proxy
) -> None:
    allowed("requeue")
    nodes = in_a_queue(site)
    path = queued(site, "llm")
    node = house.marked(nodes[0])
    (work,) = house.cluster.workloads(nodes[0])
    assert house.cluster.requeue(work, nodes[0], INCIDENT).state is Requeue.ENDING
    assert (site.get(path) or {})["spec"]["active"] is False
    assert not the_job(site, "llm")["spec"].get("suspend"), "that is Kueue's to set"
    # Kueue's answer.
    site.patch(site.within("jobs", "llm", api=JOBS), {"spec": {"suspend": True}})
    until("its pods are gone", lambda: not site.pods())
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 240), attempt=2, **LONG)
    assert result.outcome.ok, result
    assert (site.get(path) or {})["spec"]["active"] is True
    assert evictions(proxy) == []


def test_kueue_that_swaps_a_node_is_left_to_it(site: Site, house: RealHouse, allowed: Allow, proxy: Proxy) -> None:
    allowed("requeue")
    nodes = in_a_queue(site)
    domains = {"levels": ["kubernetes.io/hostname"], "domains": [{"values": [nodes[0]], "count": 1}]}
    if "v1beta2" in define(site, "Workload")[0]:
        values = {"universal": nodes[0]}
        domains = {"levels": ["kubernetes.io/hostname"], "slices": [{"domainCount": 1, "valuesPerLevel": [values],
                   "podCounts": {"universal": 1}}]}  # fmt: skip
    assigned = [{"name": "main", "count": 2, "topologyAssignment": domains}]
    path = queued(site, "llm", admission={"clusterQueue": "q", "podSetAssignments": assigned})
    result = evacuated(house, nodes[0])
    assert result.outcome is Outcome.DONE, result
    assert "another node in this one's place" in result.reason
    assert (site.get(path) or {})["spec"]["active"] is True
    assert len(evictions(proxy)) == 1


def test_a_group_whose_controller_makes_it_anew_is_left_to_it(site: Site, house: RealHouse, allowed: Allow) -> None:
    allowed("requeue")
    version, path = define(site, "LeaderWorkerSet")
    made = site.create(path, {
        "apiVersion": version, "kind": "LeaderWorkerSet", "metadata": {"name": "serve"},
        "spec": {
            "replicas": 1, "rolloutStrategy": {"type": "RollingUpdate"},
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": containers()}},
        },
    })  # fmt: skip
    node = site.add_node()
    tags = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    site.pod("serve-0", node, owner=owned(made), labels=tags)
    result = evacuated(house, node)
    assert result.outcome is Outcome.DONE, result
    assert "its controller makes the whole group anew" in result.reason


def test_without_the_right_it_is_evicted_and_said_who_must(site: Site, house: RealHouse, proxy: Proxy) -> None:
    nodes = [site.add_node(), site.add_node()]
    with Gang(site, "JobSet", nodes) as gang:
        result = evacuated(house, nodes[0])
    assert result.outcome is Outcome.DONE, result
    assert "no right to patch jobsets.jobset.x-k8s.io" in result.reason
    assert "its owner must start it" in result.reason
    assert gang.seen == [False]
    assert len(evictions(proxy)) == 1
    assert house.read(nodes[0]).requeuing == ()


@pytest.mark.parametrize("who", ["the next attempt", "whoever lifts the mark"])
def test_a_gang_stopped_by_a_worker_that_died_is_started_by(
    site: Site, house: RealHouse, allowed: Allow, who: str
) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    gang = Gang(site, "JobSet", nodes)
    node = house.marked(nodes[0])
    (work,) = house.cluster.workloads(nodes[0])
    assert house.cluster.requeue(work, nodes[0], INCIDENT).state is Requeue.ENDING  # and then it died
    assert house.read(nodes[0]).requeuing == (work.name,)
    gang.control()
    until("its pods are gone", lambda: not gang.pods())
    assert gang.is_stopped()
    if who == "the next attempt":
        request = house.request(node, Drain.SOON, 240)
        assert run(house.drains.evacuate, request, attempt=2, **LONG).outcome.ok
    else:
        assert house.cluster.lift(nodes[0], INCIDENT) == "done"
    assert not gang.is_stopped()
    assert house.read(nodes[0]).requeuing == ()


def test_a_node_that_is_gone_leaves_no_gang_stopped(site: Site, house: RealHouse, allowed: Allow) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    gang = Gang(site, "JobSet", nodes)
    node = house.marked(nodes[0])
    (work,) = house.cluster.workloads(nodes[0])
    house.cluster.requeue(work, nodes[0], INCIDENT)  # and then the worker died
    site.must(site.send("DELETE", site.node_path(nodes[0])))
    assert gang.is_stopped()
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 240), attempt=2, **LONG)
    assert result.outcome is Outcome.REFUSED
    assert not gang.is_stopped()


def test_two_incidents_of_one_gang_stop_it_once(site: Site, house: RealHouse, allowed: Allow) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    gang = Gang(site, "JobSet", nodes)
    for node, incident in zip(nodes, (INCIDENT, "inc-2"), strict=True):
        house.cluster.mark(node, MARK.model_copy(update={"incident": incident}))
    (work,) = house.cluster.workloads(nodes[0])
    assert house.cluster.requeue(work, nodes[0], INCIDENT).state is Requeue.ENDING
    answer = house.cluster.requeue(work, nodes[1], "inc-2")
    assert answer.state is Requeue.LEFT
    assert INCIDENT in answer.why or "suspended by someone" in answer.why
    assert house.cluster.resume(nodes[1], "inc-2") == []
    assert gang.is_stopped(), "whoever stopped it starts it"
    assert house.cluster.resume(nodes[0], INCIDENT) == []
    assert not gang.is_stopped()


def test_a_freeze_in_between_leaves_nothing_stopped(
    site: Site, house: RealHouse, allowed: Allow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.precondition.FRESH_S", 0.0)
    monkeypatch.setattr("activities.storage.fences.FRESH_S", 0.0)
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    gang = Gang(site, "JobSet", nodes)
    requeue = house.cluster.requeue

    def then_freeze(*args: Any) -> Any:
        answer = requeue(*args)
        assert gang.is_stopped()
        house.fences.freeze("all", "ada", "wait")
        return answer

    monkeypatch.setattr(house.cluster, "requeue", then_freeze)
    with pytest.raises(ApplicationError, match="frozen"):
        evacuated(house, nodes[0])
    assert not gang.is_stopped()


def test_a_freeze_while_the_gang_is_looked_at_stops_none_of_it(
    site: Site, house: RealHouse, allowed: Allow, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    gang = Gang(site, "JobSet", nodes)
    requeue = house.cluster.requeue

    def slowly(*args: Any) -> Any:
        house.fences.freeze("all", "ada", "wait")
        return requeue(*args)

    monkeypatch.setattr(house.cluster, "requeue", slowly)
    with pytest.raises(ApplicationError, match="frozen"):
        evacuated(house, nodes[0])
    assert not gang.is_stopped()
    assert not any("deletionTimestamp" in metadata(pod) for pod in gang.pods())


def test_a_disruption_budget_is_not_gone_around_by_stopping_the_gang(
    site: Site, house: RealHouse, allowed: Allow, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed("requeue")
    nodes = [site.add_node(), site.add_node()]
    with Gang(site, "JobSet", nodes) as gang:
        site.budget("never", {"app": "llm"}, pods=2)
        house.ends_after_an_eviction(monkeypatch)
        result = evacuated(house, nodes[0])
    assert result.outcome is Outcome.BLOCKED, result
    assert f"{site.run}/never" in result.who
    assert gang.seen == [False]
    assert len(gang.pods()) == 2


def test_a_gang_that_someone_suspended_is_nobodys_to_start(site: Site, house: RealHouse, allowed: Allow) -> None:
    allowed("requeue")
    node = site.add_node()
    gang = Gang(site, "JobSet", [node])
    site.patch(gang.path, {"spec": {"suspend": True}})
    result = evacuated(house, node)
    assert result.outcome is Outcome.DONE, result
    assert gang.is_stopped()


def test_waiting_for_a_jobs_end_has_a_limit(site: Site, house: RealHouse, allowed: Allow) -> None:
    allowed("requeue")
    node = site.add_node()
    with Gang(site, "JobSet", [node]) as gang:
        result = evacuated(house, node, Drain.JOB_END, 2)
    assert (result.outcome, result.who) == (Outcome.BLOCKED, f"{site.run}/JobSet/llm")
    assert gang.seen == [False]
