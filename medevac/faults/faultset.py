"""A node's `FaultSet`: what is open, on our own clock; repeats, coalescing, echoes and clearing.

What a sender says opens a fault or moves its last-seen. What clears it is the stricter of the sender's rule and
the class's: latched faults are removed by `prove` alone, the others when everyone who raised them has taken it
back and the dwell has passed. Nothing here looks anything up: class and covers travel with the event, so that a
replay under a newer catalogue decides alike.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum

from medevac.events.drill import SOURCE as DRILL
from medevac.events.event import HealthEvent, Kind, Severity
from medevac.faults import recovery
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.expected import Proof as Proof
from medevac.faults.expected import Remedy as Remedy
from medevac.faults.expected import is_echo, is_stale, is_symptom, only_repeats, said_by, still_says
from medevac.faults.open_fault import MAX_ENTITIES, RETAKES
from medevac.faults.open_fault import OpenFault as OpenFault
from medevac.faults.open_fault import Raiser as Raiser
from medevac.model import Model

CHAIN = timedelta(seconds=5)
"""Within this of a hardware fault, an application's Xid is that fault's symptom."""
FOLLOWERS = frozenset({"xid/13", "xid/31", "xid/43", "xid/45"})
HARDWARE_SPACES = ("xid/", "sxid/", "dcgm/")
RECORDED = (FaultClass.APPLICATION, FaultClass.RECORD)
MAX_FAULTS = 64
MAX_PROOFS = 4


class Change(StrEnum):
    NEW = "new"
    WORSE = "worse"
    REPEAT = "repeat"
    CLEARING = "clearing"
    """Taken back by its sender; cleared when the dwell has passed."""
    CLEARED = "cleared"
    EXPECTED = "expected"
    """A symptom of our own step, or an echo of what the step has mended."""
    STALE = "stale"
    IGNORED = "ignored"


class Observed(Model):
    faults: FaultSet
    change: Change
    reason: str
    told: bool = False
    """People have been told the same before, in this incident."""


class FaultSet(Model):
    faults: tuple[OpenFault, ...] = ()
    proofs: tuple[Proof, ...] = ()
    """Checks that passed, newest last; by them late statements about what was mended are told."""

    # -- asking ------------------------------------------------------------------------------------------------

    @property
    def worst(self) -> OpenFault | None:
        return self._worst_first()[0] if self.faults else None

    @property
    def codes(self) -> tuple[str, ...]:
        """Worst first; what may not be acted on comes last."""
        return tuple(f.code for f in self._worst_first())

    @property
    def actionable(self) -> bool:
        return any(f.actionable for f in self.faults)

    @property
    def drill(self) -> bool:
        """Nothing is open but what a person plays: one true statement makes it an incident like any other."""
        raisers = [raiser for fault in self.faults for raiser in fault.raised_by]
        return bool(raisers) and all(raiser.source == DRILL for raiser in raisers)

    @property
    def first_seen(self) -> datetime | None:
        """The incident's clock."""
        return min((f.first_seen for f in self.faults), default=None)

    @property
    def clearing(self) -> bool:
        """True while everything that a repair could be for has been taken back, and only the dwell isn't over."""
        open = [f for f in self.faults if f.fault_class.repairable]
        return bool(open) and all(f.taken_back_at is not None and not f.fault_class.latched for f in open)

    def unknown(self, now: datetime, repeat_s: float) -> tuple[str, ...]:
        """Codes of which nobody has said for two repeat intervals whether they still hold. Such a fault is neither
        clear (it stays open) nor still there: nothing destructive may be done for it alone."""
        return tuple(f.code for f in self._worst_first() if (at := f.unknown_at(repeat_s)) is not None and at <= now)

    @property
    def recommended(self) -> str | None:
        """The rung that the driver itself recommends; not heard beside a failed remap, which nothing resets."""
        if any(f.code in recovery.HARDWARE for f in self.faults):
            return None
        advised = [f for f in self.faults if f.actionable and f.code in recovery.CODES]
        return max(advised, key=lambda f: f.last_seen).advice if advised else None

    def get(self, code: str) -> OpenFault | None:
        return next((f for f in self.faults if f.code == code), None)

    def _worst_first(self) -> list[OpenFault]:
        return sorted(self.faults, key=lambda f: (not f.actionable, f.fault_class.rank, f.first_seen, f.code))

    # -- hearing -----------------------------------------------------------------------------------------------

    def observe(
        self, event: HealthEvent, now: datetime, *, remedy: Remedy | None = None, dwell_s: float = 60.0
    ) -> Observed:
        """Takes one statement in. Duplicates change nothing but last-seen; the order decides nothing that is open."""
        if event.marker is not None:
            return self._same(Change.IGNORED, f"medevac itself emitted it ({event.marker})")
        if event.kind is Kind.LIFECYCLE:
            if is_symptom(event, remedy, now):
                return self._same(*_EXPECTED)
            if not event.opens:
                return self._same(Change.IGNORED, "the machine's life, recorded")
        if event.kind is Kind.RECOVERED:
            return self._clear(event, now, dwell_s)
        if not event.opens or event.fault is None:
            return self._same(Change.IGNORED, f"a {event.kind.value} is evidence, not a fault")
        code, fault_class = event.fault, event.fault_class or FaultClass.UNKNOWN
        boots = {b for b in (*(f.boot_id for f in self.faults), *(p.boot_id for p in self.proofs)) if b}
        if is_stale(event, now, boots):
            return self._same(Change.STALE, f"it began {event.starts_at} by its sender's clock")
        if code in RETAKES:
            return self._clear(event, now, dwell_s)
        known = {f.code for f in self.faults}
        if is_echo(event, remedy, now, known, self.proofs):
            return self._same(Change.EXPECTED, "an echo of what the remedy has mended")
        if (known_as := self.get(code)) and any(
            only_repeats(event, r.said, r.last_seen, remedy, now) for r in known_as.raised_by
        ):
            return self._same(Change.EXPECTED, f"{event.source} says what it said before the remedy: a check decides")
        if code not in known and (proof := still_says(event, remedy, now, self.proofs)):
            return self._latched(event, proof)
        if code not in known and is_symptom(event, remedy, now):
            return self._same(*_EXPECTED)
        if fault_class in RECORDED:
            return self._beside(code, fault_class, now)
        return self._open(event, code, fault_class, now)

    def _latched(self, event: HealthEvent, proof: Proof) -> Observed:
        said = said_by(event)
        noted = proof.model_copy(update={"told": tuple({*proof.told, said})})
        proofs = tuple(noted if one is proof else one for one in self.proofs)
        return Observed(
            faults=FaultSet(faults=self.faults, proofs=proofs),
            change=Change.EXPECTED,
            reason=f"{event.source} still says what it said before the check that passed; unchanged, it is no news for"
            " a day. Restart its agent: nothing else takes it back",
            told=said in proof.told,
        )

    def _beside(self, code: str, fault_class: FaultClass, now: datetime) -> Observed:
        """Application faults and records: evidence at most, a symptom where a hardware fault came just before."""
        for head in self._worst_first():
            if not head.fault_class.latched or not head.code.startswith(HARDWARE_SPACES):
                continue
            if code in head.symptoms:
                return self._same(Change.REPEAT, f"a symptom of {head.code}")
            if code in FOLLOWERS and now - head.last_seen <= CHAIN:
                symptoms = (*head.symptoms, code)
                return self._with(
                    head.model_copy(update={"symptoms": symptoms}), Change.REPEAT, f"a symptom of {head.code}"
                )
            if head.code == "xid/48" and code == "xid/63":
                return self._with(
                    head.model_copy(update={"note": "48 with 63", "symptoms": (*head.symptoms, code)}),
                    Change.REPEAT,
                    "the remapping that belongs to xid/48",
                )
        return self._same(
            Change.IGNORED, f"{code} is of class {fault_class.value}: recorded, never a node's fault by itself"
        )

    def _open(self, event: HealthEvent, code: str, fault_class: FaultClass, now: datetime) -> Observed:
        old = self.get(code)
        rank = min((f.fault_class.rank for f in self.faults if f.actionable), default=None)
        if old is None:
            fault = OpenFault(
                code=code,
                fault_class=fault_class,
                covers=event.covers,
                severity=event.severity,
                statement=event.statement,
                entities=event.entities[:MAX_ENTITIES],
                first_seen=now,
                last_seen=now,
                raised_by=(Raiser.of(event, now),),
                boot_id=event.boot_id,
                not_before=event.not_before,
                ends_at=event.ends_at,
                summary=event.summary,
                actionable=event.actionable,
                note=event.note,
                advice=event.advice,
                order=event.order,
            )
            room = self._make_room(fault)
            if room is None:
                return self._same(Change.IGNORED, f"{MAX_FAULTS} faults are open already")
            opened = FaultSet(faults=(*room, fault), proofs=self.proofs)
            if not event.actionable:
                return Observed(faults=opened, change=Change.NEW, reason="evidence: its sender forbids to act on it")
            worse = rank is not None and fault_class.rank < rank
            change = Change.WORSE if worse else Change.NEW
            return Observed(faults=opened._noted(), change=change, reason=event.note or f"{code} is open")

        if old.actionable and not event.actionable:
            joined = old.stated(event, now).as_its_raisers_allow()
            return self._with(joined, Change.REPEAT, "evidence: its sender forbids to act on it")
        newly = event.actionable and not old.actionable
        worse_class = fault_class.rank < old.fault_class.rank
        sooner = bool(event.not_before and old.not_before and event.not_before < old.not_before)
        fault = old.stated(event, now).model_copy(
            update={
                "fault_class": fault_class if worse_class or newly else old.fault_class,
                "covers": tuple(dict.fromkeys((*old.covers, *event.covers))),
                "severity": _worse_word(old.severity, event.severity),
                "entities": tuple(dict.fromkeys((*old.entities, *event.entities)))[:MAX_ENTITIES],
                "boot_id": event.boot_id or old.boot_id,
                "not_before": event.not_before or old.not_before,
                "ends_at": event.ends_at or old.ends_at,
                "summary": event.summary or old.summary,
                "actionable": event.actionable,
                "note": event.note or old.note,
                "advice": event.advice or old.advice,
                "order": event.order or old.order,
            }
        )
        if newly:
            change = Change.WORSE if rank is not None and fault_class.rank < rank else Change.NEW
            return self._with(fault, change, "it may be acted on now")
        if worse_class:
            return self._with(fault, Change.WORSE, fault.note or f"now of class {fault_class.value}")
        if sooner:
            return self._with(fault, Change.WORSE, "its time has been moved forward")
        return self._with(fault, Change.REPEAT, f"seen {fault.count} times")

    def _make_room(self, fault: OpenFault) -> tuple[OpenFault, ...] | None:
        """Bounded: a flood of codes never crowds out a latched one."""
        if len(self.faults) < MAX_FAULTS:
            return self.faults
        least = self._worst_first()[-1]
        if fault.fault_class.rank >= least.fault_class.rank or least.fault_class.latched:
            return None
        return tuple(f for f in self.faults if f is not least)

    # -- clearing ----------------------------------------------------------------------------------------------

    def _clear(self, event: HealthEvent, now: datetime, dwell_s: float) -> Observed:
        """One sender takes its own statement back; that of another stands."""
        found = [f for f in self.faults if f.is_taken_back_by(event)]
        exact = [f for f in found if f.code == event.fault]
        if exact:
            found = exact
        elif event.fault is not None and event.fault.startswith(HARDWARE_SPACES) and event.fault not in RETAKES:
            found = [f for f in found if not f.code.startswith(HARDWARE_SPACES)]
        if not found:
            return self._same(Change.IGNORED, "takes back nothing that its sender has open here")
        marked = {f.code: f.taken_back(event, now) for f in found}
        changed = self._replaced(marked)
        codes = ", ".join(marked)
        if all(f.fault_class.latched for f in marked.values()):
            return Observed(
                faults=changed,
                change=Change.IGNORED,
                reason=f"{codes} is latched: only a check passed after a remedy clears it",
            )
        loose = [f for f in marked.values() if not f.fault_class.latched]
        held = [f for f in loose if f.taken_back_at is None]
        if len(held) == len(loose):
            by = ", ".join(sorted({r.source for f in held for r in f.raised_by if not r.cleared_at}))
            return Observed(faults=changed, change=Change.REPEAT, reason=f"{codes} is still raised by {by}")
        settled, gone = changed.settle(now, dwell_s)
        if gone:
            return Observed(faults=settled, change=Change.CLEARED, reason=f"{', '.join(gone)} taken back")
        return Observed(faults=changed, change=Change.CLEARING, reason=f"{codes} taken back; cleared if it stays so")

    def settle(self, now: datetime, dwell_s: float = 60.0) -> tuple[FaultSet, tuple[str, ...]]:
        """Without the faults whose clear has outlasted the dwell, and their codes. Latched ones never go this way."""
        gone = {f.code for f in self.faults if (at := f.settles_at(dwell_s)) is not None and at <= now}
        if not gone:
            return self, ()
        return self._replaced(dict.fromkeys(gone)), tuple(c for c in self.codes if c in gone)

    def next_settle(self, dwell_s: float = 60.0) -> datetime | None:
        """When `settle` will next have something to do."""
        return min((at for f in self.faults if (at := f.settles_at(dwell_s)) is not None), default=None)

    def prove(
        self,
        covers: Collection[Covers],
        boot_id: str | None,
        at: datetime,
        *,
        since: datetime | None = None,
        about: Collection[str] = (),
    ) -> FaultSet:
        """A check that is newer than the remedy has passed: without the faults that it covers.

        `about`: codes that the check was chosen for. Of those without covers of their own a policy's rule said
        what proves them gone, and the planner had the check cover it.
        `since`: when the remedy was proved. A fault that was truly stated after it stays open, for the check may
        have been too early to see it. What never was the node's fault doesn't outlive its repair.
        """
        kept = tuple(
            f
            for f in self.faults
            if f.last_seen > (since or at) or (f.fault_class.repairable and not _proves(covers, f, about))
        )
        gone = [f for f in self.faults if f not in kept]
        # As it stood when the remedy was proved: what was first said after that is no old word.
        said = {r.said for f in gone for r in f.raised_by if r.said and (r.starts_at or at) < (since or at)}
        proof = Proof(covers=tuple(sorted(covers)), boot_id=boot_id, at=at, since=since, said=tuple(sorted(said)))
        return FaultSet(faults=kept, proofs=(*self.proofs, proof)[-MAX_PROOFS:])

    # -- making ------------------------------------------------------------------------------------------------

    def _same(self, change: Change, reason: str) -> Observed:
        return Observed(faults=self, change=change, reason=reason)

    def _with(self, fault: OpenFault, change: Change, reason: str) -> Observed:
        return Observed(faults=self._replaced({fault.code: fault})._noted(), change=change, reason=reason)

    def _replaced(self, by: dict[str, OpenFault] | dict[str, None]) -> FaultSet:
        kept = [by.get(f.code, f) if f.code in by else f for f in self.faults]
        return FaultSet(faults=tuple(f for f in kept if f is not None), proofs=self.proofs)

    def _noted(self) -> FaultSet:
        """Says of a double bit error that its remap failed too."""
        both = self.get("xid/48")
        if both is None or self.get("xid/64") is None or both.note == "48 with 64":
            return self
        return self._replaced({"xid/48": both.model_copy(update={"note": "48 with 64"})})


def _proves(covers: Collection[Covers], fault: OpenFault, about: Collection[str]) -> bool:
    if not fault.covers:
        return bool(covers) and fault.code in about
    return set(covers).issuperset(fault.covers)


_EXPECTED = (Change.EXPECTED, "a symptom of the step that runs")


def _worse_word(a: Severity | None, b: Severity | None) -> Severity | None:
    words = [w for w in (Severity.CRITICAL, Severity.WARNING, Severity.INFO) if w in (a, b)]
    return words[0] if words else None


Observed.model_rebuild()
