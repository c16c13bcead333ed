"""The simulated world behind the ports of `activities.ports`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from activities.last_look import last_look
from activities.ports import CheckResult, Eviction, MachineState, Mark, NotSent, Pod, TicketRef, Verb
from medevac.faults.classes import Covers
from medevac.fleet.node import Capability, Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.incident import StepKey
from simulation import checking, machines, marks, others, reading, workloads
from simulation.calling import Call, make, readable
from simulation.did import Did
from simulation.hazards import Effect, Read
from simulation.moment import Moment
from simulation.world import World


class SimulatedCluster:
    simulated = True

    def __init__(self, world: World, name: str) -> None:
        if name not in world.layout.clusters:
            raise KeyError(f"no cluster {name} in the simulated world; it has {', '.join(world.layout.clusters)}")
        self.name = name
        self._world = world

    def nodes(self) -> Iterable[Node]:
        return self._world.nodes(self.name)

    def node(self, name: str) -> Node | None:
        readable(self._world, Read.NODE, self.name, name)
        return self._world.node(name, self.name)

    def mark(self, node: str, mark: Mark) -> Literal["done", "already"]:
        return make(
            self._world,
            Call[Literal["done", "already"]](
                Effect.MARK,
                self.name,
                node,
                node,
                mark.incident,
                lambda m: marks.mark(m, self.name, node, mark),
                "done",
            ),
        )

    def lift(self, node: str, incident: str) -> Literal["done", "already"]:
        return make(
            self._world,
            Call[Literal["done", "already"]](
                Effect.LIFT, self.name, node, node, incident, lambda m: marks.lift(m, self.name, node, incident), "done"
            ),
        )

    def remediators(self, node: Node) -> list[Remediator]:
        readable(self._world, Read.NODE, self.name, node.name)
        with self._world.read() as m:
            return others.of(m, self.name)

    def workloads(self, node: str) -> list[Workload]:
        readable(self._world, Read.PODS, self.name, node)
        with self._world.read() as m:
            return workloads.workloads_on(m, self.name, node)

    def all_workloads(self) -> dict[str, list[Workload]]:
        readable(self._world, Read.PODS, self.name, "")
        with self._world.read() as m:
            return workloads.workloads_by_node(m, self.name)

    def pods(self, node: str) -> list[Pod]:
        readable(self._world, Read.PODS, self.name, node)
        with self._world.read() as m:
            return workloads.pods_on(m, self.name, node)

    def notice(self, node: str, by: datetime) -> None:
        tag = self._marked_by(node)
        act = lambda m: workloads.notice(m, self.name, node, by.timestamp())  # noqa: E731
        make(self._world, Call[None](Effect.NOTICE, self.name, node, node, tag, act, None))

    def take_back_notice(self, node: str, by: datetime) -> None:
        tag = self._marked_by(node)
        act = lambda m: workloads.take_back_notice(m, self.name, node, by.timestamp())  # noqa: E731
        make(self._world, Call[None](Effect.TAKE_BACK, self.name, node, node, tag, act, None))

    def evict(self, pod: Pod, grace_s: float) -> Eviction:
        return self._remove(Effect.EVICT, pod, grace_s)

    def delete(self, pod: Pod, grace_s: float) -> Eviction:
        return self._remove(Effect.DELETE, pod, grace_s)

    def _remove(self, effect: Effect, pod: Pod, grace_s: float) -> Eviction:
        with self._world.read() as m:
            row = m.one(
                "SELECT x.node, x.marked_by FROM pods p JOIN machines x ON x.id = p.machine WHERE p.uid = ?", pod.uid
            )
        node, tag = (row["node"], row["marked_by"] or "") if row else ("", "")

        def act(m: Moment) -> Did[Eviction]:
            return workloads.remove(m, pod.uid, grace_s, budgets=effect is Effect.EVICT)

        target = f"{pod.namespace}/{pod.name}/{pod.uid}"
        last_look()
        return make(self._world, Call(effect, self.name, node, target, tag, act, Eviction.EVICTED))

    def _marked_by(self, node: str) -> str:
        found = self._world.node(node, self.name)
        return (found.marked_by if found else None) or ""


class SimulatedProvider:
    simulated = True

    def __init__(self, world: World, name: str) -> None:
        if name not in world.layout.providers:
            raise KeyError(f"no provider {name} in the simulated world; it has {', '.join(world.layout.providers)}")
        self.name = name
        self._world = world

    def capabilities(self, node: Node) -> frozenset[Capability]:
        return self._world.layout.providers[self.name].capabilities

    def cannot_make(self, node: Node) -> str:
        able = Capability.REPLACE in self.capabilities(node)
        return "" if able else f"{self.name} has no machines to give"

    def state(self, node: Node, tag: str) -> MachineState:
        readable(self._world, Read.MACHINE, node.cluster, node.name)
        with self._world.read() as m:
            return reading.machine(m, self.name, node.machine.id, tag)

    def do(self, verb: Verb, node: Node, tag: str) -> JsonValue:
        if not node.machine.id and verb is not Verb.REQUEST:
            raise NotSent(f"{node.name} isn't {self.name}'s", final=True)
        replaces = node.machine.id or self._standing(node)

        def act(m: Moment) -> Did[JsonValue]:
            return machines.apply(m, verb, replaces, tag, self.name)

        effect = Effect(verb.value)
        last_look()
        return make(self._world, Call[JsonValue](effect, node.cluster, node.name, replaces, tag, act, "op-accepted"))

    def _standing(self, node: Node) -> str:
        """Of another provider: the machine under the node's name, whose place a successor takes."""
        found = self._world.node(node.name, node.cluster)
        return found.machine.id if found else ""

    def release(self, node: Node, tag: str, joined: frozenset[str]) -> tuple[str, ...]:
        with self._world.read() as m:
            asked = m.all(
                "SELECT id FROM machines WHERE requested_by = ? AND provider = ?"
                " AND state NOT IN ('terminating', 'gone')",
                tag, self.name,
            )  # fmt: skip
        ended = tuple(str(row["id"]) for row in asked if row["id"] not in joined | {node.machine.id})
        for machine in ended:
            last_look()
            act = functools.partial(machines.apply, verb=Verb.TERMINATE, machine=machine, tag=tag)
            make(
                self._world, Call[JsonValue](Effect.RELEASE, node.cluster, node.name, machine, tag, act, "op-accepted")
            )
        return ended


