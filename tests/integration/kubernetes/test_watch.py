"""Nodes from a watch: what happens shows without listing, and nothing is missed when the watch breaks."""

from __future__ import annotations

import pytest

from activities.kubernetes.client import Expired
from activities.kubernetes.cluster import KubernetesCluster
from activities.ports import Mark, Unreadable
from medevac.fleet.node import Node
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="")
WATCH = "watch=1"


def shown(cluster: KubernetesCluster, name: str) -> Node | None:
    return next((node for node in cluster.nodes() if node.name == name), None)


def lists(proxy: Proxy) -> int:
    return sum("/nodes?" in call.path and WATCH not in call.path and call.method == "GET" for call in proxy.calls)


def watches(proxy: Proxy) -> int:
    return sum(WATCH in call.path for call in proxy.calls)


@pytest.fixture
def watching(connect: Connect, proxy: Proxy) -> KubernetesCluster:
    cluster = connect("mark")
    cluster.nodes()
    # By what has been heard, not by counting calls: a busy API server may have turned some of them away.
    until("the watch is open", lambda: watches(proxy) > 0 and cluster._watch._response)
    return cluster


def test_changes_show_and_nothing_is_listed_again(site: Site, watching: KubernetesCluster, proxy: Proxy) -> None:
    before = lists(proxy)
    name = site.add_node()
    until("the new node", lambda: shown(watching, name))
    watching.mark(name, MARK)
    until("its mark", lambda: (node := shown(watching, name)) is not None and node.marked_by == "inc-1")
    # Both may still change, by what Kubernetes itself does to a new node: what counts is that they come to agree.
    until("the watch shows what a fresh read shows", lambda: _same(watching, name))
    site.must(site.send("DELETE", site.node_path(name)))
    until("it is gone", lambda: shown(watching, name) is None)
    assert lists(proxy) == before, proxy.calls


def _same(cluster: KubernetesCluster, name: str) -> Node | None:
    node = shown(cluster, name)
    return node if node == cluster.node(name) else None


def test_a_broken_connection_loses_nothing(site: Site, watching: KubernetesCluster, proxy: Proxy) -> None:
    name, gone = site.add_node(), site.add_node()
    until("both", lambda: shown(watching, name) and shown(watching, gone))
    before = lists(proxy)
    proxy.script("GET", WATCH, Trouble.REFUSE, times=2)
    proxy.hang_up()
    site.cordon(name, "alice")
    site.must(site.send("DELETE", site.node_path(gone)))
    until("what happened meanwhile", lambda: (node := shown(watching, name)) and node.foreign_cordon == "alice")
    until("what went meanwhile", lambda: shown(watching, gone) is None)
    assert lists(proxy) == before, "it went on from where it was"


def test_a_version_that_is_too_old_is_read_anew(site: Site, watching: KubernetesCluster, proxy: Proxy) -> None:
    name = site.add_node()
    until("the node", lambda: shown(watching, name))
    before = lists(proxy)
    proxy.forget(site.version)
    site.cordon(name, "alice")
    until("what is now", lambda: (node := shown(watching, name)) and node.foreign_cordon == "alice")
    assert lists(proxy) > before


def test_a_watch_that_has_gone_silent_is_not_believed(
    site: Site, watching: KubernetesCluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.add_node()
    until("the node", lambda: shown(watching, name))
    monkeypatch.setattr("activities.kubernetes.watching.SILENCE_S", 0.0)
    before = lists(proxy)
    assert shown(watching, name) is not None
    assert lists(proxy) > before
    proxy.script("GET", "/nodes", Trouble.REFUSE, times=1_000)
    with pytest.raises(Unreadable):
        watching.nodes()


def test_an_end_is_told_by_its_cause(watching: KubernetesCluster, proxy: Proxy) -> None:
    with pytest.raises(Unreadable, match="not-a-version"):
        list(watching._client.watch("/api/v1/nodes", "not-a-version", 1, lambda _: None))
    proxy.forgotten = 2
    with pytest.raises(Expired):
        list(watching._client.watch("/api/v1/nodes", "1", 1, lambda _: None))


def test_closing_ends_the_thread(watching: KubernetesCluster) -> None:
    thread = watching._watch._thread
    assert thread is not None
    watching.close()
    assert not thread.is_alive()
