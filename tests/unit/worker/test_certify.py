"""A provider is certified by what its machine shows, never by its word; and never on a machine that somebody uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.registry import Registry
from medevac.fleet.node import Node
from simulation.hazards import Effect, Manner
from simulation.layout import IRONWORKS, TEST, Layout
from simulation.world import World
from worker.certify import Certifier, Step, Unfit
from worker.cli.app import run
from worker.home import Home
from worker.installation import find_config
from worker.parts import build_registry
from worker.settings import load_settings
from worker.setup import prepare_ledger
from worker.stores import Stores, open_stores


class Site:
    """A simulated installation with one cordoned, empty machine of `ironworks`."""

    def __init__(self, path: Path) -> None:
        home = Home(path)
        home.make(Layout(nodes=16, spares=0, busy=0.0, durations=TEST))
        self.config = home.config
        settings = load_settings(config=home.config, data_dir=path)
        self.registry: Registry = build_registry(find_config(settings), path)
        self.stores: Stores = open_stores(settings.database)
        prepare_ledger(self.stores, self.registry, home.demo_policy())
        self.world = World(home.world)
        cluster = self.registry.clusters()[0]
        self.node: Node = next(
            n
            for n in self.world.nodes()
            if n.machine.provider == IRONWORKS and all(pod.tier == "daemon" for pod in cluster.pods(n.name))
        )
        self.world.cordon(self.node.name, "ada")

    def certify(self, *, destructive: bool = False, deadline_s: float = 10.0) -> list[Step]:
        made = Certifier.of(self.registry, self.stores, IRONWORKS, self.node.machine.id, deadline_s)
        quick = Certifier(
            made.registry, made.stores, made.provider, made.cluster, made.node, deadline_s, poll_s=0.05
        )  # fmt: skip
        return list(quick.run("ada", destructive))

    def effects(self, verb: Effect) -> int:
        return len(self.world.effects(verb=verb))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("MEDEVAC_DATA_DIR", str(tmp_path))
    site = Site(tmp_path)
    monkeypatch.setenv("MEDEVAC_CONFIG", str(site.config))
    return site


def test_a_reboot_that_is_proved_certifies(site: Site) -> None:
    before = site.node.machine.boot_id
    steps = {step.name: step for step in site.certify()}
    assert steps["certificate"].passed
    assert str(before) in steps["reboot"].seen
    assert steps["reinstall"].passed is None
    assert (site.effects(Effect.REBOOT), site.effects(Effect.REINSTALL)) == (1, 0)
    found = site.stores.certificates.newest(IRONWORKS)
    assert found is not None
    assert (found.passed, found.by, found.machine_id) == (True, "ada", site.node.machine.id)
    assert "reboot" in str(found.proof)


def test_disks_are_lost_only_when_that_is_asked_for(site: Site) -> None:
    assert site.certify(destructive=True)[-1].passed
    assert (site.effects(Effect.REBOOT), site.effects(Effect.REINSTALL)) == (1, 1)


def test_a_done_that_wasnt_is_no_proof_and_takes_an_older_one_back(site: Site) -> None:
    assert site.certify()[-1].passed
    site.world.script(Effect.REBOOT, Manner.LIE)
    steps = site.certify(destructive=True, deadline_s=0.5)
    assert [step.name for step in steps if step.passed is False] == ["reboot", "certificate"]
    assert site.effects(Effect.REINSTALL) == 0, "nothing follows a step that failed"
    assert not site.stores.certificates.certified(IRONWORKS)


def test_an_unclear_answer_is_never_called_again(site: Site) -> None:
    site.world.script(Effect.REBOOT, Manner.TIMEOUT_AFTER)
    assert site.certify()[-1].passed
    assert site.effects(Effect.REBOOT) == 1


def test_a_machine_that_takes_work_or_has_it_is_refused(site: Site) -> None:
    site.world.uncordon(site.node.name)
    with pytest.raises(Unfit, match="cordon it first"):
        site.certify()
    with pytest.raises(Unfit, match="no node of any cluster"):
        Certifier.of(site.registry, site.stores, IRONWORKS, "nosuch")
    with pytest.raises(Unfit, match="no provider is called"):
        Certifier.of(site.registry, site.stores, "nosuch", site.node.machine.id)
    site.world.cordon(site.node.name, "ada")
    site.stores.fences.freeze("all", "ada", "a look")
    with pytest.raises(Unfit, match="frozen"):
        site.certify()
    assert site.effects(Effect.REBOOT) == 0


def test_a_freeze_while_its_provider_looks_stops_the_call(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = site.registry.provider(IRONWORKS)
    do = provider.do

    def slowly(*given: Any) -> Any:
        site.stores.fences.freeze("all", "ada", "a look")
        return do(*given)

    monkeypatch.setattr(provider, "do", slowly)
    reboot = next(step for step in site.certify() if step.name == "reboot")
    assert reboot.passed is False
    assert "frozen: all by ada" in reboot.seen
    assert site.effects(Effect.REBOOT) == 0


def test_pods_refuse_it(site: Site) -> None:
    with site.world.write() as m:
        m.run("UPDATE pods SET tier = 'workload' WHERE machine = ?", site.node.machine.id)
    with pytest.raises(Unfit, match=r"pods run on .*empty it first"):
        site.certify()


def test_the_machines_id_must_be_typed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    order = ["provider", "certify", IRONWORKS, "--machine", site.node.machine.id, "--confirm"]
    assert run([*order, "another"]) == 2
    assert site.effects(Effect.REBOOT) == 0
    assert run([*order, site.node.machine.id]) == 0
    assert "ironworks is certified" in capsys.readouterr().out
