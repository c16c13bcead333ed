"""`medevac provider certify` on each provider's emulator or stand-in: every step that it has, to its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from activities.ports import Cluster, Pod, Provider, Verb
from activities.registry import Registry
from medevac.fleet.node import Capability, Node
from tests.contracts.desk import RigCluster
from tests.contracts.rigs import ProviderRig, Trouble
from tests.integration.providers.aws_rig import AwsRig, StopStartRig
from tests.integration.providers.bmcs import Bmcs
from tests.integration.providers.command_rig import CommandRig
from tests.integration.providers.far_side import FarSide
from tests.integration.providers.neocloud import Neocloud
from tests.integration.providers.redfish_rig import RedfishRig
from worker.certify import Certifier, Step
from worker.stores import Stores, open_stores

NAMES = ("aws", "redfish", "command")


class Emptied(RigCluster):
    """The rig's cluster with its node cordoned and empty. Time passes at the far side with every look."""

    def node(self, name: str) -> Node | None:
        self._rig.pass_time()
        found = super().node(name)
        return None if found is None else found.model_copy(update={"schedulable": False})

    def pods(self, node: str) -> list[Pod]:
        return []


class Parts:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def provider(self, name: str) -> Provider:
        return self._provider

    def form(self, name: str) -> str:
        return ""


@pytest.fixture(params=NAMES)
def rig(request: pytest.FixtureRequest) -> ProviderRig:
    match request.param:
        case "aws":
            return AwsRig(cast(FarSide, request.getfixturevalue("far")))
        case "redfish":
            return RedfishRig(cast(Bmcs, request.getfixturevalue("bmcs")))
        case _:
            return CommandRig(cast(Neocloud, request.getfixturevalue("neocloud")))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = open_stores(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    stores.database.upgrade()
    yield stores
    stores.database.close()


Certify = Callable[..., dict[str, Step]]


@pytest.fixture
def certify(stores: Stores) -> Certify:
    def run(
        rig: ProviderRig, destructive: bool, deadline_s: float = 120.0, trouble: Trouble | None = None
    ) -> dict[str, Step]:
        registry, cluster = cast(Registry, Parts(rig.provider)), cast(Cluster, Emptied(rig))
        made = Certifier(registry, stores, rig.provider, cluster, rig.node, deadline_s=deadline_s, poll_s=0.05)
        found = {}
        for step in made.run("ada", destructive):
            found[step.name] = step
            if step.name == "another machine" and trouble:
                rig.trouble(Verb.REBOOT, trouble)
        return found

    return run


def test_it_is_certified_by_what_its_machine_shows(rig: ProviderRig, certify: Certify, stores: Stores) -> None:
    steps = certify(rig, True)
    assert steps["certificate"].passed, "\n".join(map(str, steps.values()))
    can = rig.provider.capabilities(rig.node)
    for verb in (Verb.REBOOT, Verb.REINSTALL):
        if Capability(verb.value) in can:
            assert steps[verb].passed, steps[verb]
            assert rig.applied(verb) == 1
            assert steps[f"{verb} repeated"].passed, steps[f"{verb} repeated"]
    assert steps["another machine"].passed, steps["another machine"]
    assert stores.certificates.certified(rig.provider.name, "")


def test_a_reboot_that_loses_disks_is_tried_only_where_that_is_wanted(
    far: FarSide, certify: Certify, stores: Stores
) -> None:
    rig = StopStartRig(far)
    careful = certify(rig, False)
    assert (careful["reboot"].passed, rig.applied(Verb.REBOOT)) == (None, 0)
    assert certify(rig, True)["reboot"].passed
    assert rig.applied(Verb.REBOOT) == 1


def test_a_word_without_its_effect_certifies_nothing(rig: ProviderRig, certify: Certify, stores: Stores) -> None:
    steps = certify(rig, False, 1.0, Trouble.LIE)
    assert (steps["reboot"].passed, steps["certificate"].passed) == (False, False)
    assert rig.applied(Verb.REBOOT) == 0
    assert not stores.certificates.certified(rig.provider.name, "")
