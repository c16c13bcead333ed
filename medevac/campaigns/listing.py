"""The dry plan: every node by name, with what happens to it; and every node left out, with why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from medevac.campaigns.progress import caps
from medevac.campaigns.spec import MAX_NODES, Act, Selector, Spec, blind
from medevac.faults.classes import FaultClass
from medevac.fleet.census import node_key
from medevac.fleet.limits import Share
from medevac.fleet.node import Node, Workload
from medevac.model import Model, digest
from medevac.policy.climbing import NEEDS, worn
from medevac.policy.plan import Attempt, Mode, Rung
from medevac.policy.policy import Policy
from medevac.policy.stakes import stakes
from medevac.policy.standing import Surroundings, standing

TYPICAL_S = {Act.REBOOT: 900.0, Act.REINSTALL: 2_700.0, Act.REPLACE: 2_700.0, Act.DRAIN: 300.0, Act.CHECK: 120.0}
"""From the end of the drain to a passed check, for the estimate only."""


class Nothing(ValueError):
    """There is nothing to ask people for: no node is left to act on, or nobody should agree to such care."""


class Member(Model):
    cluster: str
    node: str
    uid: str | None
    machine_id: str
    pool: str
    rack: str
    image: str | None = None
    """Before the campaign."""
    jobs: tuple[str, ...] = ()
    destroys: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return node_key(self.cluster, self.node)


class Skipped(Model):
    cluster: str
    node: str
    why: str


class CampaignPlan(Model):
    """What people agree to. `hash` binds their yes to these machines and this care, not to the jobs of the minute:
    what a node would lose that nobody could know is asked about node by node."""

    spec: Spec
    policy_version: int
    made_at: datetime
    members: tuple[Member, ...]
    """In the order in which they are taken: one of each rack in turn, idle ones first."""
    skipped: tuple[Skipped, ...]
    at_once: int
    estimate_s: float
    """With nothing in its way: budgets, drains and soaks."""

    @cached_property
    def hash(self) -> str:
        words = self.model_copy(
            update={"members": tuple(m.model_copy(update={"jobs": (), "destroys": ()}) for m in self.members)}
        )
        return digest(words.model_dump(mode="json", exclude={"made_at", "estimate_s", "skipped"}))[:16]

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted({job for member in self.members for job in member.jobs}))


def list_nodes(
    spec: Spec,
    nodes: Iterable[Node],
    *,
    policy: Policy,
    policy_version: int,
    in_incident: Mapping[str, str],
    workloads: Mapping[str, Sequence[Workload]],
    can_check: Collection[str],
    around: Mapping[str, Surroundings],
    now: datetime,
    tried: Mapping[str, Sequence[Attempt]] = MappingProxyType({}),
) -> CampaignPlan:
    """Keys are `node_key`s. Raises `Nothing`. `in_incident`: open incident by node; `can_check`: nodes with a check;
    `tried`: what was begun on each node's machine lately, whatever for.
    """
    if why := blind(spec.care):
        raise Nothing(why)
    members: list[Member] = []
    skipped: list[Skipped] = []
    sizes: dict[str, int] = defaultdict(int)
    placed = [policy.place(found) for found in nodes]
    _refuse_unknown(spec.selector, placed)
    for node in placed:
        if node.pool is not None:
            sizes[node.pool] += 1
        if not spec.selector.takes(node):
            continue
        key = node_key(node.cluster, node.name)
        why = _why_not(spec, node, policy, in_incident.get(key), key in can_check, around.get(key, Surroundings()))
        if not why and spec.act is not Act.CHECK:
            # Its incident would refuse the order as the planner does, after it was counted on.
            why = worn(policy, Rung(spec.act.rung), FaultClass.PLANNED, tried.get(key, ()), now)
        if why:
            skipped.append(Skipped(cluster=node.cluster, node=node.name, why=why))
            continue
        members.append(_member(spec, node, policy, workloads.get(key, ()), now))
    skipped += _missing(spec.selector, placed)
    if not members:
        told = "; ".join(f"{one.node}: {one.why}" for one in skipped[:5])
        raise Nothing(f"no node is left to act on ({told or 'the selector fits none'})")
    if len(members) > MAX_NODES:
        raise Nothing(f"{len(members)} nodes are more than one campaign takes ({MAX_NODES}); select fewer")
    at_once = spec.care.at_once or _at_once(policy.limits.at_once.get("pool", Share()), members, sizes)
    ordered = tuple(_spread(members))
    return CampaignPlan(
        spec=spec,
        policy_version=policy_version,
        made_at=now,
        members=ordered,
        skipped=tuple(skipped),
        at_once=at_once,
        estimate_s=_estimate(spec, policy, len(ordered), at_once),
    )


def _refuse_unknown(selector: Selector, nodes: Sequence[Node]) -> None:
    """A word that no node answers to is a slip of the pen: what it was to take would be left out in silence."""
    for name, known in (
        ("clusters", {node.cluster for node in nodes}),
        ("pools", {node.pool for node in nodes if node.pool}),
        ("providers", {node.machine.provider for node in nodes}),
        ("skus", {node.sku for node in nodes if node.sku}),
    ):
        if unknown := sorted(set(getattr(selector, name)) - known):
            raise Nothing(
                f"selector.{name}: no node is in {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}"
            )


def _missing(selector: Selector, nodes: Sequence[Node]) -> list[Skipped]:
    """Nodes that are wanted by name, and aren't there or are left out by the rest of the selector."""
    there: set[str] = set()
    taken: set[str] = set()
    for node in nodes:
        names = {node.name, f"{node.cluster}/{node.name}"}
        there |= names
        if selector.takes(node):
            taken |= names
    found = []
    for wanted in dict.fromkeys(selector.nodes):
        if wanted not in taken:
            cluster, _, name = wanted.rpartition("/")
            why = "the rest of the selector leaves it out" if wanted in there else "there is no node of that name"
            found.append(Skipped(cluster=cluster or "?", node=name, why=why))
    return found