class SimulatedChecks:
    simulated = True

    def __init__(self, world: World) -> None:
        self._world = world

    def covers(self, node: Node) -> frozenset[Covers]:
        return self._world.layout.check_covers

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        offered = set(covers) & self.covers(node)
        if not offered:
            return None
        with self._world.read() as m:
            if checking.started(m, str(key)):
                return checking.result(m, str(key))

        def act(m: Moment) -> Did[None]:
            return checking.start(m, str(key), node.machine.id, offered)

        make(self._world, Call[None](Effect.CHECK, node.cluster, node.name, node.machine.id, str(key), act, None))
        with self._world.read() as m:
            return checking.result(m, str(key))


class SimulatedTickets:
    simulated = True
    system = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world

    def find(self, key: str) -> TicketRef | None:
        readable(self._world, Read.TICKETS)
        with self._world.read() as m:
            row = m.one("SELECT id FROM tickets WHERE key = ? ORDER BY id LIMIT 1", key)
        return self._ref(row["id"]) if row else None

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        def act(m: Moment) -> Did[TicketRef]:
            m.run(
                "INSERT INTO tickets (key, provider, title, body, opened_at) VALUES (?, ?, ?, ?, ?)",
                key, provider, title, body, m.now,
            )  # fmt: skip
            return Did(self._ref(m.count("SELECT last_insert_rowid()")))

        return make(self._world, Call(Effect.TICKET, "", "", provider, key, act, self._ref(0)))

    def _ref(self, number: int) -> TicketRef:
        return TicketRef(system=self.system, id=f"SIM-{number}")


class SimulatedChat:
    simulated = True

    def __init__(self, world: World) -> None:
        self._world = world

    def find(self, key: str) -> str | None:
        readable(self._world, Read.CHAT)
        with self._world.read() as m:
            row = m.one("SELECT id FROM messages WHERE key = ? ORDER BY id LIMIT 1", key)
        return str(row["id"]) if row else None

    def post(self, key: str, thread: str, text: str) -> str:
        def act(m: Moment) -> Did[str]:
            m.run("INSERT INTO messages (key, thread, text, posted_at) VALUES (?, ?, ?, ?)", key, thread, text, m.now)
            return Did(str(m.count("SELECT last_insert_rowid()")))

        return make(self._world, Call(Effect.CHAT, "", "", thread, key, act, "0"))
