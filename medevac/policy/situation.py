"""What a plan is made from, seen through the policy: the open faults by the rules, the node in its pool, how far one
may go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from medevac.events.drill import A_DRILL
from medevac.faults.classes import Covers, FaultClass, in_order
from medevac.faults.faultset import FaultSet
from medevac.fleet.asking import Asking
from medevac.fleet.node import Capability, Identity, Node, Workload
from medevac.fleet.remediator import Remediator
from medevac.incident import End
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.judging import Judged, judge
from medevac.policy.plan import Action, History, Latch, Mode, Plan, Rung
from medevac.policy.policy import Policy
from medevac.policy.silences import Silence
from medevac.policy.standing import Standing, Surroundings, standing
from medevac.policy.wording import what_is_wrong


class Context(Model):
    """All that a plan is made from, read at one moment."""

    incident: str
    n: int
    cluster: str
    node_name: str
    node: Node | None
    """None where there is no such node, or `unreadable` says why it can't be read."""
    unreadable: str = ""
    refused: str = ""
    """Why its provider may not be asked, where only a person can mend that: wrong credentials, a missing right."""
    seen: bool = False
    """An earlier plan of this incident has read the node: where it is no more, it is gone, and not just unknown."""
    workloads: tuple[Workload, ...] = ()
    faults: FaultSet
    history: History
    opened_at: datetime
    asked_rungs: tuple[Rung, ...] = ()
    under_way: Rung | None = None
    """Of these, whose last attempt is still going on."""
    failed: str = ""
    hand_over: str = ""
    check_covers: frozenset[Covers] = frozenset()
    acting_since: datetime | None = None
    """When the pool's mode was last raised (`active.acting_since`); older trouble is left alone until adopted."""
    adopted: bool = False
    remediators: tuple[Remediator, ...] = ()
    """Other programs that may repair the node."""
    followed: str = ""
    """Who had the node in repair while an earlier plan of this incident waited for it (`yielding.followed`)."""
    certified: bool = True
    """Whether the machine's provider was proved on a real machine here; a simulated one needs no proof."""
    unproved: frozenset[Capability] = frozenset()
    """What that provider can and hasn't shown here: people approve a rung that needs it."""
    asking: Asking = Asking()
    """Where a successor could be asked for, where the pool's `replacements` give a choice."""
    silences: tuple[Silence, ...] = ()
    storage_ok: bool | None = None
    """What the pool's storage probe says just now; None counts as a no."""
    storage_why: str = ""
    """Why it doesn't pass."""


