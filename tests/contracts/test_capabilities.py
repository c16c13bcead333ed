"""What the planner offers can be carried out, and by whom: over all that the adapters of one machine may say."""

from __future__ import annotations

from importlib.metadata import entry_points
from itertools import combinations
from pathlib import Path

import pytest
from pydantic import JsonValue

from activities.means import Means, WithinNode
from activities.ports import NEEDS, MachineState, NotSent, Provider, Verb
from activities.registry import NotConfigured
from medevac.fleet.node import Capability, Node
from medevac.incident import StepKey
from medevac.policy import climbing
from medevac.policy.plan import Action, Rung
from tests.unit.policy.cases import bare, decide, node, policy, with_pool
from workflows.remediation import VERBS

KEY = StepKey(incident="inc-1", step="act")
WITHIN = (Capability.RESTART_AGENT, Capability.RESET_GPU, Capability.REBOOT)
OUTSIDE = (*WITHIN, Capability.REINSTALL, Capability.REPLACE, Capability.TERMINATE)


class Scripted:
    """Both sides of a machine; each can what the test says."""

    name = "scripted"
    simulated = False

    def __init__(self, can: frozenset[Capability]) -> None:
        self.can = can
        self.done: list[Verb] = []

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return self.can

    def state(self, node: Node, tag: str) -> MachineState:
        return MachineState(exists=True)

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        if NEEDS[verb] not in self.can:
            raise NotSent("can't", final=True)
        self.done.append(verb)
        return None

    def node_capabilities(self, node: Node) -> frozenset[Capability]:
        return self.can

    def node_state(self, node: Node, key: StepKey) -> MachineState:
        return MachineState(exists=True, told_by="node")

    def do_on_node(self, verb: Verb, node: Node, key: StepKey) -> JsonValue:
        return self.do(verb, node, str(key))

    def proceed_on_node(self, verb: Verb, node: Node, key: StepKey) -> str | None:
        return None


def subsets(of: tuple[Capability, ...]) -> list[frozenset[Capability]]:
    return [frozenset(some) for size in range(len(of) + 1) for some in combinations(of, size)]


def test_a_rung_and_its_verbs_need_the_same() -> None:
    for rung, verbs in VERBS.items():
        assert climbing.NEEDS[rung] in {NEEDS[verb] for verb in verbs}


@pytest.mark.parametrize("rung", sorted(VERBS))
@pytest.mark.parametrize("where", [node(), bare()], ids=["virtual", "bare"])
def test_no_rung_is_planned_that_no_adapter_of_the_machine_has(rung: Rung, where: Node) -> None:
    ladder = {"try": [{"rung": rung}, {"rung": "escalate"}]}
    under = with_pool(policy(ladders={**policy().model_dump(mode="json")["ladders"], **ladder}), ladder="try")
    planned = 0
    telling = {*(NEEDS[verb] for verb in VERBS[rung]), Capability.REBOOT}
    for outside in subsets(tuple(can for can in OUTSIDE if can in telling)):
        for within in subsets(tuple(can for can in WITHIN if can in telling)):
            provider, cluster = Scripted(outside), Scripted(within)
            means = Means(provider, cluster)
            machine = where.machine.model_copy(update={"capabilities": means.capabilities(where)})
            here = where.model_copy(update={"machine": machine})
            plan = decide("xid/79", under=under, where=here)
            if plan.action is not Action.ACT or plan.rung is not rung:
                continue
            planned += 1
            for verb in VERBS[rung]:
                means.by(verb, here, KEY).do(verb, here, "inc-1")
                doers = [one for one in (provider, cluster) if one.done]
                assert len(doers) == 1
                assert doers[0] is provider or NEEDS[verb] not in outside, "from outside where that can be"
                doers[0].done.clear()
    assert planned, "some adapter must be able to"


def test_who_told_a_state_is_asked_again_also_when_it_could_not_do_it_any_more() -> None:
    provider: Provider = Scripted(frozenset())
    means = Means(provider, Scripted(frozenset()))
    assert isinstance(means.again("node", node(), KEY), WithinNode)
    assert means.again("provider", node(), KEY) is provider


def test_a_machine_without_any_adapter_says_which_is_missing() -> None:
    with pytest.raises(NotConfigured, match="skyline"):
        Means(None, None).by(Verb.REBOOT, node(), KEY)
    assert Means(None, None).capabilities(node()) == frozenset()


@pytest.mark.parametrize(
    ("group", "suites"),
    [
        ("providers", ("ProviderContract", "ReplacingContract")),
        ("clusters", ("ClusterContract",)),
        ("checks", ("ChecksContract",)),
        ("tickets", ("TicketsContract", "ThreadContract")),
        ("chat", ("ChatContract",)),
    ],
)
def test_every_adapter_that_is_installed_obeys_its_contract(group: str, suites: tuple[str, ...]) -> None:
    tests = Path(__file__).parents[1]
    holding = [
        file.parent for file in tests.rglob("test_*.py") if any(f"({suite})" in file.read_text() for suite in suites)
    ]
    assert holding
    for entry in entry_points(group=f"medevac.{group}"):
        if not entry.value.startswith("activities."):
            continue
        package = entry.value.partition(":")[0]
        package = package if group in ("checks", "clusters") else ".".join(package.split(".")[:3])
        found = [folder for folder in holding if any(package in file.read_text() for file in folder.glob("*.py"))]
        assert found, f"no suite of tests/contracts runs over {entry.value}"
