"""One incident's state inside its workflow: what was heard, decided, sent and told. Plain data, no Temporal calls."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from activities.signatures import Precondition, Target, Timing
from medevac.approvals.approval import ApprovalResult
from medevac.events.event import HealthEvent, Statement
from medevac.faults.classes import FaultClass
from medevac.faults.faultset import Change, FaultSet, Remedy
from medevac.fleet.lease import LeaseRef
from medevac.fleet.node import Identity
from medevac.fleet.places import Offer
from medevac.incident import End, IncidentView, Line, State, StepKey, Stop
from medevac.policy.plan import Plan, Rung
from medevac.policy.yielding import follows_another
from workflows.messages import Carried, NodeInput

SEEN_EVENTS = 500
INBOX_EVENTS = 1_000
UPDATE_ANSWERS = 200

ANOTHERS = "the faults are the old one's"
_MATTERS = (Change.NEW, Change.WORSE, Change.CLEARED)


class IncidentRun:
    """Mutable state of one incident; survives continue-as-new as `Carried`."""

    def __init__(self, given: NodeInput, incident: str, workflow_id: str, run_id: str, now: datetime) -> None:
        carried = given.carried or Carried(
            incident=incident, opened_at=now, state=State.HEARD, faults=FaultSet(), subject=given.node
        )
        self.cluster = given.cluster
        self.node = given.node
        self.timing: Timing = given.timing
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.incident = carried.incident
        self.opened_at = carried.opened_at
        self.state = carried.state
        self.faults = carried.faults
        self.inbox: list[HealthEvent] = list(carried.inbox)
        self._seen: OrderedDict[str, None] = OrderedDict.fromkeys(carried.seen)
        self.plan = carried.plan
        self.plan_n = carried.plan_n
        self._steps = dict(carried.steps)
        self.rev = carried.rev
        self.owner = carried.owner
        self.hold = carried.hold
        self.stopped = carried.stopped
        self.marked = carried.marked
        self.marked_as = carried.marked_as
        self.order_sent = carried.order_sent
        self.drained = carried.drained
        self.lease: LeaseRef | None = carried.lease
        self.lease_asked = carried.lease is not None
        self.lines: list[Line] = list(carried.lines)
        self.asked_rungs: list[Rung] = list(carried.asked_rungs)
        self.remedy: Remedy | None = carried.remedy
        self.decisions: dict[str, ApprovalResult] = {d.id: d for d in carried.decisions}
        self.approvals: list[str] = []
        """Approvals that the plan at hand was given."""
        self.asks = carried.asks
        self.answered = False
        """People answered since the last plan, but not to it: it asks them anew at once."""
        self.requested = carried.requested
        self.asked = carried.asked
        self.asked_of = carried.asked_of
        self.came = carried.came
        self.taken_back = carried.taken_back
        self.nothing_came: list[Offer] = list(carried.nothing_came)
        self.updates: dict[str, str] = dict(carried.updates)
        self.said: list[str] = list(carried.said)
        self.subject = carried.subject or given.node

        self.end: End | None = None
        self.waiting_for = ""
        self.failed = carried.failed
        """Why the last rung did not do; reason of the next plan."""
        self.hand_over = carried.hand_over
        """Set when the workflow knows that a person must take it."""
        self.changed = False
        """The fault set has become new, worse or cleared since the last plan."""
        self.worse = False
        self.abort_by: str | None = carried.abort_by
        self.abort_why = carried.abort_why
        self.confirm_by: str | None = carried.confirm_by
        self.resume_by: str | None = carried.resume_by
        self.resumed_n = 0
        """Plans made before the last order to plan again took effect."""
        self.woken = False
        self.closing = False
        """While the end is written, what is heard stays in the inbox: it belongs to the next incident."""

    # -- hearing -----------------------------------------------------------------------------------------------

    def hear(self, event: HealthEvent) -> None:
        """Appends, drops what was delivered before, never raises. A level statement is news each time it is heard."""
        heard = event.id if event.statement is Statement.EDGE else f"{event.id} {event.received_at}"
        if heard in self._seen:
            return
        self._seen[heard] = None
        while len(self._seen) > SEEN_EVENTS:
            self._seen.popitem(last=False)
        if len(self.inbox) < INBOX_EVENTS:
            self.inbox.append(event)

    @property
    def unread(self) -> bool:
        return bool(self.inbox) and not self.closing

    def absorb(self, now: datetime) -> None:
        """Takes the inbox into the fault set and notes what changed."""
        if self.closing:
            return
        while self.inbox:
            event = self.inbox.pop(0)
            observed = self.faults.observe(event, now, remedy=self.remedy, dwell_s=self.timing.dwell_s)
            self.faults = observed.faults
            if observed.change is not Change.REPEAT and not observed.told:
                self.note(
                    "event",
                    now,
                    f"{event.source}: {event.fault or event.kind} {observed.change}: {observed.reason}"[:1000],
                )
            if observed.change in _MATTERS:
                self.changed = True
                self.worse = self.worse or observed.change is Change.WORSE
        self.settle(now)

    def settle(self, now: datetime) -> None:
        """Lets clears take effect whose dwell has passed."""
        self.faults, cleared = self.faults.settle(now, self.timing.dwell_s)
        for code in cleared:
            self.note("event", now, f"{code} cleared: taken back by everyone who raised it, for the dwell")
            self.changed = True

    # -- keys and lines ----------------------------------------------------------------------------------------

    def key(self, step: str) -> StepKey:
        """The next key of a step; counted here, by the workflow, whatever Temporal's attempts are."""
        n = self._steps.get(step, 0) + 1
        self._steps[step] = n
        return StepKey(incident=self.incident, step=step, n=n)

    def note(self, kind: str, now: datetime, text: str, **data: object) -> None:
        """A ledger line, written with the next `record`."""
        self.lines.append(
            Line.model_validate({"key": self.key(kind), "at": now, "kind": kind, "text": text, "data": data})
        )

    def take_lines(self) -> tuple[Line, ...]:
        taken, self.lines = tuple(self.lines), []
        return taken

    def view(self, now: datetime) -> IncidentView:
        """The row to be written: each is a newer revision."""
        self.rev += 1
        return self.row(now)

    def row(self, now: datetime) -> IncidentView:
        """The incident as people see it."""
        worst = self.faults.worst
        plan = self.plan
        return IncidentView(
            id=self.incident,
            workflow_id=self.workflow_id,
            run_id=self.run_id,
            cluster=self.cluster,
            node=self.subject,
            pool=plan.pool if plan else None,
            machine_id=plan.identity.machine_id if plan else None,
            fault=worst.code if worst else plan.cause if plan else None,
            fault_class=worst.fault_class if worst else plan.fault_class if plan else None,
            faults=self.faults.codes or (plan.faults if plan else ()),
            state=self.state,
            end=self.end,
            opened_at=self.opened_at,
            updated_at=now,
            waiting_for=self.waiting_for,
            owner=self.owner,
            hold=self.hold,
            stopped=self.stopped,
            order_sent=self.order_sent,
            drained=self.drained,
            rung=plan.rung.value if plan and plan.rung else None,
            plan_hash=plan.hash if plan else None,
            policy_version=plan.policy_version if plan else None,
            summary=plan.reasons[0] if plan and plan.reasons else "",
            rev=self.rev,
        )

    # -- what a step needs -------------------------------------------------------------------------------------

    def expect_until(self, deadline: datetime) -> None:
        """What our own steps cause is expected until then."""
        if self.remedy:
            self.remedy = self.remedy.model_copy(update={"deadline": deadline})

    def precondition(self, plan: Plan, identity: Identity) -> Precondition:
        if self.lease is None:
            raise ValueError("no lease")
        return Precondition(
            **dict(self.target(plan, identity)),
            lease=self.lease,
            plan_hash=plan.hash,
            mark=plan.mark,
            foreign_cordon=plan.foreign_cordon,
            hands_off=plan.hands_off,
            approvals=tuple(self.approvals),
            order=plan.order,
        )

    def target(self, plan: Plan, identity: Identity) -> Target:
        return Target(
            incident=self.incident,
            cluster=self.cluster,
            node=self.node,
            provider=plan.domains.get("provider", ""),
            identity=identity,
            scopes=plan.domains,
        )

    def found_another(self, now: Identity) -> bool:
        """True where another machine than the last plan's answers to the node's name, by no order of ours.

        What is open was said of the one that left. Whether the new one has it too, a person and a check say.
        """
        was = self.plan.identity if self.plan else Identity()
        if was.uid and now.uid and was.uid != now.uid:
            self.marked = False  # Ours went with the old node object; that it is missing is nobody's veto.
        moved = was.machine_id and now.machine_id and was.machine_id != now.machine_id
        if self.plan and follows_another(self.plan):
            return False  # The other's repair may be another machine; the check that follows judges that one.
        if moved and self._only_listed(now):
            return False  # Nothing was done: the campaign leaves the new machine out, and its order goes.
        if not moved or self.hand_over or {Rung.REPLACE, Rung.TERMINATE, Rung.RMA} & set(self.asked_rungs):
            return False
        self.hand_over = f"{self.node} was machine {was.machine_id} and is {now.machine_id} now; {ANOTHERS}"
        return True

    def go_on(self) -> None:
        """Forgets why a person had it. Grants nothing: who had said yes before is asked anew."""
        self.hand_over, self.resume_by, self.resumed_n = "", None, self.plan_n
        self.decisions.clear()
        self.asks += 1

    def _only_listed(self, now: Identity) -> bool:
        """True where all that is open is a campaign's order for the machine that left, and it has not begun."""
        orders = [fault.order for fault in self.faults.faults]
        return not self.asked_rungs and bool(orders) and all(order and order.another(now) for order in orders)

    def holding(self, now: datetime) -> bool:
        """True while a person holds the incident; an expired hold is no hold."""
        return self.hold is not None and self.hold.until > now

    def stop(self, by: str, reason: str) -> None:
        """A person's word takes effect on the plan at hand."""
        order = self.plan.order if self.plan else None
        acted = self.order_sent or (order is not None and Rung(order.rung) in self.asked_rungs)
        self.stopped = Stop(by=by, reason=reason, acted=acted)

    @property
    def fault_class(self) -> FaultClass:
        """As the plan has it, for a rule may have raised it."""
        if self.plan and self.plan.fault_class:
            return self.plan.fault_class
        worst = self.faults.worst
        return worst.fault_class if worst else FaultClass.UNKNOWN

    @property
    def left_behind(self) -> str:
        """What a person must look after when the incident goes no further; empty when nothing."""
        if not self.requested:
            return ""
        if self.came:
            return f"the successor {self.came} has joined and stays; no check has passed on it"
        return self.taken_back or f"a successor was asked for under {self.incident} and may be running"

    @property
    def of_successor(self) -> str:
        """What people are told of the one that was asked for, when the incident goes no further."""
        return self.left_behind or self.taken_back

    def first_time(self, what: str) -> bool:
        """True once for each `what`: a repeat of what people were told is silent."""
        if what in self.said:
            return False
        self.said.append(what)
        return True

    def answer(self, update_id: str, text: str) -> str:
        self.updates[update_id] = text
        while len(self.updates) > UPDATE_ANSWERS:
            self.updates.pop(next(iter(self.updates)))
        return text

    def carry(self) -> Carried:
        return Carried(
            incident=self.incident,
            opened_at=self.opened_at,
            state=self.state,
            faults=self.faults,
            inbox=tuple(self.inbox),
            seen=tuple(self._seen),
            plan=self.plan,
            plan_n=self.plan_n,
            steps=self._steps,
            rev=self.rev,
            owner=self.owner,
            hold=self.hold,
            stopped=self.stopped,
            marked=self.marked,
            marked_as=self.marked_as,
            order_sent=self.order_sent,
            drained=self.drained,
            lease=self.lease,
            lines=tuple(self.lines),
            asked_rungs=tuple(self.asked_rungs),
            remedy=self.remedy,
            decisions=tuple(self.decisions.values()),
            asks=self.asks,
            requested=self.requested,
            asked=self.asked,
            asked_of=self.asked_of,
            came=self.came,
            taken_back=self.taken_back,
            nothing_came=tuple(self.nothing_came),
            updates=self.updates,
            said=tuple(self.said[-50:]),
            failed=self.failed,
            hand_over=self.hand_over,
            abort_by=self.abort_by,
            abort_why=self.abort_why,
            confirm_by=self.confirm_by,
            resume_by=self.resume_by,
            subject=self.subject,
        )
