"""The shipped access rights: each account can do what it is for, and nothing beyond it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from activities.kubernetes.cluster import KubernetesCluster
from activities.ports import Mark, NotSent, Unreadable
from tests.integration.kubernetes.conftest import LEVELS, Connect
from tests.integration.kubernetes.site import Site, as_left

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")


@pytest.mark.parametrize("level", LEVELS)
def test_an_account_has_what_its_level_needs(connect: Connect, level: str) -> None:
    assert connect(level).missing_rights() == []


def test_a_missing_right_is_named(connect: Connect, plane: object) -> None:
    observing = connect("observe")
    meant_to_evict = KubernetesCluster("real", observing.options.model_copy(update={"rights": "evict"}))
    assert meant_to_evict.missing_rights() == [
        "patch nodes",
        "patch nodes/status",
        "create events",
        "patch pods",
        "delete pods",
        "create pods/eviction",
        "list events",
    ]


def test_who_observes_can_read_everything_and_write_nothing(site: Site, connect: Connect) -> None:
    name = site.add_node()
    site.pod("train", name)
    cluster = connect("observe")
    assert name in {node.name for node in cluster.nodes()}
    (pod,) = cluster.pods(name)
    assert cluster.workloads(name)
    before = site.node(name)
    with pytest.raises(NotSent, match="forbidden") as refusal:
        cluster.mark(name, MARK)
    assert not refusal.value.final, "a person may give the right while the step waits"
    with pytest.raises(NotSent, match="forbidden"):
        cluster.notice(name, datetime.now(UTC))
    for remove in (cluster.evict, cluster.delete):
        with pytest.raises(NotSent, match="forbidden"):
            remove(pod, 30)
    assert as_left(site.node(name)) == as_left(before)
    assert [one.uid for one in cluster.pods(name)] == [pod.uid]


def test_who_marks_cannot_evict(site: Site, connect: Connect) -> None:
    name = site.add_node()
    site.pod("train", name)
    cluster = connect("mark")
    assert cluster.mark(name, MARK) == "done"
    (pod,) = cluster.pods(name)
    with pytest.raises(NotSent, match="forbidden"):
        cluster.evict(pod, 30)
    assert cluster.lift(name, "inc-1") == "done"


def test_a_wrong_token_reads_nothing(connect: Connect, site: Site) -> None:
    with pytest.raises(Unreadable, match="401"):
        connect(token="wrong").node(site.add_node())
