"""Reads what a decision needs and lets the domain decide. No effect, so that it may be run again at will."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from temporalio import activity

from activities import signatures as sig
from activities.census import CensusTaker
from activities.clock import Clock, utcnow
from activities.failures import Bounded, redact, unreadable
from activities.means import means
from activities.offers import Offers
from activities.ports import CanProbe, HasLocalData, HasOthers, KnowsOwnNodes, NotAllowed, Unreadable
from activities.registry import NotConfigured, Registry
from activities.storage.cases import Cases
from activities.storage.certificates import VERBS, Certificates
from activities.storage.ledger import Ledger
from activities.storage.policies import Policies
from activities.storage.silences import Silences
from activities.storage_probe import ANSWER_S
from medevac.cases.parts import names_in
from medevac.faults.classes import Covers
from medevac.fleet.asking import Asking
from medevac.fleet.node import Capability, Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.policy.active import PolicyVersion, acting_since
from medevac.policy.checkpoints import seen
from medevac.policy.loading import PolicyError
from medevac.policy.plan import History, Plan
from medevac.policy.planner import Context, plan
from medevac.policy.policy import Policy
from medevac.policy.pools import Coexist
from medevac.policy.silences import Silence
from medevac.policy.yielding import followed

T = TypeVar("T")

READ_S = 1.0
READS = 3
OWN = "medevac"
"""The role of nodes that run medevac itself."""
PROBE_S = ANSWER_S + 0.5
ADOPTED = "adopted by "
"""How the note begins that hands older trouble on a node to medevac."""


@dataclass(frozen=True, slots=True)
class _World:
    node: Node | None = None
    workloads: tuple[Workload, ...] = ()
    covers: frozenset[Covers] = frozenset()
    remediators: tuple[Remediator, ...] = ()
    unreadable: str = ""
    refused: str = ""


class PlanActivities:
    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        policies: Policies,
        census: CensusTaker,
        bounded: Bounded,
        clock: Clock = utcnow,
        certificates: Certificates | None = None,
        cases: Cases | None = None,
        silences: Silences | None = None,
        offers: Offers | None = None,
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._policies = policies
        self._census = census
        self._bounded = bounded
        self._clock = clock
        self._certificates = certificates
        self._cases = cases
        self._silences = silences
        self._offers = offers
        self._applied: tuple[PolicyVersion, list[PolicyVersion]] | None = None

    @activity.defn(name=sig.PLAN.name, no_thread_cancel_exception=True)
    def plan(self, request: sig.PlanRequest) -> Plan:
        """A plan comes out also where the node can't be read: it says so and looks again."""
        now = self._clock()
        version = self._stored("the policy", self._policies.active)
        world = self._world(request)
        node = world.node
        placed = version.policy.place(node) if node else None
        pool = placed.pool if placed else None
        history = self._stored("the ledger", lambda: self._history(request, placed, now))
        since = self._stored("the policy", lambda: self._acting_since(version, pool)) if pool else None
        storage = self._storage(placed, version.policy) if placed else None
        asking = self._asking(request, node, version.policy, pool) if node else Asking()
        proved = self._stored("the certificates", lambda: self._proved(node)) if node else None
        return plan(
            Context(
                incident=request.incident,
                n=request.n,
                cluster=request.cluster,
                node_name=request.node,
                node=asking.can(node) if node else None,
                unreadable=world.unreadable,
                refused=world.refused,
                seen=request.seen,
                workloads=self._checkpointed(world, version),
                faults=request.faults,
                history=history,
                opened_at=request.opened_at,
                asked_rungs=request.asked_rungs,
                under_way=request.under_way,
                failed=request.failed,
                hand_over=request.hand_over,
                check_covers=world.covers,
                storage_ok=None if storage is None else not storage,
                storage_why=storage or "",
                acting_since=since,
                adopted=bool(since and request.opened_at < since and self._adopted(request, since)),
                remediators=world.remediators,
                certified=proved is None or bool(proved),
                unproved=self._unproved(node, proved) if node and proved else frozenset(),
                asking=asking,
                followed=self._followed(version.policy, pool, request.incident),
                silences=self._stored("the silences", lambda: self._silenced(now)),
            ),
            version,
            now,
        )

    def _world(self, request: sig.PlanRequest) -> _World:
        """Node, its work, and what checks of it prove; or why they can't be read."""
        try:
            cluster = self._registry.cluster(request.cluster)
            node = self._read(lambda: cluster.node(request.node))
            if node is None:
                return _World()
            work = tuple(self._read(lambda: cluster.workloads(node.name)))
            covers = self._read(lambda: self._registry.checks(request.cluster).covers(node))
            others = tuple(self._read(lambda: cluster.remediators(node))) if isinstance(cluster, HasOthers) else ()
            local = self._read(lambda: cluster.local_data(node.name)) if isinstance(cluster, HasLocalData) else ()
            own = isinstance(cluster, KnowsOwnNodes) and self._read(lambda: cluster.runs_medevac(node.name))
            roles = tuple(sorted({*node.roles, OWN})) if own else node.roles
            capabilities, refused = self._can(node)
            machine = node.machine.model_copy(
                update={"capabilities": capabilities, "local_data_in_use": (*node.machine.local_data_in_use, *local)}
            )
            known = node.model_copy(update={"machine": machine, "roles": roles})
            return _World(known, work, covers, others, refused=refused)
        except NotConfigured as error:
            return _World(unreadable=str(error))
        except Exception as error:
            return _World(unreadable=f"node {request.node} can't be read: {redact(str(error), 200)}")

    def _checkpointed(self, world: _World, version: PolicyVersion) -> tuple[Workload, ...]:
        """With the checkpoints that the policy knows how to find. One that can't be found in time counts as none."""
        cluster = self._registry.cluster(world.node.cluster) if world.node else None

        def probe(command: str, work: Workload) -> datetime | None:
            try:
                return (
                    self._bounded.call(READ_S, cluster.probe, command, work) if isinstance(cluster, CanProbe) else None
                )
            except Unreadable:
                return None

        return tuple(seen(work, version.policy.checkpoints, probe) for work in world.workloads)

    def _read(self, read: Callable[[], T]) -> T:
        """A hiccup isn't worth a plan of its own; an outage is."""
        for left in reversed(range(READS)):
            try:
                return self._bounded.call(READ_S, read)
            except Unreadable as error:
                if not left or isinstance(error, NotAllowed):
                    raise
        raise AssertionError("unreachable")

    def _can(self, node: Node) -> tuple[frozenset[Capability], str]:
        """What its adapters say and no more; without an adapter, nothing. And why they may not say, where a person
        must mend that: asking again can't help."""
        adapters = means(self._registry, node.cluster, node.machine.provider)
        if adapters.provider is None:
            activity.logger.warning("%s/%s: no provider is called %r", node.cluster, node.name, node.machine.provider)
        try:
            return self._read(lambda: adapters.capabilities(node)), ""
        except NotAllowed as error:
            return frozenset(), f"what {node.machine.provider} can do can't be asked: {redact(str(error), 300)}"

    def _history(self, request: sig.PlanRequest, node: Node | None, now: datetime) -> History:
        machine = node.machine.id if node else None
        pool = node.pool if node else None
        known = self._ledger.history(request.incident, request.cluster, request.node, machine, now, pool=pool)
        spares = self._census.spares(request.cluster, pool)
        return known.model_copy(update={"spares": spares, "bad_parts": self._bad_parts(request, node)})

    def _bad_parts(self, request: sig.PlanRequest, node: Node | None) -> tuple[str, ...]:
        """By the machine's own word, the inventory's, and that of the faults' senders."""
        if self._cases is None or node is None:
            return ()
        record = self._registry.inventory.join(node).record
        told = names_in(entity for fault in request.faults.faults for entity in fault.entities)
        serials = (node.machine.serial or "", *told, *((record.serial, *record.gpus) if record else ()))
        return tuple(
            f"its {part.part} {part.serial} was sent back before, on {part.at:%Y-%m-%d}: {part.why}"
            for part in self._cases.known_bad(serials, but=request.incident)
        )

    def _acting_since(self, active: PolicyVersion, pool: str | None) -> datetime | None:
        if self._applied is None or self._applied[0] != active:
            self._applied = active, [version for version in self._policies.applied() if _readable(version)]
        return acting_since(self._applied[1], pool or "")

    def _adopted(self, request: sig.PlanRequest, since: datetime) -> bool:
        notes = self._ledger.notes(request.cluster, request.node, since)
        return any(note.text.startswith(ADOPTED) for note in notes)

    def _proved(self, node: Node) -> frozenset[Capability] | None:
        """By proofs in the ledger; None = it needs none. What no provider answers for has none to be certified, and is
        never acted on."""
        name = node.machine.provider
        if node.simulated or name not in {one.name for one in self._registry.providers()}:
            return None
        if self._certificates is None:
            return frozenset()
        return self._certificates.proved(name, self._registry.form(name))

    def _unproved(self, node: Node, proved: frozenset[Capability]) -> frozenset[Capability]:
        """Only what the provider itself does: what is done from within the node is no matter of its proof."""
        provider = self._registry.provider(node.machine.provider)
        try:
            own = self._read(lambda: provider.capabilities(node))
        except Unreadable:
            own = frozenset(VERBS)
        return (own & frozenset(VERBS)) - proved

    def _asking(self, request: sig.PlanRequest, node: Node, policy: Policy, pool: str | None) -> Asking:
        """Only where the pool gives a choice: everybody else has nothing more to read."""
        where = policy.pools.get(pool or "")
        if where is None or not where.replacements or self._offers is None:
            return Asking()
        offers, listed = self._offers, where.replacements
        return self._stored(
            "where a successor can be asked for",
            lambda: offers.asking(node, listed, request.asked, request.nothing_came),
        )

    def _storage(self, placed: Node, policy: Policy) -> str | None:
        """Why the pool's storage probe doesn't pass, empty where it does; None where nothing has to be asked."""
        pool = policy.pools.get(placed.pool or "")
        if pool is None or (probe := pool.probe_of(placed)) is None:
            return None
        try:
            return self._bounded.call(PROBE_S, self._registry.storage.why_not, probe, placed)
        except Exception as error:
            return redact(str(error), 200)

    def _followed(self, policy: Policy, pool: str | None, incident: str) -> str:
        where = policy.pools.get(pool or "")
        if where is None or where.coexist is not Coexist.YIELD:
            return ""
        return followed(self._stored("the ledger", lambda: self._ledger.lines(incident)))

    def _silenced(self, now: datetime) -> tuple[Silence, ...]:
        return tuple(self._silences.standing(now)) if self._silences else ()

    def _stored(self, what: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except Exception as error:
            raise unreadable(what, error) from None


def _readable(version: PolicyVersion) -> bool:
    """An old text that this release can't read is not in force, and must not stop the present one."""
    try:
        return bool(version.policy)
    except PolicyError:
        return False
