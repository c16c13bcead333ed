"""A silent node's machine counts as off only when its provider has said so for a while, without a break."""

from __future__ import annotations

import pytest

from activities.ports import MachineState, Unreadable
from activities.silence import Silence
from tests.unit.activities.house import House

ON, OFF, UNKNOWN = (MachineState(exists=True, power=power) for power in ("on", "off", "unknown"))
GONE = MachineState(exists=False)


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("activities.silence.time.monotonic", lambda: self.now)


class Freeing:
    """A cluster that has something to let go of."""

    name = "sim-a"

    def __init__(self) -> None:
        self.freed: list[bool] = []

    def free(self, node: object, *, gone: bool) -> list[str]:
        self.freed.append(gone)
        return ["pod team/train"]


@pytest.mark.parametrize("last", [ON, UNKNOWN, None])
def test_off_for_a_moment_is_a_boot(house: House, monkeypatch: pytest.MonkeyPatch, last: MachineState | None) -> None:
    clock, cluster = Clock(monkeypatch), Freeing()
    node = house.busy_node().model_copy(update={"reachable": False})
    provider = house.registry.provider(node.machine.provider)
    says: list[MachineState | None] = [OFF]

    def state(*_: object) -> MachineState:
        if says[0] is None:
            raise Unreadable("no answer")
        return says[0]

    monkeypatch.setattr(provider, "state", state)
    silence = Silence(house.registry, cluster, house.pre(node), off_s=60)  # type: ignore[arg-type]
    assert silence.frees(node) is None
    clock.now, says[0] = 50, last
    assert silence.frees(node) is None
    clock.now, says[0] = 70, OFF
    assert silence.frees(node) is None, "it counts from anew"
    clock.now = 129
    assert silence.frees(node) is None
    clock.now = 131
    assert silence.frees(node) == "still held: pod team/train"
    assert cluster.freed == [False]


def test_a_node_that_is_heard_again_is_off_no_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cluster = Clock(monkeypatch), Freeing()
    node = house.busy_node()
    silent = node.model_copy(update={"reachable": False})
    monkeypatch.setattr(house.registry.provider(node.machine.provider), "state", lambda *_: GONE)
    silence = Silence(house.registry, cluster, house.pre(node), off_s=60)  # type: ignore[arg-type]
    for clock.now, seen in ((0, silent), (59, node), (61, silent), (100, silent)):
        assert silence.frees(seen) is None
    clock.now = 122
    silence.frees(silent)
    assert cluster.freed == [True]