def _why_not(
    spec: Spec, node: Node, policy: Policy, incident: str | None, can_check: bool, around: Surroundings
) -> str:
    if incident is not None:
        return f"incident {incident} has it"
    if not can_check:
        return "no check could prove it well afterwards"
    if why := left_alone(policy, node, around):
        return why
    if spec.act is Act.CHECK:
        return ""
    needs = NEEDS.get(Rung(spec.act.rung))
    if needs is not None and needs not in node.machine.capabilities:
        return f"its provider {node.machine.provider} can't {spec.act}"
    if spec.act is Act.REPLACE and node.machine.reserved:
        return "it holds a reserved slot; replace such machines one by one"
    return ""


def left_alone(policy: Policy, node: Node, around: Surroundings) -> str:
    """Why no campaign touches this node, whatever its act; empty where one may. `node` is placed already."""
    found = standing(policy, node, around)
    if found.mode is Mode.OBSERVE:
        return found.reasons[0]
    if node.hands_off:
        return f"{node.hands_off} asked for hands off it"
    if node.foreign_cordon:
        return f"{node.foreign_cordon} has cordoned it"
    return "" if node.ready else "it is not ready"


def _member(spec: Spec, node: Node, policy: Policy, works: Sequence[Workload], now: datetime) -> Member:
    cost: tuple[str, ...] = ()
    if spec.act is not Act.CHECK:
        cost = stakes(Rung(spec.act.rung), node, works, policy.checkpoints, now).destroys
    return Member(
        cluster=node.cluster,
        node=node.name,
        uid=node.uid,
        machine_id=node.machine.id,
        pool=f"{node.cluster}/{node.pool}",
        rack=policy.domains(node)["rack"],
        image=node.topology.get("image"),
        jobs=tuple(sorted(work.name for work in works)),
        destroys=cost,
    )


def _spread(members: Sequence[Member]) -> list[Member]:
    """One of each rack in turn: no batch leans on one failure domain, and a rack's budget is never in the way."""
    racks: dict[str, list[Member]] = defaultdict(list)
    for member in sorted(members, key=lambda m: (bool(m.jobs), m.key)):
        racks[member.rack].append(member)
    waiting = [racks[rack] for rack in sorted(racks)]
    return [rack[n] for n in range(max(map(len, waiting))) for rack in waiting if n < len(rack)]


def _at_once(share: Share, members: Sequence[Member], sizes: Mapping[str, int]) -> int:
    """What the pools' budgets allow together, for the nodes that are listed."""
    pools = {member.pool for member in members}
    return max(1, sum(share.of(sizes[pool.partition("/")[2]]) for pool in pools))


def _estimate(spec: Spec, policy: Policy, count: int, at_once: int) -> float:
    drain = 0.0 if spec.act is Act.CHECK else min(policy.drains.of(spec.drain), TYPICAL_S[spec.act])
    rounds = -(-count // at_once)
    watched = sum(cap < count for cap in caps(spec.care, count)) + 1
    return rounds * (drain + TYPICAL_S[spec.act]) + spec.care.soak * watched
