"""A storage server is disrupted only while the installation's own program says that the storage bears it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from activities import signatures as sig
from activities import storage_probe
from activities.failures import Refused
from activities.planning import PlanActivities
from activities.storage_probe import StorageProbe, StorageProbes
from medevac.fleet.node import Node
from medevac.policy.plan import Action
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run
from tests.unit.activities.test_planning import NOW, request

SAYS = """
import json, os, sys
asked = json.load(sys.stdin)
open({log!r}, "a").write(asked["node"] + "\\n")
if os.path.exists({broken!r}):
    sys.exit("2 of 8 backends are down, token " + os.environ["WEKA_TOKEN"])
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """While this file is there, the probe fails."""
    return tmp_path / "broken"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return tmp_path / "asked"


@pytest.fixture
def probes(tmp_path: Path, broken: Path, asked: Path, monkeypatch: pytest.MonkeyPatch) -> StorageProbes:
    monkeypatch.setenv("WEKA_TOKEN", "hunter2hunter2")
    program = tmp_path / "probe.py"
    program.write_text(SAYS.format(log=str(asked), broken=str(broken)))
    return StorageProbes(
        [StorageProbe(name="weka", command=(sys.executable, str(program)), environment=("WEKA_TOKEN",))]
    )


@pytest.fixture
def server(house: House, probes: StorageProbes, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A storage server of a pool that includes such, in mode auto."""
    node = house.busy_node("ironworks")
    policy = YAML(typ="safe").load(house.policies.active().text)
    policy["pools"][node.pool] |= {"includes": ["storage"], "storage_probe": "weka"}
    policy.setdefault("limits", {}).setdefault("at_once", {})["storage"] = {"count": 1, "percent": 0}
    path = house.db.engine.url.database
    assert path is not None
    text = Path(path).with_name("policy.yaml")
    with text.open("w") as file:
        YAML().dump(policy, file)
    house.policies.activate(house.policies.propose(text.read_text(), "ada", NOW), "bob", NOW)
    cluster = house.registry.cluster(CLUSTER)
    read = cluster.node

    def with_role(name: str) -> Node | None:
        found = read(name)
        return found.model_copy(update={"roles": ("storage",)}) if found and name == node.name else found

    monkeypatch.setattr(cluster, "node", with_role)
    house.registry.storage = probes
    return node


@pytest.fixture
def plans(house: House) -> PlanActivities:
    return PlanActivities(house.registry, house.ledger, house.policies, house.census, house.bounded)


def test_it_is_acted_on_while_the_probe_passes_and_asked_once_for_a_moment(
    house: House, plans: PlanActivities, server: Node, asked: Path
) -> None:
    made = [run(plans.plan, request(server)) for _ in range(3)]
    assert {plan.action for plan in made} == {Action.ACT}
    assert {plan.storage_probe for plan in made} == {"weka"}
    assert asked.read_text().split() == [server.name]


def test_a_probe_that_fails_leaves_it_observed_with_its_words_and_is_asked_again(
    house: House, plans: PlanActivities, server: Node, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.touch()
    held = run(plans.plan, request(server))
    assert (held.action, held.mark) == (Action.OBSERVE, False)
    assert "2 of 8 backends are down" in " ".join(held.reasons)
    assert "hunter2" not in held.model_dump_json()
    assert held.watch_s > 0, "it may be over soon"
    monkeypatch.setattr(house.registry.storage._said, "_age_s", 0.0)
    broken.unlink()
    assert run(plans.plan, request(server)).action is Action.ACT


def test_a_probe_that_says_nothing_in_time_is_a_no(
    house: House, plans: PlanActivities, server: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_probe, "ANSWER_S", 0.2)
    house.registry.storage = StorageProbes([StorageProbe(name="weka", command=("sleep", "60"))])
    began = time.monotonic()
    held = run(plans.plan, request(server))
    assert time.monotonic() - began < 20
    assert held.action is Action.OBSERVE
    assert "no answer within 0.2 s" in " ".join(held.reasons)


def test_a_probe_that_nobody_has_configured_is_a_no_that_says_where(
    house: House, plans: PlanActivities, server: Node
) -> None:
    house.registry.storage = StorageProbes()
    held = run(plans.plan, request(server))
    assert held.action is Action.OBSERVE
    assert "the configuration has no `storage_probes` called weka" in " ".join(held.reasons)


def test_nobody_is_asked_about_nodes_that_serve_no_storage(
    house: House, plans: PlanActivities, server: Node, asked: Path
) -> None:
    other = next(n for n in house.world.nodes(CLUSTER) if n.name != server.name and n.pool == server.pool)
    plan = run(plans.plan, request(other))
    assert plan.storage_probe is None
    assert not asked.exists()


def test_a_step_that_begins_looks_once_more(house: House, server: Node, broken: Path) -> None:
    """A lease may have been waited for all day."""
    node = house.marked(server)
    pre = house.pre(node).model_copy(update={"storage_probe": "weka"})
    assert house.look.begin(pre).name == server.name
    broken.touch()
    house.registry.storage._said.drop(f"weka {CLUSTER}/{server.name}")
    with pytest.raises(Refused, match="2 of 8 backends are down"):
        house.look.begin(pre)
    assert sig.Precondition.model_fields["storage_probe"].default is None
    assert pre.incident == INCIDENT
