"""Rungs from within a node, as the activities make them, on a real API server; each test plays the node's kubelet."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities import signatures as sig
from activities.kubernetes.nodes import labels, metadata, notes
from activities.kubernetes.pausing import PAUSED, VALUE
from activities.machines import MachineActivities
from activities.ports import MachineState, NotSent, Provider, Verb
from activities.registry import Registry
from activities.storage.intents import Intents
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Capability, Node
from medevac.incident import Outcome, StepKey, StepResult
from medevac.policy.plan import Drain, Rung
from tests.contracts.rigs import Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import NoMachines, RealHouse
from tests.integration.kubernetes.kubelet import Kubelet, reboot
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import run
from worker.parts import LogChat

NAMESPACE = "medevac-node-side"
PLUGIN, DCGM = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.dcgm"
OPERATOR = {PLUGIN: "true", DCGM: "true", "node.kubernetes.io/instance-type": "bm.gpu"}
ALL: dict[str, Any] = {"image": "none", "agents": ["nvidia-dcgm"], "reset_gpu": {}, "reboot": {}}


class Shop:
    """One marked node, and what is done to it by steps."""

    def __init__(self, site: Site, house: RealHouse, proxy: Proxy) -> None:
        self.site, self.house, self.proxy = site, house, proxy
        self.kubelet = Kubelet(site, NAMESPACE)
        self.intents = Intents(house.db)
        self.name = site.add_node(labels=OPERATOR)
        self.node = house.marked(self.name)
        self.incident = house.leases[self.name].lease_id
        self.step = f"act-{secrets.token_hex(4)}"
        """The clusters of all tests are one, their incidents have one name."""
        self.use(NoMachines())

    def use(self, provider: Provider) -> None:
        house = self.house
        registry = Registry(clusters=[house.cluster], providers=[provider], chat=LogChat())
        self.machines = MachineActivities(registry, house.look, self.intents, house.ledger)

    def act(self, verb: Verb, n: int = 1) -> sig.ActRequest:
        return sig.ActRequest(
            key=StepKey(incident=self.incident, step=self.step, n=n),
            pre=self.house.request(self.node, Drain.NOW, 1).pre,
            verb=verb, fault="xid/119", fault_class=FaultClass.DEGRADED, rung=Rung(verb.value),
        )  # fmt: skip

    def acts(self, verb: Verb, n: int = 1) -> StepResult:
        return run(self.machines.act, self.act(verb, n), start_to_close_s=120, whole_s=300)

    def proves(self, verb: Verb, deadline_s: float = 240.0) -> StepResult:
        request = sig.ProveRequest(
            key=StepKey(incident=self.incident, step="prove"), pre=self.act(verb).pre, verbs=(verb,),
            acted=self.act(verb).key, deadline_s=deadline_s,
        )  # fmt: skip
        return run(self.machines.prove, request, whole_s=900)

    def meanwhile(self, verb: Verb, then: Callable[[], object]) -> StepResult:
        """What the proof says when this happens while it is waited for."""
        reads = len(self.proxy.calls)

        def later() -> None:
            until("the proof is waited for", lambda: len(self.proxy.calls) > reads)
            then()

        other = threading.Thread(target=later)
        other.start()
        proved = self.proves(verb)
        other.join()
        return proved

    def order(self) -> dict[str, Any]:
        (job,) = self.kubelet.jobs()
        (container,) = job["spec"]["template"]["spec"]["containers"]
        found: dict[str, Any] = json.loads({one["name"]: one["value"] for one in container["env"]}["MEDEVAC_ORDER"])
        return found

    def labels(self) -> dict[str, str]:
        return labels(self.site.node(self.name))


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[RealHouse]:
    built = RealHouse(tmp_path, connect(node_side=ALL))
    yield built
    built.close()


@pytest.fixture
def shop(site: Site, house: RealHouse, proxy: Proxy) -> Iterator[Shop]:
    shop = Shop(site, house, proxy)
    yield shop
    shop.kubelet.close()


# -- what it can -------------------------------------------------------------------------------------------------------


def test_a_node_can_what_its_configuration_names_while_its_kubelet_answers(
    site: Site, connect: Connect, house: RealHouse
) -> None:
    metal, virtual = house.read(site.add_node(labels=OPERATOR)), house.read(site.add_node())
    three = {Capability.RESTART_AGENT, Capability.RESET_GPU, Capability.REBOOT}
    assert house.cluster.node_capabilities(metal) == three
    assert Capability.RESET_GPU not in house.cluster.node_capabilities(virtual), "a guest's reset is asked for by name"
    trusting = connect(node_side={**ALL, "reset_gpu": {"virtual": True}})
    assert trusting.node_capabilities(virtual) == three
    assert house.cluster.node_capabilities(metal.model_copy(update={"ready": False})) == frozenset()
    assert connect().node_capabilities(metal) == frozenset()
    assert connect(node_side={"image": "none"}).node_capabilities(metal) == frozenset()


@pytest.mark.parametrize("verb", sorted(Verb))
def test_what_it_cannot_is_refused_for_good(site: Site, connect: Connect, house: RealHouse, verb: Verb) -> None:
    node = house.read(site.add_node(labels=OPERATOR))
    key = StepKey(incident="inc-1", step="act")
    for cluster in (connect(), connect(node_side={"image": "none"})):
        with pytest.raises(NotSent) as refusal:
            cluster.do_on_node(verb, node, key)
        assert refusal.value.final
    if verb.value not in house.cluster.node_capabilities(node):
        with pytest.raises(NotSent) as refusal:
            house.cluster.do_on_node(verb, node, key)
        assert refusal.value.final
    assert Kubelet(site, NAMESPACE).jobs() == []


# -- once --------------------------------------------------------------------------------------------------------------


def test_an_order_is_one_privileged_pod_on_the_node_for_this_boot(shop: Shop) -> None:
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.DONE
    spec = shop.kubelet.pod()["spec"]
    assert spec["nodeName"] == shop.name
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["securityContext"]["privileged"] is True
    order = shop.order()
    assert (order["verb"], order["units"]) == ("restart_agent", ["nvidia-dcgm"])
    assert order["boot_id"] == shop.node.machine.boot_id


def test_a_second_attempt_and_a_second_call_begin_nothing(shop: Shop) -> None:
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.DONE
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.ALREADY
    again = shop.house.cluster.do_on_node(Verb.RESTART_AGENT, shop.node, shop.act(Verb.RESTART_AGENT).key)
    assert "begun before" in str(again)
    assert len(shop.kubelet.jobs()) == 1


def test_no_answer_is_waited_for_and_never_called_again(shop: Shop) -> None:
    shop.proxy.script("POST", "/jobs", Trouble.TIMEOUT_AFTER)
    acted = shop.acts(Verb.RESTART_AGENT)
    assert (acted.outcome, acted.proof["unclear"]) == (Outcome.DONE, True)
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.ALREADY
    pod = shop.kubelet.pod()
    done = {"mark": "nvidia-dcgm=1f", "reason": ""}
    assert shop.meanwhile(Verb.RESTART_AGENT, lambda: shop.kubelet.ends(pod, done)).outcome is Outcome.DONE


def test_what_was_never_begun_fails_at_once_and_is_not_called_again(shop: Shop) -> None:
    shop.proxy.script("POST", "/jobs", Trouble.TIMEOUT_BEFORE)
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.DONE
    proved = shop.proves(Verb.RESTART_AGENT)
    assert proved.outcome is Outcome.FAILED
    assert "never begun" in proved.reason
    assert shop.kubelet.jobs() == []


# -- proof -------------------------------------------------------------------------------------------------------------


def test_an_agents_restart_is_proved_by_its_new_invocation(shop: Shop) -> None:
    shop.acts(Verb.RESTART_AGENT)
    pod = shop.kubelet.pod()
    shop.kubelet.starts(pod)
    proved = shop.meanwhile(Verb.RESTART_AGENT, lambda: shop.kubelet.ends(pod, {"mark": "nvidia-dcgm=1f"}))
    assert proved.outcome is Outcome.DONE
    state = proved.proof["state"]
    assert isinstance(state, dict)
    assert state["gpu_reset_mark"] == "nvidia-dcgm=1f"


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ({"mark": "", "reason": "still in use by python (77)"}, 3, "still in use by python (77)"),
        ({"mark": "", "reason": "nvidia-smi: exit 2"}, 1, "nvidia-smi: exit 2"),
        ({"mark": "invented", "reason": "no"}, 1, "in vain"),
        ("not an answer", 0, "did not say how it ended"),
    ],
)
def test_what_did_not_work_fails_with_its_reason_before_the_deadline(
    shop: Shop, message: Any, code: int, said: str
) -> None:
    shop.acts(Verb.RESET_GPU)
    shop.kubelet.ends(shop.kubelet.pod(), message, code)
    proved = shop.proves(Verb.RESET_GPU, deadline_s=240)
    assert proved.outcome is Outcome.FAILED
    assert said in proved.reason


def test_a_pod_that_never_starts_fails_with_what_it_waited_for(shop: Shop) -> None:
    shop.acts(Verb.RESTART_AGENT)
    pod = shop.kubelet.pod()
    shop.kubelet.waits(pod, "ImagePullBackOff", 'Back-off pulling image "none"')
    proved = shop.meanwhile(Verb.RESTART_AGENT, lambda: shop.kubelet.time_is_over(shop.kubelet.jobs()[0]))
    assert proved.outcome is Outcome.FAILED
    assert "never started" in proved.reason


def test_a_job_that_somebody_removed_fails_and_is_not_made_again(shop: Shop) -> None:
    shop.acts(Verb.RESTART_AGENT)
    shop.kubelet.pod()
    shop.kubelet.remove(shop.kubelet.jobs()[0])
    proved = shop.proves(Verb.RESTART_AGENT)
    assert proved.outcome is Outcome.FAILED
    assert shop.acts(Verb.RESTART_AGENT).outcome is Outcome.ALREADY
    assert shop.kubelet.jobs() == []


# -- GPU reset ---------------------------------------------------------------------------------------------------------


def test_the_operators_pods_leave_for_a_reset_and_come_back_after_it(shop: Shop) -> None:
    shop.acts(Verb.RESET_GPU)
    assert (shop.labels()[PLUGIN], shop.labels()[DCGM]) == (VALUE, VALUE)
    assert json.loads(notes(shop.site.node(shop.name))[PAUSED]) == {PLUGIN: "true", DCGM: "true"}
    pod = shop.kubelet.pod()
    proved = shop.meanwhile(Verb.RESET_GPU, lambda: shop.kubelet.ends(pod, {"mark": "all at 1"}))
    assert proved.outcome is Outcome.DONE
    assert (shop.labels()[PLUGIN], shop.labels()[DCGM]) == ("true", "true")
    assert PAUSED not in notes(shop.site.node(shop.name))


def test_they_come_back_after_a_reset_in_vain_too(shop: Shop) -> None:
    shop.acts(Verb.RESET_GPU)
    shop.kubelet.ends(shop.kubelet.pod(), {"reason": "in use"}, 3)
    assert shop.proves(Verb.RESET_GPU).outcome is Outcome.FAILED
    assert shop.labels()[PLUGIN] == "true"


def test_lifting_the_mark_brings_them_back_whatever_happened(shop: Shop) -> None:
    shop.acts(Verb.RESET_GPU)
    shop.site.patch(shop.site.node_path(shop.name), {"metadata": {"labels": {DCGM: "false"}}})
    shop.house.cluster.lift(shop.name, shop.incident)
    assert (shop.labels()[PLUGIN], shop.labels()[DCGM]) == ("true", "false"), "what people set since stays"
    assert PAUSED not in notes(shop.site.node(shop.name))


def test_what_was_off_before_stays_off(site: Site, house: RealHouse, proxy: Proxy) -> None:
    shop = Shop(site, house, proxy)
    shop.site.patch(shop.site.node_path(shop.name), {"metadata": {"labels": {DCGM: "false"}}})
    shop.acts(Verb.RESET_GPU)
    assert (shop.labels()[PLUGIN], shop.labels()[DCGM]) == (VALUE, "false")
    shop.kubelet.ends(shop.kubelet.pod(), {"mark": "all at 1"})
    assert shop.proves(Verb.RESET_GPU).outcome is Outcome.DONE
    assert (shop.labels()[PLUGIN], shop.labels()[DCGM]) == ("true", "false")
    shop.kubelet.close()


# -- reboot ------------------------------------------------------------------------------------------------------------


def test_a_reboot_from_within_is_proved_by_the_next_boot_only(shop: Shop) -> None:
    shop.acts(Verb.REBOOT)
    pod = shop.kubelet.pod()
    shop.kubelet.starts(pod)
    # Its pod dies with the node and says nothing: that is neither a proof nor a failure.
    shop.kubelet.fails(pod, "Terminated", started=True)
    assert shop.proves(Verb.REBOOT, deadline_s=2).outcome is Outcome.TIMED_OUT
    proved = shop.meanwhile(Verb.REBOOT, lambda: reboot(shop.site, shop.name, "the-next"))
    assert proved.outcome is Outcome.DONE
    assert proved.identity is not None
    assert proved.identity.boot_id == "the-next"


def test_a_node_that_hangs_both_ways_fails_with_its_words(shop: Shop) -> None:
    shop.acts(Verb.REBOOT)
    said = "still up 75 s after systemctl reboot; still up after sysrq"
    shop.kubelet.ends(shop.kubelet.pod(), {"reason": said}, 1)
    proved = shop.proves(Verb.REBOOT)
    assert proved.outcome is Outcome.FAILED
    assert said in proved.reason


class Bmc(NoMachines):
    """Reboots from outside."""

    def __init__(self) -> None:
        self.calls: list[Verb] = []

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return frozenset({Capability.REBOOT})

    def state(self, node: Node, tag: str) -> MachineState:
        return MachineState(exists=True, power="on", ready=True)

    def do(self, verb: Verb, node: Node, tag: str) -> str:
        self.calls.append(verb)
        return "ok"


def test_who_can_reboot_from_outside_does(shop: Shop) -> None:
    bmc = Bmc()
    shop.use(bmc)
    assert shop.acts(Verb.REBOOT).outcome is Outcome.DONE
    assert bmc.calls == [Verb.REBOOT]
    assert shop.kubelet.jobs() == []
    assert shop.acts(Verb.RESTART_AGENT, n=2).outcome is Outcome.DONE
    assert bmc.calls == [Verb.REBOOT]
    assert len(shop.kubelet.jobs()) == 1


# -- rights ------------------------------------------------------------------------------------------------------------


def test_the_shipped_rights_are_enough_and_what_is_missing_is_named(connect: Connect, house: RealHouse) -> None:
    assert house.cluster.missing_rights() == []
    marking = connect("mark", node_side=ALL)
    assert marking.missing_rights() == ["create jobs.batch in medevac-node-side"]


def test_its_jobs_are_not_drained_from_the_node(shop: Shop) -> None:
    shop.acts(Verb.RESTART_AGENT)
    pod = shop.kubelet.starts(shop.kubelet.pod())
    (seen,) = shop.house.cluster.pods(shop.name)
    assert seen.uid == metadata(pod)["uid"]
    assert (seen.tier, seen.tolerates_mark) == ("daemon", True)
    assert shop.house.cluster.workloads(shop.name) == []
