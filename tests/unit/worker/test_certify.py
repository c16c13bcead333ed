"""A provider is certified by what its machine shows, never by its word; and never on a machine that somebody uses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.ports import MachineState, Verb
from activities.registry import Registry
from medevac.fleet.node import Capability, Node
from simulation.hazards import Effect, Manner
from simulation.layout import IRONWORKS, TEST, Layout
from simulation.world import World
from worker.certify import NOBODY, Certifier, Step, Unfit
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

    def certify(
        self, *, destructive: bool = False, deadline_s: float = 10.0, manner: Manner | None = None
    ) -> list[Step]:
        made = Certifier.of(self.registry, self.stores, IRONWORKS, self.node.machine.id, deadline_s)
        quick = Certifier(
            made.registry, made.stores, made.provider, made.cluster, made.node, deadline_s, poll_s=0.05
        )  # fmt: skip
        steps = []
        for step in quick.run("ada", destructive):
            steps.append(step)
            if step.name == "another machine" and manner:
                self.world.script(Effect.REBOOT, manner)
        return steps

    def effects(self, verb: Effect) -> int:
        return sum(one.applied for one in self.world.effects(verb=verb))


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


def test_the_same_key_again_and_another_machine_are_tried_and_cost_nothing(site: Site) -> None:
    steps = {step.name: step for step in site.certify(destructive=True)}
    assert steps["another machine"].passed
    assert "refused" in steps["another machine"].seen
    assert steps["reboot repeated"].passed
    assert steps["reinstall repeated"].passed
    assert (site.effects(Effect.REBOOT), site.effects(Effect.REINSTALL)) == (1, 1)
    assert site.stores.certificates.proved(IRONWORKS, "") == {Capability.REBOOT, Capability.REINSTALL}
    now = datetime.now(UTC)
    seen = site.stores.scorecards.observed(list(site.world.nodes()), now - timedelta(days=1), now)
    assert not seen.repairs, "no incident's repair was tried, and none has failed"


def test_a_provider_that_takes_any_machine_for_the_nodes_is_not_certified(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = site.registry.provider(IRONWORKS)
    monkeypatch.setattr(provider, "do", lambda verb, node, tag: "ok")
    steps = site.certify()
    assert [step.name for step in steps if step.passed is False] == ["another machine", "certificate"]
    assert not site.stores.certificates.proved(IRONWORKS, "")


def test_a_call_that_comes_true_twice_is_not_certified(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, looks = site.registry.provider(IRONWORKS), []
    state = provider.state

    def restless(node: Node, tag: str) -> MachineState:
        looks.append(tag)
        return state(node, tag).model_copy(update={"image_mark": f"image-{len(looks)}"})

    monkeypatch.setattr(provider, "state", restless)
    failed = [step for step in site.certify() if step.passed is False]
    assert [step.name for step in failed] == ["reboot repeated", "certificate"]
    assert "came twice" in failed[0].seen


def test_a_reboot_proves_a_reboot_and_no_more(site: Site) -> None:
    assert site.certify()[-1].seen == "ironworks is certified to reboot"
    assert site.stores.certificates.proved(IRONWORKS, "") == {Capability.REBOOT}


def test_disks_are_lost_only_when_that_is_asked_for(site: Site) -> None:
    assert site.certify(destructive=True)[-1].passed
    assert (site.effects(Effect.REBOOT), site.effects(Effect.REINSTALL)) == (1, 1)


def test_a_done_that_wasnt_is_no_proof_and_takes_an_older_one_back(site: Site) -> None:
    assert site.certify()[-1].passed
    steps = site.certify(destructive=True, deadline_s=0.5, manner=Manner.LIE)
    assert [step.name for step in steps if step.passed is False] == ["reboot", "certificate"]
    assert site.effects(Effect.REINSTALL) == 0, "nothing follows a step that failed"
    assert not site.stores.certificates.certified(IRONWORKS, "")


def test_an_unclear_answer_is_never_called_again(site: Site) -> None:
    assert site.certify(manner=Manner.TIMEOUT_AFTER)[-1].passed
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

    def slowly(verb: Verb, node: Node, tag: str) -> Any:
        if node.machine.id != NOBODY:
            site.stores.fences.freeze("all", "ada", "a look")
        return do(verb, node, tag)

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
