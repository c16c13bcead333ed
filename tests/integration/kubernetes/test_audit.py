"""By the API server's own audit log: who only observes has written nothing, whatever was asked of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.ports import Mark
from tests.integration.kubernetes.conftest import Connect, Plane
from tests.integration.kubernetes.house import INCIDENT
from tests.integration.kubernetes.site import Site, as_left, until

READS = {"get", "list", "watch"}
MARK = Mark(incident=INCIDENT, code="xid-79", faults=("xid/79",), reason="")


def calls(log: Path, account: str, since: datetime) -> Counter[tuple[str, str]]:
    """Verb and resource of what the account did and was allowed to."""
    found: Counter[tuple[str, str]] = Counter()
    whole, _, _ = log.read_text().rpartition("\n")  # the last one may still be written
    for line in whole.splitlines():
        entry = json.loads(line)
        at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
        who = entry["user"].get("username")  # none where nobody signed in
        if who == f"system:serviceaccount:medevac:{account}" and at >= since and entry["responseStatus"]["code"] < 300:
            about = entry["objectRef"]
            below = f"/{about['subresource']}" if "subresource" in about else ""
            found[entry["verb"], about["resource"] + below] += 1
    return found


@pytest.fixture
def log(plane: Plane) -> Path:
    if plane.started is None:
        pytest.skip("the audit log of a cluster that isn't ours is not ours to read")
    return plane.started.audit_log


def test_observing_writes_nothing(site: Site, connect: Connect, log: Path) -> None:
    since = datetime.now(UTC)
    names = [site.add_node() for _ in range(3)]
    for name in names:
        site.pod(f"train-{name}", name)
    cluster = connect("observe")
    for _ in range(3):
        assert set(names) <= {node.name for node in cluster.nodes()}
    for name in names:
        assert cluster.node(name)
        assert cluster.pods(name)
        assert cluster.workloads(name)
        cluster.attachments(name)
    until("the audit log has it", lambda: sum(calls(log, "medevac-observe", since).values()) >= 12)
    assert {verb for verb, _ in calls(log, "medevac-observe", since)} <= READS


def _settled(site: Site, name: str) -> bool:
    """Its own taint stands exactly while the node is cordoned."""
    spec = site.node(name)["spec"]
    tainted = any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in spec.get("taints") or ())
    return tainted == bool(spec.get("unschedulable"))


def test_a_mark_and_its_lift_touch_one_node_and_are_few_calls(site: Site, connect: Connect, log: Path) -> None:
    name, other = site.add_node(), site.add_node()
    before = as_left(site.node(other))
    cluster, since = connect("mark"), datetime.now(UTC)
    for step in (lambda: cluster.mark(name, MARK), lambda: cluster.lift(name, INCIDENT)):
        assert cluster.node(name), "whoever marks or lifts has just looked; the write is for what was seen then"
        assert step() == "done"
        # What Kubernetes itself writes then must not come between the next look and its write.
        until("Kubernetes has followed", lambda: _settled(site, name))
    until("the audit log has it", lambda: calls(log, "medevac-mark", since)["create", "events"] == 2)
    assert calls(log, "medevac-mark", since) == {
        ("get", "nodes"): 2,
        ("patch", "nodes"): 2,
        ("patch", "nodes/status"): 2,
        ("create", "events"): 2,
    }
    assert as_left(site.node(other)) == before
