"""What is taken for another remediator, and what is seen to be switched off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from activities.kubernetes import health_checks, installed, others
from activities.kubernetes.client import Forbidden, Object
from activities.kubernetes.nodes import selects
from activities.kubernetes.reach import Found
from activities.kubernetes.remediators import FRESH_S, Remediators
from activities.ports import Unreadable
from medevac.fleet.node import Machine, Node
from medevac.fleet.remediator import Switch


class Api:
    """Listings by path; one that is an error is raised."""

    def __init__(self, **groups: bool) -> None:
        self.things: dict[str, list[Object] | Unreadable] = {}
        self.asked: list[str] = []
        self.groups = groups

    def list(self, path: str) -> Iterator[Object]:
        self.asked.append(path)
        found = self.things.get(path, [])
        if isinstance(found, Unreadable):
            raise found
        return iter(found)

    def get(self, path: str) -> Object | None:
        return {} if self.groups.get(path.rsplit("/", 1)[-1].split(".")[0]) else None


def node(**labels: str) -> Node:
    return Node(cluster="c", name="n1", machine=Machine(provider="p", id="i-1"), labels=labels)


def program(image: str, *args: str, env: dict[str, Any] | None = None, **spec: Any) -> Object:
    variables = [{"name": k, **(v if isinstance(v, dict) else {"value": v})} for k, v in (env or {}).items()]
    container = {"name": "main", "image": image, "args": list(args), "env": variables}
    template = {"spec": {"containers": [container]}}
    return {"metadata": {"namespace": "ops", "name": "it"}, "spec": {"template": template, **spec}}


def found(api: Api) -> dict[str, Found]:
    return {one.remediator.name: one for one in installed.running(api)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("thing", "who"),
    [
        (program("ghcr.io/nvidia/nvsentinel/node-drainer:1"), "NVSentinel"),
        (program("registry.example.com:5000/nvidia/nvsentinel/janitor@sha256:00"), "NVSentinel"),
        (program("ghcr.io/nvidia/nvsentinel/fault-quarantine", "--dry-run=false"), "NVSentinel"),
        (program("ghcr.io/nvidia/nvsentinel/fault-quarantine", "--dry-run=true"), None),
        (program("ghcr.io/nvidia/nvsentinel/fault-quarantine", replicas=0), None),
        (program("ghcr.io/nvidia/nvsentinel/gpu-health-monitor:1"), None),
        (program("planetlabs/draino:e0d5277"), "draino"),
        (program("public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25"), "aws-node-termination-handler"),
        (program("public.ecr.aws/karpenter/controller:1.8.0"), None),
        (program("karpenter/controller:1", env={"FEATURE_GATES": "NodeRepair=true"}), "Karpenter"),
        (program("karpenter/controller:1", "--feature-gates=StaticCapacity=true,NodeRepair=true"), "Karpenter"),
        (program("karpenter/controller:1", env={"FEATURE_GATES": {"valueFrom": {}}}), "Karpenter"),
        (program("example.com/not-karpenter/dashboard:1"), None),
    ],
)
def test_a_program_counts_while_it_is_not_seen_to_be_off(thing: Object, who: str | None) -> None:
    api = Api()
    api.things[installed.DEPLOYMENTS] = [thing]
    assert set(found(api)) == ({who} if who else set())


@pytest.mark.parametrize(
    ("budget", "env", "spared"),
    [
        ({"nodes": "0", "reasons": ["Unhealthy"]}, {}, True),
        ({"nodes": "0%", "reasons": ["Unhealthy", "Drifted"]}, {}, True),
        ({"nodes": "0", "reasons": ["Unhealthy"]}, {"LEGACY_NODE_REPAIR": "true"}, False),
        ({"nodes": "0", "reasons": ["Unhealthy"], "schedule": "@daily", "duration": "1h"}, {}, False),
        ({"nodes": "0"}, {}, False),  # of a Karpenter that knows no such reason it stops no repair
        ({"nodes": "1", "reasons": ["Unhealthy"]}, {}, False),
    ],
)
def test_karpenter_spares_the_pools_whose_budget_allows_no_repair(budget: Object, env: Any, spared: bool) -> None:
    api = Api()
    api.things[installed.DEPLOYMENTS] = [
        program("karpenter/controller:1", env={"FEATURE_GATES": "NodeRepair=true", **env})
    ]
    api.things[installed.NODE_POOLS] = [
        {"metadata": {"name": "train"}, "spec": {"disruption": {"budgets": [{"nodes": "10%"}, budget]}}}
    ]
    covers = found(api)["Karpenter"].covers
    assert covers(node(**{"karpenter.sh/nodepool": "train"})) != spared
    assert covers(node(**{"karpenter.sh/nodepool": "serve"}))
    assert not covers(node())


def test_node_health_checks_reach_the_nodes_that_they_select_unless_paused() -> None:
    api = Api()
    wanted = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}
    on = {"metadata": {"name": "gpu"}, "spec": {"selector": wanted}}
    paused = {"metadata": {"name": "cpu"}, "spec": {"selector": {}, "pauseRequests": ["an upgrade"]}}
    api.things[health_checks.NODES] = [on, paused]
    [one] = health_checks.nodes(api)  # type: ignore[arg-type]
    assert (one.remediator.name, one.remediator.switch) == ("medik8s", Switch.ON)
    assert "pauseRequests" in one.remediator.off
    assert (one.covers(node(gpu="h100")), one.covers(node(gpu="l4"))) == (True, False)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
        ({"key": "a", "operator": "of a later version"}, True),
    ],
)
def test_selectors(expression: Object, fits: bool) -> None:
    assert selects({"matchExpressions": [expression]}, {"a": "1"}) is fits
    assert selects({"matchLabels": {"a": "2"}, "matchExpressions": [expression]}, {"a": "1"}) is False


def test_nvsentinels_dry_run_has_taken_nothing_out() -> None:
    said = {"metadata": {"annotations": {"quarantineHealthEvent": "[{}]"}}}
    assert others.keeper(said) is None
    assert others.keeper(said | {"spec": {"unschedulable": True}}) == "NVSentinel"
    tainted = {"quarantineHealthEvent": "[{}]", "quarantineHealthEventAppliedTaints": '[{"Key":"x"}]'}
    assert others.keeper({"metadata": {"annotations": tainted}}) == "NVSentinel"


def test_a_right_that_is_missing_is_an_answer_where_the_api_is_served() -> None:
    api = Api(remediation=True)
    api.things[health_checks.NODES] = Forbidden("no")
    [one] = health_checks.nodes(api)  # type: ignore[arg-type]
    assert one.remediator.switch is Switch.UNREADABLE
    assert one.remediator.acts
    api.groups = {}
    assert list(health_checks.nodes(api)) == []  # type: ignore[arg-type]


def test_an_outage_is_no_answer_but_what_was_just_known_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("activities.kubernetes.remediators.time.monotonic", lambda: clock[0])
    api = Api()
    api.things[installed.DEPLOYMENTS] = Unreadable("connection refused")
    known = Remediators(api)  # type: ignore[arg-type]
    with pytest.raises(Unreadable):
        known.of(node())
    api.things[installed.DEPLOYMENTS] = [program("planetlabs/draino:1")]
    assert [one.name for one in known.of(node())] == ["draino"]
    api.things[installed.DEPLOYMENTS] = Unreadable("connection refused")
    clock[0] += FRESH_S + 1
    assert [one.name for one in known.of(node())] == ["draino"]
    clock[0] += 3600
    with pytest.raises(Unreadable):
        known.of(node())


def test_marks_of_one_that_is_nowhere_seen_to_run_are_a_persons_to_judge() -> None:
    known = Remediators(Api())  # type: ignore[arg-type]
    left = node().model_copy(update={"foreign_cordon": "NVSentinel"})
    assert [(one.name, one.switch) for one in known.of(left)] == [("NVSentinel", Switch.OUTSIDE)]
    assert known.of(node().model_copy(update={"foreign_cordon": "alice"})) == []
