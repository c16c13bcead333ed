"""Marks on a real API server: one write, others' things kept, and readable for people."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from activities.kubernetes.client import MERGE
from activities.kubernetes.names import CONDITION, TAINT
from activities.kubernetes.nodes import conditions, labels, metadata, taints
from activities.ports import Mark, NotSent
from medevac.events.kubernetes import read_objects
from medevac.events.parsing import Payload
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until, written

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79", "xid/31"), reason="GPU has fallen off the bus")
OURS = {"key": TAINT, "value": "xid-79", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/dedicated", "value": "team-a", "effect": "NoSchedule"}


def plain(node: dict[str, object]) -> list[dict[str, object]]:
    """Without the taint that Kubernetes itself adds to a cordoned node."""
    return [
        {key: taint[key] for key in ("key", "value", "effect") if key in taint}
        for taint in taints(node)
        if not taint["key"].startswith("node.kubernetes.io/")
    ]


def test_a_mark_is_one_write_that_says_everything(site: Site, connect: Connect, proxy: Proxy) -> None:
    name = site.add_node(taints=[THEIRS])
    cluster = connect("mark")
    assert cluster.mark(name, MARK) == "done"
    writes = [call for call in proxy.calls if call.method == "PATCH" and f"/nodes/{name}?" in call.path]
    assert len(writes) == 1
    node = site.node(name)
    assert node["spec"]["unschedulable"] is True
    assert plain(node) == [THEIRS, OURS]
    assert labels(node)[TAINT] == "xid-79"
    assert written(node)["incident"] == "inc-1"
    assert written(node)["faults"] == ["xid/79", "xid/31"]
    assert written(node)["before"] == {"unschedulable": False, "cordoned_by": ""}


def test_lifting_leaves_the_node_as_it_was(site: Site, connect: Connect) -> None:
    name = site.add_node(taints=[THEIRS], labels={"team": "a"})
    cluster = connect("mark")
    before = site.node(name)
    cluster.mark(name, MARK)
    cluster.lift(name, "inc-1")
    after = until("Kubernetes has taken its own taint away", lambda: _free(site, name))
    assert plain(after) == plain(before)
    assert labels(after) == labels(before)
    assert not {key for key in metadata(after).get("annotations", {}) if key.startswith("medevac")}
    assert CONDITION not in conditions(after)


def _free(site: Site, name: str) -> dict[str, object] | None:
    node = site.node(name)
    return node if plain(node) == [*taints(node)] and not node["spec"].get("unschedulable") else None


def test_taints_of_others_survive_concurrent_writers(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect("mark")
    start = threading.Barrier(9)
    added: list[str] = []

    def someone(n: int) -> None:
        """A well-behaved controller: reads, adds its taint under the same lock, tries again."""
        start.wait()
        for _ in range(100):
            node = site.node(name)
            taint = {"key": f"example.com/{n}", "effect": "NoSchedule"}
            lock = metadata(node)["resourceVersion"]
            patch = {"metadata": {"resourceVersion": lock}, "spec": {"taints": [*taints(node), taint]}}
            if site.send("PATCH", site.node_path(name), patch, "application/merge-patch+json").ok:
                added.append(taint["key"])
                return

    others = [threading.Thread(target=someone, args=(n,)) for n in range(8)]
    for thread in others:
        thread.start()
    start.wait()
    for _ in range(50):
        try:
            assert cluster.mark(name, MARK) in ("done", "already")
            break
        except NotSent as lost:
            if lost.final:
                raise
    for thread in others:
        thread.join()
    assert len(added) == 8
    found = {taint["key"] for taint in taints(site.node(name))}
    assert {TAINT, *added} <= found
    cluster.lift(name, "inc-1")
    assert set(added) <= {taint["key"] for taint in taints(site.node(name))}


def test_a_worse_fault_keeps_what_was_there_before(site: Site, connect: Connect) -> None:
    name = site.add_node()
    site.cordon(name, "alice")
    cluster = connect("mark")
    cluster.mark(name, MARK)
    cluster.mark(name, MARK.model_copy(update={"code": "xid-95", "faults": ("xid/95", "xid/79")}))
    node = site.node(name)
    assert [taint["value"] for taint in taints(node) if taint["key"] == TAINT] == ["xid-95"]
    assert written(node)["before"] == {"unschedulable": True, "cordoned_by": "alice"}
    cluster.lift(name, "inc-1")
    read = cluster.node(name)
    assert read is not None
    assert (read.schedulable, read.foreign_cordon) == (False, "alice")


def test_a_cordon_set_anew_by_someone_else_stays_after_ours(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect("mark")
    cluster.mark(name, MARK)
    site.cordon(name, "bob", on=False)
    site.cordon(name, "bob")
    marked = cluster.node(name)
    assert marked is not None
    assert marked.foreign_cordon == "bob"
    cluster.lift(name, "inc-1")
    lifted = cluster.node(name)
    assert lifted is not None
    assert (lifted.schedulable, lifted.foreign_cordon, lifted.marked_by) == (False, "bob", None)


def test_an_uncordoned_node_is_not_marked_over(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect("mark")
    cluster.mark(name, MARK)
    site.cordon(name, "alice", on=False)
    with pytest.raises(NotSent, match="veto") as refusal:
        cluster.mark(name, MARK.model_copy(update={"code": "xid-95"}))
    assert refusal.value.final
    assert not site.node(name)["spec"].get("unschedulable")


def test_a_cordon_without_its_annotation_belongs_to_nobody_we_know(site: Site, connect: Connect) -> None:
    """Someone took our annotation away: the cordon is asked about, never lifted by guess."""
    name = site.add_node()
    cluster = connect("mark")
    cluster.mark(name, MARK)
    site.patch(site.node_path(name), {"metadata": {"annotations": {"medevac.dev/mark": None}}})
    node = cluster.node(name)
    assert node is not None
    assert (node.marked_by, node.foreign_cordon) == (None, "medevac")
    assert cluster.lift(name, "inc-1") == "already"
    assert site.node(name)["spec"]["unschedulable"]


@pytest.mark.parametrize("code", ["xid/79", "x" * 64, "-xid", ""])
def test_what_no_taint_can_say_is_refused_before_anything_is_sent(
    site: Site, connect: Connect, proxy: Proxy, code: str
) -> None:
    name = site.add_node()
    with pytest.raises(NotSent) as refusal:
        connect("mark").mark(name, MARK.model_copy(update={"code": code}))
    assert refusal.value.final
    assert not [call for call in proxy.calls if call.method != "GET"]


def test_hands_off_is_read_from_annotation_or_label(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect("observe")
    site.patch(site.node_path(name), {"metadata": {"annotations": {"medevac.dev/hands-off": "alice"}}})
    node = cluster.node(name)
    assert node is not None
    assert node.hands_off == "alice"


def described(site: Site, name: str) -> list[dict[str, Any]]:
    """The Events that `kubectl describe node` looks for."""
    chosen = f"involvedObject.kind=Node,involvedObject.name={name},involvedObject.uid={name}"
    return list(site.admin.list("/api/v1/events", {"fieldSelector": chosen}))


def test_people_read_it_with_kubectl_describe(site: Site, connect: Connect) -> None:
    name = site.add_node()
    connect("mark").mark(name, MARK)
    condition = conditions(site.node(name))[CONDITION]
    assert (condition["status"], condition["reason"]) == ("True", "Xid79")
    assert "inc-1" in condition["message"]
    events = [event for event in described(site, name) if event["source"]["component"] == "medevac"]
    assert [(event["reason"], event["type"]) for event in events] == [("MedevacMarked", "Warning")]
    assert "GPU has fallen off the bus" in events[0]["message"]


def test_what_we_say_ourselves_opens_nothing(site: Site, connect: Connect) -> None:
    """The condition and the Events, sent back to us by a watcher."""
    name = site.add_node()
    cluster = connect("mark")
    cluster.mark(name, MARK)
    cluster.lift(name, "inc-1")
    cluster.mark(name, MARK)
    ours = [event for event in described(site, name) if event["source"].get("component") == "medevac"]
    assert {event["reason"] for event in ours} == {"MedevacMarked", "MedevacLifted"}
    node = site.node(name)
    node["status"]["conditions"] = [conditions(node)[CONDITION]]
    for thing in (node, *ours):
        typed = {"apiVersion": "v1", "kind": "Node" if thing is node else "Event", **thing}
        parsed = read_objects("k8s_node", Payload(body=json.dumps(typed).encode()))
        assert parsed.events
        assert all(event.marker for event in parsed.events), "what carries a marker never opens an incident"


def test_telling_people_never_fails_a_mark(site: Site, connect: Connect, proxy: Proxy) -> None:
    name = site.add_node()
    proxy.script("PATCH", "/status", Trouble.REFUSE)
    proxy.script("POST", "/events", Trouble.TIMEOUT_BEFORE)
    assert connect("mark").mark(name, MARK) == "done"
    assert written(site.node(name))["incident"] == "inc-1"


def test_a_policy_that_denies_the_mark_leaves_nothing_half_done(site: Site, connect: Connect) -> None:
    """An admission policy of the cluster's own: the mark says that it isn't there, and may be tried again."""
    name = site.add_node()
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": site.run},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
                "resourceNames": [name],
            }]},
            "validations": [{
                "expression": "!has(object.spec.taints) || !object.spec.taints.exists(t, t.key.startsWith('medevac'))",
                "message": "no new taints on Fridays",
            }],
        },
    }  # fmt: skip
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    site.create(f"{api}ies", policy)
    site.create(f"{api}ybindings", {
        "apiVersion": policy["apiVersion"], "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": site.run},
        "spec": {"policyName": site.run, "validationActions": ["Deny"]},
    })  # fmt: skip
    probe = {"spec": {"taints": [OURS]}}
    dry = {"dryRun": "All"}
    try:
        until(
            "the policy is in force",
            lambda: not site.admin._call("PATCH", site.node_path(name), dry, probe, MERGE, 1).ok,
        )
        with pytest.raises(NotSent, match="Fridays"):
            connect("mark").mark(name, MARK)
        node = site.node(name)
        assert not node["spec"].get("unschedulable")
        assert "medevac.dev/mark" not in metadata(node).get("annotations", {})
    finally:
        site.send("DELETE", f"{api}ybindings/{site.run}")
        site.send("DELETE", f"{api}ies/{site.run}")


def test_what_was_read_before_is_written_to_only_while_it_is_true(site: Site, connect: Connect) -> None:
    name = site.add_node()
    cluster = connect("mark")
    assert cluster.node(name)
    site.patch(site.node_path(name), {"spec": {"taints": [THEIRS]}})
    assert cluster.mark(name, MARK) == "done"
    assert plain(site.node(name)) == [THEIRS, OURS]
    assert cluster.node(name)
    site.cordon(name, "alice", on=False)
    site.cordon(name, "alice")
    assert cluster.lift(name, "inc-1") == "done"
    assert site.node(name)["spec"]["unschedulable"], "someone has cordoned it since"
    assert plain(site.node(name)) == [THEIRS]
    assert cluster.node(name)
    assert cluster.mark(name, MARK) == "done"
    assert cluster.node(name)
    site.cordon(name, "alice", on=False)
    with pytest.raises(NotSent, match="veto"):
        cluster.mark(name, MARK.model_copy(update={"code": "xid-95"}))
