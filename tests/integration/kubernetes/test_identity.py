"""Another machine under a known name, on a real API server with the real activities: nothing is done to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.ports import Verb
from medevac.incident import Outcome
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.house import INCIDENT, MARK
from tests.integration.kubernetes.kubelet import reboot
from tests.integration.kubernetes.power import Power, PowerHouse
from tests.integration.kubernetes.site import Site
from tests.unit.activities.house import run

LONG = {"start_to_close_s": 300.0, "whole_s": 300.0}
"""Of an attempt: longer than whatever it waits for."""


@pytest.fixture
def house(tmp_path: Path, connect: Connect) -> Iterator[PowerHouse]:
    built = PowerHouse(tmp_path, connect())
    yield built
    built.close()


def again_under_its_name(site: Site, house: PowerHouse, name: str) -> None:
    """The same machine registers anew, and somebody has marked it already: only the UID tells."""
    known = site.node(name)["spec"]["providerID"]
    site.must(site.send("DELETE", site.node_path(name)))
    site.add_node(name, providerID=known)
    house.cluster.mark(name, MARK)


def another_machine(site: Site, house: PowerHouse, name: str) -> None:
    """An address is used again: the new machine joins under the old name."""
    site.must(site.send("DELETE", site.node_path(name)))
    site.add_node(name)
    house.cluster.mark(name, MARK)


def booted(site: Site, house: PowerHouse, name: str) -> None:
    reboot(site, name, "booted-by-someone")


CHANGES = {"uid": again_under_its_name, "machine id": another_machine, "boot id": booted}
Change = Callable[[Site, PowerHouse, str], None]


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("when", ["before the step", "between its look and its call"])
def test_a_machine_that_the_plan_was_not_made_for_is_not_touched(
    site: Site, house: PowerHouse, monkeypatch: pytest.MonkeyPatch, what: str, when: str
) -> None:
    name = site.add_node()
    node = house.marked(name)
    if when == "before the step":
        CHANGES[what](site, house, name)
    else:
        state = Power.state

        def then(power: Power, *args: Any) -> Any:
            # The first look was at the right one.
            CHANGES[what](site, house, name)
            return state(power, *args)

        monkeypatch.setattr(Power, "state", then)
    result = run(house.machines.act, house.act(node, Verb.REBOOT), **LONG)
    assert result.outcome is Outcome.REFUSED, result
    assert "in the plan" in result.reason
    assert house.power.calls == []


def test_a_reboot_that_nothing_shows_is_none(site: Site, house: PowerHouse) -> None:
    """The provider says yes, the node is ready, its boot id is the old one: that is no proof, and not done again."""
    name = site.add_node()
    node = house.marked(name)
    assert run(house.machines.act, house.act(node, Verb.REBOOT), **LONG).outcome is Outcome.DONE
    result = run(house.machines.prove, house.proof(node, Verb.REBOOT, 1))
    assert result.outcome is Outcome.TIMED_OUT
    assert "boot id is still" in result.reason
    assert run(house.machines.act, house.act(node, Verb.REBOOT), **LONG).outcome is Outcome.ALREADY
    assert len(house.power.calls) == 1
    reboot(site, name, "newer")
    proved = run(house.machines.prove, house.proof(node, Verb.REBOOT, 120), whole_s=300)
    assert proved.outcome is Outcome.DONE
    assert proved.identity is not None
    assert proved.identity.boot_id == "newer"


def test_another_machine_under_the_name_proves_nothing_of_ours(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    node = house.marked(name)
    assert run(house.machines.act, house.act(node, Verb.REBOOT), **LONG).outcome is Outcome.DONE
    another_machine(site, house, name)  # ready, and with a boot id of its own
    result = run(house.machines.prove, house.proof(node, Verb.REBOOT, 120), whole_s=300)
    assert result.outcome is Outcome.REFUSED, result
    assert "answers under this name" in result.reason


def test_a_provider_id_that_comes_late_or_changes_is_another_machine(site: Site, house: PowerHouse) -> None:
    """Kubernetes lets the provider's id be set once; a Node without it is known by its system's own id until then."""
    name = site.add_node(providerID="")
    before = house.read(name)
    site.patch(site.node_path(name), {"spec": {"providerID": "aws:///eu-west-1a/i-0123456789abcdef0"}})
    after = house.read(name)
    assert after.uid == before.uid
    assert after.machine.id == "i-0123456789abcdef0" != before.machine.id
    changed = site.send(
        "PATCH", site.node_path(name), {"spec": {"providerID": "aws:///eu-west-1a/i-another"}},
        "application/merge-patch+json",
    )  # fmt: skip
    assert not changed.ok


def test_a_mark_of_a_node_that_was_made_again_is_gone_and_lifting_finds_nothing(site: Site, house: PowerHouse) -> None:
    name = site.add_node()
    house.marked(name)
    site.must(site.send("DELETE", site.node_path(name)))
    site.add_node(name)
    assert house.cluster.lift(name, INCIDENT) == "already"
    node = house.read(name)
    assert node.schedulable
    assert node.marked_by is None
