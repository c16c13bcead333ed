"""Evidence of a node on a real API server: kept before the first pod leaves, once, and never in the way by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from activities.evacuation import EvacuationActivities
from activities.evidence import Evidence
from activities.evidence_store import FolderStore
from activities.kubernetes.evidence import pieces
from activities.kubernetes.nodes import metadata
from activities.ports import Unreadable
from medevac.incident import Outcome, StepResult
from medevac.policy.loading import preset
from medevac.policy.plan import Drain
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import RealHouse
from tests.integration.kubernetes.kubelet import Kubelet
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site
from tests.unit.activities.house import run

COLLECTOR = {"image": "none", "command": ["nvidia-bug-report.sh"], "start_s": 240, "run_s": 240}


@pytest.fixture
def opened(tmp_path: Path, connect: Connect) -> Iterator[Callable[..., RealHouse]]:
    built: list[RealHouse] = []

    def opened(**options: Any) -> RealHouse:
        house = RealHouse(tmp_path, connect(**options))
        evidence = Evidence(house.registry, FolderStore(tmp_path / "evidence"), house.policies, house.bounded)
        house.drains = EvacuationActivities(house.registry, house.look, evidence=evidence)
        built.append(house)
        return house

    yield opened
    for house in built:
        house.close()


def kept(result: StepResult) -> tuple[dict[str, bytes], list[str]]:
    """Pieces by name, as their references lead to them; and what is missing."""
    found = result.proof["evidence"]
    assert isinstance(found, dict)
    contents: dict[str, bytes] = {}
    for piece in found["pieces"]:  # type: ignore[union-attr]
        assert isinstance(piece, dict)
        content = Path(urlparse(str(piece["url"])).path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == piece["sha256"]
        contents[str(piece["name"])] = content
    return contents, list(found["missing"])  # type: ignore[arg-type]


def test_conditions_events_and_pods_are_kept_before_the_first_pod_leaves(
    site: Site, opened: Callable[..., RealHouse], proxy: Proxy
) -> None:
    house, name = opened(), site.add_node()
    site.pod("train", name, containers=[{"name": "m", "image": "none", "env": [{"name": "KEY", "value": "hunter2"}]}])
    node = house.marked(name)
    result = run(house.drains.evacuate, house.request(node, Drain.SOON, 300), start_to_close_s=600, whole_s=600)
    assert result.outcome is Outcome.DONE, result
    contents, missing = kept(result)
    assert missing == []
    assert set(contents) == {"cluster/node.json", "cluster/events.json", "cluster/pods.json"}
    assert {one["type"] for one in json.loads(contents["cluster/node.json"])["status"]["conditions"]} >= {"Ready"}
    (pod,) = json.loads(contents["cluster/pods.json"])
    assert (pod["name"], pod["phase"]) == ("train", "Running")
    assert {event["reason"] for event in json.loads(contents["cluster/events.json"])} >= {"MedevacMarked"}
    assert not any(b"hunter2" in content for content in contents.values())
    paths = [call.path for call in proxy.calls]
    first = next(n for n, path in enumerate(paths) if "/eviction" in path)
    assert any("/events?fieldSelector" in path for path in paths[:first])


def test_a_second_attempt_keeps_what_the_first_one_found(
    site: Site, opened: Callable[..., RealHouse], proxy: Proxy
) -> None:
    house, name = opened(), site.add_node()
    node = house.marked(name)
    request = house.request(node, Drain.NOW, 240)
    first = run(house.drains.evacuate, request, start_to_close_s=500, whole_s=500)
    proxy.calls.clear()
    again = run(house.drains.evacuate, request, attempt=2, start_to_close_s=500, whole_s=500)
    assert kept(first) == kept(again)
    assert not any("/events?fieldSelector" in call.path for call in proxy.calls)


def test_what_cannot_be_read_is_named_and_does_not_stop_the_drain(
    site: Site, opened: Callable[..., RealHouse], proxy: Proxy
) -> None:
    house, name = opened(), site.add_node()
    site.pod("train", name)
    node = house.marked(name)
    proxy.script("GET", "/api/v1/events", Trouble.REFUSE)
    result = run(house.drains.evacuate, house.request(node, Drain.NOW, 240), start_to_close_s=500, whole_s=500)
    assert result.outcome is Outcome.DONE
    contents, missing = kept(result)
    assert set(contents) == {"cluster/node.json", "cluster/pods.json"}
    assert "events.json" in missing[0]


def test_where_the_policy_requires_it_no_pod_leaves_without(
    site: Site, opened: Callable[..., RealHouse], proxy: Proxy
) -> None:
    house, name = opened(), site.add_node()
    site.pod("train", name)
    node, now = house.marked(name), datetime.now(UTC)
    version = house.policies.propose(preset("demo") + "\nevidence: required\n", "test", now)
    house.policies.activate(version, house.policies.active().version, now)
    proxy.script("GET", "/api/v1/events", Trouble.REFUSE)
    request = house.request(node, Drain.NOW, 240)
    with pytest.raises(Exception, match="requires evidence"):
        run(house.drains.evacuate, request, start_to_close_s=500, whole_s=500)
    assert [metadata(pod)["name"] for pod in site.pods()] == ["train"]
    assert run(house.drains.evacuate, request, attempt=2, start_to_close_s=500, whole_s=500).outcome is Outcome.DONE


def test_a_collector_prints_on_the_node_and_what_it_printed_is_kept(
    site: Site, opened: Callable[..., RealHouse], proxy: Proxy
) -> None:
    house, name = opened(collector=COLLECTOR), site.add_node()
    assert house.cluster.missing_rights() == []
    kubelet = Kubelet(site, "medevac-node-side")
    telling = iter(house.cluster.evidence(house.read(name), site.run))
    named = dict(next(telling) for _ in range(3))
    assert set(named) == {"node.json", "events.json", "pods.json"}
    assert next(telling) == ("", b""), "the collector runs"
    pod = kubelet.pod()
    assert pod["spec"]["nodeName"] == name
    assert pod["spec"]["containers"][0]["command"] == COLLECTOR["command"]
    proxy.printed[metadata(pod)["name"]] = b"nvidia-bug-report: all of it"
    kubelet.ends(pod, "", 0)
    rest = dict(piece for piece in telling if piece[0])
    assert rest == {"collector.txt": b"nvidia-bug-report: all of it"}
    again = dict(piece for piece in house.cluster.evidence(house.read(name), site.run) if piece[0])
    assert again["collector.txt"] == rest["collector.txt"]
    assert len(kubelet.jobs()) == 1
    kubelet.close()


def test_a_collector_that_never_starts_is_named(site: Site, opened: Callable[..., RealHouse]) -> None:
    house, name = opened(collector={**COLLECTOR, "start_s": 1, "run_s": 1}), site.add_node()
    kubelet = Kubelet(site, "medevac-node-side")
    telling = pieces(house.cluster._client, house.cluster.options.collector, house.read(name), site.run)
    found = [next(telling)[0] for _ in range(3)]
    with pytest.raises(Unreadable, match="collector: it never started"):
        list(telling)
    assert found == ["node.json", "events.json", "pods.json"]
    kubelet.close()
