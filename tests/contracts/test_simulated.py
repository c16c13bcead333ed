"""The simulation obeys every contract, for both of its providers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.ports import Chat, Checks, Cluster, Pod, Provider, Tickets, Verb
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from simulation import machines
from simulation.adapters import SimulatedChat, SimulatedChecks, SimulatedCluster, SimulatedProvider, SimulatedTickets
from simulation.hazards import Behaviour, Effect, Manner, Read
from simulation.layout import IRONWORKS, SKYLINE, Layout
from simulation.world import World
from tests.contracts.chat import ChatContract
from tests.contracts.checks import ChecksContract
from tests.contracts.cluster import ClusterContract
from tests.contracts.provider import ElsewhereContract, ProviderContract, ReplacingContract
from tests.contracts.rigs import (
    RETRY_AFTER_S,
    ChatRig,
    ChecksRig,
    ClusterRig,
    ProviderRig,
    TicketsRig,
    Trouble,
)
from tests.contracts.tickets import TicketsContract


class HandClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class SimulatedRig:
    """Every rig on one small world."""

    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self.world = World.create(path, Layout(nodes=32), seed=7, clock=self.clock)
        self.cluster: Cluster = SimulatedCluster(self.world, "sim-a")
        self.checks: Checks = SimulatedChecks(self.world)
        self.tickets: Tickets = SimulatedTickets(self.world)
        self.chat: Chat = SimulatedChat(self.world)

    def pass_time(self) -> None:
        self.clock.forward(3_600)

    def first(self, *, working: bool, provider: str | None = None) -> Node:
        return next(
            node
            for node in self.world.nodes()
            if node.machine.provider == (provider or node.machine.provider)
            and node.pool == "train"
            and bool(self.cluster.workloads(node.name)) == working
        )

    def script(self, effect: Effect, trouble: Trouble) -> None:
        self.world.script(effect, Manner(trouble.value), retry_after_s=RETRY_AFTER_S)


class SimulatedClusterRig(SimulatedRig):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.node = self.first(working=True).name
        with self.world.write() as m:
            m.run("UPDATE jobs SET cooperative = 1")

    def answer(self) -> None:
        self.clock.forward(60)

    def own(self) -> set[str]:
        return {node.name for node in self.cluster.nodes()}

    def cordon(self, who: str) -> None:
        self.world.cordon(self.node, who)

    def uncordon(self) -> None:
        self.world.uncordon(self.node)

    def guard(self, pod: Pod) -> str:
        self.world.budget("team/never", 1)
        self.world.guard_pod(pod.uid, "team/never")
        return "team/never"

    def replace(self, pod: Pod) -> None:
        self.cluster.delete(pod, 0)
        self.pass_time()

    def silence(self) -> None:
        self.world.inject(self.node, "xid/79", covers=(), cure=(), behaviour=Behaviour(not_ready=True))

    def grow_late(self) -> None:
        self.pass_time()

    def trouble_evicting(self, trouble: Trouble) -> None:
        self.script(Effect.EVICT, trouble)

    def trouble_marking(self, trouble: Trouble) -> None:
        self.script(Effect.MARK, trouble)

    def unreadable(self) -> None:
        self.world.script(Read.NODE, Manner.UNREADABLE, times=None)


class SimulatedProviderRig(SimulatedRig):
    def __init__(self, path: Path, provider: str) -> None:
        super().__init__(path)
        self.provider: Provider = SimulatedProvider(self.world, provider)
        self.node = self.first(working=False, provider=provider)

    def trouble(self, verb: Verb, trouble: Trouble) -> None:
        self.script(Effect(verb.value), trouble)

    def calls(self, verb: Verb) -> int:
        return len(self.world.effects(verb=Effect(verb.value)))

    def applied(self, verb: Verb) -> int:
        return sum(effect.applied for effect in self.world.effects(verb=Effect(verb.value)))

    def swap(self) -> Node:
        return self.world.swap(self.node.name)

    def never_boots(self) -> None:
        self.world.inject(self.node.name, "xid/79", covers=[Covers.BUS], cure=[], behaviour=Behaviour(never_boots=True))

    def never_joins(self) -> None:
        behaviour = Behaviour(successor_never_joins=True)
        self.world.inject(self.node.name, "xid/79", covers=[Covers.BUS], cure=[], behaviour=behaviour)

    def unreadable(self) -> None:
        self.world.script(Read.MACHINE, Manner.UNREADABLE)

    def nodes(self) -> list[Node]:
        return list(self.world.nodes(self.node.cluster))

    def lose(self) -> None:
        with self.world.write() as m:
            machines.terminated(m, self.node.machine.id)

    def billed(self) -> int:
        with self.world.read() as m:
            return m.count(
                "SELECT COUNT(*) FROM machines WHERE requested_by IS NOT NULL AND state NOT IN ('terminating', 'gone')"
            )


class SimulatedChecksRig(SimulatedRig):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.node = self.first(working=False)

    def runs(self) -> int:
        return sum(effect.applied for effect in self.world.effects(verb=Effect.CHECK))

    def break_node(self, *, under_load: bool = False) -> None:
        behaviour = Behaviour(under_load=under_load)
        self.world.inject(self.node.name, "xid/48", covers=[Covers.MEMORY], cure=[], behaviour=behaviour)

    def reboot(self) -> Node:
        self.world.by_hand(Verb.REBOOT, self.node.name, "alice")
        # Back up before the check's time is over.
        with self.world.write() as m:
            m.run("UPDATE timers SET due_at = ? WHERE kind = 'booted'", m.now)
        node = self.world.node(self.node.name)
        assert node is not None
        return node

    def flake(self) -> None:
        self.world.script(Read.CHECK, Manner.FLAKE)


class SimulatedTicketsRig(SimulatedRig):
    provider = SKYLINE

    def trouble(self, trouble: Trouble) -> None:
        self.script(Effect.TICKET, trouble)

    def unreadable(self) -> None:
        self.world.script(Read.TICKETS, Manner.UNREADABLE)

    def opened(self) -> int:
        return sum(effect.applied for effect in self.world.effects(verb=Effect.TICKET))


class SimulatedChatRig(SimulatedRig):
    def trouble(self, trouble: Trouble) -> None:
        self.script(Effect.CHAT, trouble)

    def posted(self) -> int:
        return len(self.world.messages())


class TestSimulatedCluster(ClusterContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[ClusterRig]:
        rig = SimulatedClusterRig(tmp_path / "world")
        yield rig
        rig.world.close()


class TestSkyline(ReplacingContract, ElsewhereContract):
    can = frozenset(Verb) - {Verb.REINSTALL}

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[ProviderRig]:
        rig = SimulatedProviderRig(tmp_path / "world", SKYLINE)
        yield rig
        rig.world.close()


class TestIronworks(ProviderContract):
    can = frozenset(Verb) - {Verb.REQUEST, Verb.TERMINATE}

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[ProviderRig]:
        rig = SimulatedProviderRig(tmp_path / "world", IRONWORKS)
        yield rig
        rig.world.close()


class TestSimulatedChecks(ChecksContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[ChecksRig]:
        rig = SimulatedChecksRig(tmp_path / "world")
        yield rig
        rig.world.close()


class TestSimulatedTickets(TicketsContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[TicketsRig]:
        rig = SimulatedTicketsRig(tmp_path / "world")
        yield rig
        rig.world.close()


class TestSimulatedChat(ChatContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[ChatRig]:
        rig = SimulatedChatRig(tmp_path / "world")
        yield rig
        rig.world.close()