@dataclass(frozen=True)
class Situation:
    context: Context
    version: PolicyVersion
    now: datetime

    @cached_property
    def policy(self) -> Policy:
        return self.version.policy

    @cached_property
    def place(self) -> Node | None:
        """The node with the pool that the policy puts it in; None where there is none."""
        return self.policy.place(self.context.node) if self.context.node else None

    @property
    def node(self) -> Node:
        """Where it is known to be there."""
        if self.place is None:
            raise ValueError(f"{self.context.node_name} is not there")
        return self.place

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Every open fault by the rules, worst first."""
        node = self.place
        found = (
            judge(
                self.policy,
                fault,
                pool=node.pool if node else None,
                sku=node.sku if node else None,
                provider=node.machine.provider if node else "",
            )
            for fault in self.context.faults.faults
        )
        return tuple(sorted(found, key=lambda judged: judged.order))

    @cached_property
    def work(self) -> tuple[Judged, ...]:
        """Those that something is to be done about. A monitor's own fault waits while the node is at fault."""
        works = [judged for judged in self.judged if judged.works]
        # A campaign's order gives way to what is wrong with the node.
        works = [judged for judged in works if judged.fault.order is None] or works
        node_faults = [judged for judged in works if judged.verdict.fault_class.repairable]
        return tuple(node_faults or works)

    @property
    def lead(self) -> Judged:
        """The worst of `work`."""
        return self.work[0]

    @property
    def lead_class(self) -> FaultClass:
        return self.lead.verdict.fault_class

    @property
    def suspected(self) -> bool:
        """True where the node itself is at fault or about to go: only then is it marked."""
        return bool(self.work) and self.lead_class.repairable

    @property
    def ours(self) -> bool:
        """True where the node carries this incident's mark."""
        return self.place is not None and self.place.marked_by == self.context.incident

    @cached_property
    def begun(self) -> list[Rung]:
        """Rungs of this run that may have changed something. A ticket hasn't."""
        return [rung for rung in self.context.asked_rungs if rung is not Rung.RMA]

    @cached_property
    def standing(self) -> Standing:
        context = self.context
        node = self.place
        if node is None:
            why = context.unreadable or f"{context.node_name} is not in cluster {context.cluster}"
            return Standing(Mode.OBSERVE, (why,))
        if other := self.ordered_of_another:
            return Standing(Mode.OBSERVE, (other,))
        predates = ""
        if context.acting_since and context.opened_at < context.acting_since and not context.adopted:
            predates = f"it was there before pool `{node.pool}` was allowed to act"
        around = Surroundings(
            remediators=context.remediators,
            storage_ok=context.storage_ok,
            storage_why=context.storage_why,
            predates=predates,
            certified=context.certified,
        )
        found = standing(self.policy, node, around)
        if self.work and self.lead.verdict.mode.reach < found.mode.reach:
            cap = self.lead.verdict
            rules = ", ".join(f"`{name}`" for name in cap.rules)
            return Standing(cap.mode, (*found.reasons, f"rules {rules} allow {cap.mode} at most"), found.pool)
        return found

    @property
    def ordered_of_another(self) -> str:
        """Why a campaign's order isn't for the machine that is here; once it has begun, the steps' own looks tell."""
        order = self.lead.fault.order if self.work else None
        return order.another(self.node.identity) if order is not None and not self.begun else ""

    @cached_property
    def latch(self) -> Latch | None:
        """A no that still holds: for these faults, unless one has joined that is worse than all it was said about."""
        ranks = {judged.code: judged.verdict.fault_class.rank for judged in self.work}
        for latch in self.context.history.latches:
            about = ranks.keys() & set(latch.faults)
            if latch.until <= self.now or not about:
                continue
            worst = min(ranks[code] for code in about)
            if not any(rank < worst for code, rank in ranks.items() if code not in about):
                return latch
        return None

    @cached_property
    def old_words(self) -> tuple[str, ...]:
        """Who says all of it, where all are latching conditions that stand as they did when an incident of the same
        fault was proved over and returned: they may only lack a restart of their agent.
        """
        ended = {p.fault: p.ended_at for p in self.context.history.incidents if p.end == End.RETURNED and p.ended_at}
        standing = [(one.code, r) for one in self.work for r in one.fault.raised_by if r.cleared_at is None]
        old = [r.said and r.starts_at and code in ended and r.starts_at < ended[code] for code, r in standing]
        return tuple(sorted({r.source for _, r in standing})) if old and all(old) else ()

    # -- in words ----------------------------------------------------------------------------------------------

    @property
    def wrong(self) -> tuple[str, ...]:
        return tuple(what_is_wrong(judged) for judged in (self.work or self.judged))

    @property
    def circumstances(self) -> tuple[str, ...]:
        found = []
        history = self.context.history
        if self.context.failed:
            found.append(f"before: {self.context.failed}")
        if history.frozen:
            found.append(f"frozen: {history.frozen}; destructive steps wait until it is thawed")
        found += history.bad_parts
        if history.spares == 0 and self.context.workloads:
            pool = self.place.pool if self.place else None
            found.append(f"pool `{pool}` has no spare left and work runs here: the guard makes it wait")
        return tuple(found)

    # -- plans -------------------------------------------------------------------------------------------------

    def make(
        self, action: Action, reasons: tuple[str, ...], *, mode: Mode | None = None,
        faults: Sequence[Judged] | None = None, mark: bool = False, **fields: Any,
    ) -> Plan:  # fmt: skip
        """A plan about `faults` (those to be worked on unless given), with what is the same for every plan."""
        about = self.work if faults is None else faults
        node, policy, context = self.place, self.policy, self.context
        pool = policy.pools.get(node.pool or "") if node else None
        fields.setdefault("quiet_s", policy.quiet)
        if context.faults.drill:
            reasons = (A_DRILL, *reasons)
        if about:
            fields.setdefault("cause", about[0].code)
            fields.setdefault("fault_class", about[0].verdict.fault_class)
            # Also where nothing is done: a person may mend it, and then a check decides.
            wanted = {cover for judged in about for cover in judged.covers}
            fields.setdefault("covers", in_order(wanted))
        return Plan(
            incident=context.incident,
            n=context.n,
            cluster=context.cluster,
            node=context.node_name,
            policy_version=self.version.version,
            policy_hash=self.version.hash,
            made_at=self.now,
            mode=mode or self.standing.mode,
            action=action,
            faults=tuple(judged.code for judged in about),
            identity=node.identity if node else Identity(),
            domains=policy.domains(node) if node else {},
            foreign_cordon=node.foreign_cordon if node else None,
            hands_off=node.hands_off if node else None,
            # Of this cluster: another may run a job of the same name.
            gang=next((f"{context.cluster}/{work.gang}" for work in context.workloads if work.gang), None),
            job_running=bool(context.workloads),
            mark=mark,
            storage_probe=pool.probe_of(node) if node and pool and action is Action.ACT else None,
            order=about[0].fault.order if about and action is Action.ACT else None,
            verify_s=policy.verify,
            probation_s=policy.probation,
            reasons=reasons,
            **fields,
        )
