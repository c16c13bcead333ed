"""A node that nobody hears, on a real API server: it is never called drained, and held to until its machine is off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.kubernetes import eviction
from activities.kubernetes.nodes import metadata, notes
from activities.ports import MachineState, NotSent, Verb
from medevac.incident import Outcome
from medevac.policy.plan import Drain
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import INCIDENT
from tests.integration.kubernetes.kubelet import dies
from tests.integration.kubernetes.power import PowerHouse
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import run

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FROZEN = {"test.medevac.dev/ends-after": "1h"}
"""A pod that nobody ends: its kubelet is gone."""
ON, OFF, GONE = (
    MachineState(exists=True, power="on"),
    MachineState(exists=True, power="off"),
    MachineState(exists=False),
)


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[PowerHouse]:
    built = PowerHouse(tmp_path, connect())
    yield built
    built.close()


def taints(site: Site, name: str) -> set[str]:
    return {taint["key"] for taint in site.node(name)["spec"].get("taints") or ()}


def attach(site: Site, name: str) -> Callable[[], object]:
    """A volume of a pod on the node; returns how it is detached, which no controller does here."""
    site.create("/apis/storage.k8s.io/v1/volumeattachments", {
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": site.run},
        "spec": {"attacher": "csi.example.com", "nodeName": name, "source": {"persistentVolumeName": site.run}},
    })  # fmt: skip
    return lambda: site.must(site.send("DELETE", f"/apis/storage.k8s.io/v1/volumeattachments/{site.run}"))


def evacuate(house: PowerHouse, node: Any, drain_s: float, grace_s: float = 1, drain: Drain = Drain.NOW) -> Any:
    return run(house.drains.evacuate, house.request(node, drain, drain_s, grace_s), start_to_close_s=900, whole_s=900)


def test_a_silent_node_is_not_called_drained_and_not_waited_for(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    csi = [{"name": "s", "hostPath": {"path": "/var/lib/kubelet/plugins/x"}}]
    site.pod("storage", name, gpus=0, volumes=csi, annotations=FROZEN)
    site.pod("train", name, annotations=FROZEN)
    node = house.marked(name)
    dies(site, name)
    before = time.monotonic()
    result = evacuate(house, node, 600)
    assert result.outcome is Outcome.UNREACHABLE, result
    assert time.monotonic() - before < 300, "not until the deadline, as though it were alive"
    # Both tiers were told: none is held up by pods that will not be seen to end.
    assert f"{site.run}/storage, {site.run}/train were told to end" in result.reason
    assert all("deletionTimestamp" in metadata(pod) for pod in site.pods())
    assert len(site.pods()) == 2
    assert OUT_OF_SERVICE not in taints(site, name)
    # Whatever needs the node's own agent is not done to it; what ends the whole machine may follow.
    acted = run(house.machines.act, house.act(house.read(name), Verb.RESET_GPU))
    assert acted.outcome is Outcome.FAILED
    assert run(house.machines.act, house.act(house.read(name), Verb.REBOOT)).outcome is Outcome.DONE
    assert [verb for verb, _ in house.power.calls] == [Verb.REBOOT]


def test_a_node_that_is_not_ready_but_answers_is_drained_as_ever(
    site: Site, house: PowerHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.add_node()
    site.pod("train", name, annotations=FROZEN)
    node = house.marked(name)
    site.patch(site.node_path(name), {"metadata": {"annotations": {"test.medevac.dev/dead": "true"}}})
    condition = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
    kind = "application/strategic-merge-patch+json"
    site.patch(site.node_path(name, "status"), {"status": {"conditions": condition}}, kind=kind)
    house.power.now = OFF
    house.ends_after_an_eviction(monkeypatch)
    result = evacuate(house, node, 240)
    assert result.outcome is Outcome.TIMED_OUT, result
    assert OUT_OF_SERVICE not in taints(site, name)


def test_a_machine_that_is_proved_off_lets_go_of_pods_and_volumes(site: Site, house: PowerHouse) -> None:
    """Kubernetes' own collector ends them, on the word of the taint, which is taken back."""
    name = site.add_node()
    site.pod("train", name, annotations=FROZEN)
    detach = attach(site, name)
    node = house.marked(name)
    theirs = {"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}
    site.patch(site.node_path(name), {"spec": {"taints": [*site.node(name)["spec"]["taints"], theirs]}})
    dies(site, name)
    house.power.now = OFF
    seen: list[bool] = []
    free = house.cluster.free

    def watched(*args: Any, **more: Any) -> list[str]:
        held = free(*args, **more)
        seen.append(OUT_OF_SERVICE in taints(site, name))
        if held and not site.pods():
            detach()
        return held

    house.cluster.free = watched  # type: ignore[method-assign]
    result = evacuate(house, node, 400)
    assert result.outcome.ok, result
    assert result.outcome is not Outcome.UNREACHABLE
    assert site.pods() == []
    assert seen[0]
    assert not seen[-1]
    assert taints(site, name) >= {"example.com/theirs", "medevac.dev/unhealthy"}
    assert "medevac.dev/freed-by" not in notes(site.node(name))
    assert house.read(name).marked_by == INCIDENT


def test_a_terminated_machine_lets_go_once_that_is_proved_and_its_node_is_forgotten(
    site: Site, house: PowerHouse, allowed: Callable[[str], None]
) -> None:
    allowed("forget")
    name = site.add_node()
    site.pod("train", name, annotations=FROZEN)
    node = house.marked(name)
    dies(site, name)
    assert run(house.machines.act, house.act(node, Verb.TERMINATE)).outcome is Outcome.DONE
    # On its way, and still on: nothing is let go.
    assert run(house.machines.prove, house.proof(node, Verb.TERMINATE, 1)).outcome is Outcome.TIMED_OUT
    assert OUT_OF_SERVICE not in taints(site, name)
    assert len(site.pods()) == 1
    house.power.now = GONE
    result = run(house.machines.prove, house.proof(node, Verb.TERMINATE, 400), start_to_close_s=900, whole_s=900)
    assert result.outcome is Outcome.DONE, result
    assert site.pods() == []
    assert site.get(site.node_path(name)) is None


def test_a_freeze_holds_what_a_gone_machine_held_and_a_thaw_lets_it_go(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    site.pod("train", name, annotations=FROZEN)
    node = house.marked(name)
    assert run(house.machines.act, house.act(node, Verb.TERMINATE)).outcome is Outcome.DONE
    dies(site, name)
    house.power.now = OFF
    house.fences.freeze("all", "kim", "wait")
    proved = run(house.machines.prove, house.proof(node, Verb.TERMINATE, 2))
    assert proved.outcome is Outcome.DONE, "that its machine is off is proved all the same"
    assert "could not be let go: frozen: all by kim: wait" in proved.reason
    assert OUT_OF_SERVICE not in taints(site, name)
    assert ["deletionTimestamp" in metadata(pod) for pod in site.pods()] == [False]
    for person in ("ada", "grace"):
        house.fences.thaw("all", person)
    proof = house.proof(node, Verb.TERMINATE, 100)
    assert run(house.machines.prove, proof, start_to_close_s=200, whole_s=200).outcome is Outcome.DONE
    assert site.pods() == []


def test_a_freeze_between_two_deletions_stops_the_second(
    site: Site, house: PowerHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.add_node()
    for pod in ("one", "two", "three"):
        site.pod(pod, name, annotations=FROZEN, held=True)
    node = house.marked(name)
    dies(site, name)
    delete, deleted = eviction.delete, list[str]()

    def then_freeze(client: Any, pod: Any, grace_s: float) -> Any:
        answer = delete(client, pod, grace_s)
        deleted.append(pod.name)
        house.fences.freeze("all", "kim", "wait")
        return answer

    monkeypatch.setattr(eviction, "delete", then_freeze)
    pre = house.pre(node)
    with house.look.again(pre, node), pytest.raises(NotSent, match="frozen: all by kim"):
        house.cluster.free(house.read(name), gone=False)
    assert len(deleted) == 1, "the others are Kubernetes' own to end"


def test_nothing_is_let_go_while_a_machine_reboots(site: Site, house: PowerHouse) -> None:
    """Off for a moment, as a power cycle has it: what ran there may run again."""
    name = site.add_node()
    site.pod("train", name, annotations=FROZEN)
    node = house.marked(name)
    assert run(house.machines.act, house.act(node, Verb.REBOOT)).outcome is Outcome.DONE
    dies(site, name)
    house.power.now = OFF
    result = run(house.machines.prove, house.proof(node, Verb.REBOOT, 1))
    assert result.outcome is Outcome.TIMED_OUT
    assert OUT_OF_SERVICE not in taints(site, name)
    assert ["deletionTimestamp" in metadata(pod) for pod in site.pods()] == [False]


def test_a_node_that_still_answers_is_believed(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    site.pod("train", name)
    with pytest.raises(NotSent, match="still answers"):
        house.cluster.free(house.read(name), gone=True)
    assert site.get(site.node_path(name)) is not None
    assert ["deletionTimestamp" in metadata(pod) for pod in site.pods()] == [False]


@pytest.mark.parametrize("what", ["node", "machine"])
def test_another_machine_under_the_name_lets_go_of_nothing(site: Site, house: PowerHouse, what: str) -> None:
    name = site.add_node()
    before = house.read(name)
    known = site.node(name)["spec"]["providerID"]
    site.must(site.send("DELETE", site.node_path(name)))
    site.add_node(name, providerID=known if what == "node" else f"{known}x")
    dies(site, name)
    site.pod("new-work", name, annotations=FROZEN)
    with pytest.raises(NotSent, match="machine") as refusal:
        house.cluster.free(before, gone=False)
    assert refusal.value.final
    assert OUT_OF_SERVICE not in taints(site, name)
    assert ["deletionTimestamp" in metadata(pod) for pod in site.pods()] == [False]


def test_the_taint_is_taken_back_also_by_lifting_but_only_ours(site: Site, house: PowerHouse) -> None:
    name, other = site.add_node(), site.add_node()
    site.pod("train", name, annotations=FROZEN, held=True)
    for each in (name, other):
        house.marked(each)
    dies(site, name)
    assert house.cluster.free(house.read(name), gone=False) == [f"pod {site.run}/train"]
    until("its word stands", lambda: OUT_OF_SERVICE in taints(site, name))
    assert house.cluster.lift(name, INCIDENT) == "done"
    assert not taints(site, name) & {OUT_OF_SERVICE, "medevac.dev/unhealthy"}
    theirs = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    site.patch(site.node_path(other), {"spec": {"taints": [*site.node(other)["spec"]["taints"], theirs]}})
    assert house.cluster.lift(other, INCIDENT) == "done"
    assert OUT_OF_SERVICE in taints(site, other)


def test_without_the_right_to_forget_a_node_it_stays_and_nothing_waits_for_it(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    house.marked(name)
    dies(site, name)
    assert house.cluster.free(house.read(name), gone=True) == []
    assert site.get(site.node_path(name)) is not None
    assert OUT_OF_SERVICE not in taints(site, name)
