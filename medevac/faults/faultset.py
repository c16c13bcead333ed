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

from medevac.events.event import HealthEvent, Kind, Severity, Statement
from medevac.faults import recovery
from medevac.faults.classes import Covers, FaultClass
from medevac.faults.expected import Proof as Proof
from medevac.faults.expected import Remedy as Remedy
from medevac.faults.expected import is_echo, is_stale, is_symptom
from medevac.model import Model

CHAIN = timedelta(seconds=5)
"""Within this of a hardware fault, an application's Xid is that fault's symptom."""
FOLLOWERS = frozenset({"xid/13", "xid/31", "xid/43", "xid/45"})
HARDWARE_SPACES = ("xid/", "sxid/", "dcgm/")
RETAKES = {"xid/162": "xid/163"}
"""Log lines that take back another one."""
RECORDED = (FaultClass.APPLICATION, FaultClass.RECORD)
MAX_FAULTS = 64
MAX_RAISERS = 32
MAX_ENTITIES = 64
MAX_PROOFS = 4
ANYONE = "*"
"""Key of the raiser that stands for those that didn't fit; no clear matches it."""


class Raiser(Model):
    """One sender's open statement of a fault; only the same sender and key can take it back."""

    source: str
    sender: str
    dedupe_key: str
    last_seen: datetime
    cleared_at: datetime | None = None
    series: str | None = None
    statement: Statement = Statement.EDGE
    entities: tuple[str, ...] = ()
    starts_at: datetime | None = None
    actionable: bool = True

    def same_sender(self, event: HealthEvent) -> bool:
        return self.source == event.source and self.sender == event.sender

    def taken_back_by(self, event: HealthEvent) -> bool:
        return self.same_sender(event) and event.dedupe_key in (self.dedupe_key, self.series)

    def replaced_by(self, event: HealthEvent) -> bool:
        """A later instance of the same series (an alert that fires anew): its key is the series and its start."""
        return (
            self.same_sender(event)
            and self.series == event.series
            and _is_instance(self.series, self.dedupe_key, self.starts_at)
            and _is_instance(event.series, event.dedupe_key, event.starts_at)
        )


class OpenFault(Model):
    code: str
    fault_class: FaultClass
    covers: tuple[Covers, ...]
    severity: Severity | None = None
    statement: Statement = Statement.EDGE
    entities: tuple[str, ...] = ()
    first_seen: datetime
    last_seen: datetime
    count: int = 1
    raised_by: tuple[Raiser, ...]
    boot_id: str | None = None
    not_before: datetime | None = None
    ends_at: datetime | None = None
    summary: str = ""
    actionable: bool = True
    note: str = ""
    """Why the class is what it is when that isn't the catalogue's row alone (`48 with 63`, `154 says reboot`)."""
    advice: str | None = None
    """Rung that the catalogue or the driver asks for first."""
    symptoms: tuple[str, ...] = ()
    """Codes that came in its train and are no faults of their own."""

    @property
    def taken_back_at(self) -> datetime | None:
        """When the last of those who raised it took it back; None while one of them stands by it."""
        times = [r.cleared_at for r in self.raised_by]
        return max((t for t in times if t), default=None) if all(times) else None


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
    def first_seen(self) -> datetime | None:
        """The incident's clock."""
        return min((f.first_seen for f in self.faults), default=None)

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
            expected = is_symptom(event, remedy, now)
            return self._same(*(_EXPECTED if expected else (Change.IGNORED, "the machine's life, recorded")))
        if event.kind is Kind.RECOVERED:
            return self._clear(event, now, dwell_s)
        if event.kind not in (Kind.FAULT, Kind.PLANNED) or event.fault is None:
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
        if code not in known and is_symptom(event, remedy, now):
            return self._same(*_EXPECTED)
        if fault_class in RECORDED:
            return self._beside(code, fault_class, now)
        return self._open(event, code, fault_class, now)

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
        raiser = _raiser(event, now)
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
                raised_by=(raiser,),
                boot_id=event.boot_id,
                not_before=event.not_before,
                ends_at=event.ends_at,
                summary=event.summary,
                actionable=event.actionable,
                note=event.note,
                advice=event.advice,
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
            seen = {"raised_by": _raised(old.raised_by, event, raiser), "count": old.count + 1, "last_seen": now}
            joined = _as_its_raisers_allow(old.model_copy(update=seen))
            return self._with(joined, Change.REPEAT, "evidence: its sender forbids to act on it")
        newly = event.actionable and not old.actionable
        worse_class = fault_class.rank < old.fault_class.rank
        sooner = bool(event.not_before and old.not_before and event.not_before < old.not_before)
        fault = old.model_copy(
            update={
                "fault_class": fault_class if worse_class or newly else old.fault_class,
                "covers": tuple(dict.fromkeys((*old.covers, *event.covers))),
                "severity": _worse_word(old.severity, event.severity),
                "entities": tuple(dict.fromkeys((*old.entities, *event.entities)))[:MAX_ENTITIES],
                "last_seen": max(now, old.last_seen),
                "count": old.count + 1,
                "raised_by": _raised(old.raised_by, event, raiser),
                "boot_id": event.boot_id or old.boot_id,
                "not_before": event.not_before or old.not_before,
                "ends_at": event.ends_at or old.ends_at,
                "summary": event.summary or old.summary,
                "actionable": event.actionable,
                "note": event.note or old.note,
                "advice": event.advice or old.advice,
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
        found = [f for f in self.faults if any(_matches(f, r, event) for r in f.raised_by)]
        exact = [f for f in found if f.code == event.fault]
        if exact:
            found = exact
        elif event.fault is not None and event.fault.startswith(HARDWARE_SPACES) and event.fault not in RETAKES:
            found = [f for f in found if not f.code.startswith(HARDWARE_SPACES)]
        if not found:
            return self._same(Change.IGNORED, "takes back nothing that its sender has open here")
        marked = {f.code: _taken_back(f, event, now) for f in found}
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
        gone = {f.code for f in self.faults if (at := _settles_at(f, dwell_s)) is not None and at <= now}
        if not gone:
            return self, ()
        return self._replaced(dict.fromkeys(gone)), tuple(c for c in self.codes if c in gone)

    def next_settle(self, dwell_s: float = 60.0) -> datetime | None:
        """When `settle` will next have something to do."""
        return min((at for f in self.faults if (at := _settles_at(f, dwell_s)) is not None), default=None)

    def prove(
        self, covers: Collection[Covers], boot_id: str | None, at: datetime, *, since: datetime | None = None
    ) -> FaultSet:
        """A check that is newer than the remedy has passed: without the faults that it covers.

        `since`: when the remedy was proved. A fault that was truly stated after it stays open, for the check may
        have been too early to see it. What never was the node's fault doesn't outlive its repair.
        """
        kept = tuple(
            f
            for f in self.faults
            if f.last_seen > (since or at)
            or (f.fault_class.repairable and not (f.covers and set(covers).issuperset(f.covers)))
        )
        proof = Proof(covers=tuple(sorted(covers)), boot_id=boot_id, at=at)
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


_EXPECTED = (Change.EXPECTED, "a symptom of the step that runs")


def _is_instance(series: str | None, key: str, starts_at: datetime | None) -> bool:
    return series is not None and starts_at is not None and key == f"{series}|{starts_at.isoformat()}"


def _settles_at(fault: OpenFault, dwell_s: float) -> datetime | None:
    at = fault.taken_back_at
    if at is None or fault.fault_class.latched:
        return None
    # A provider that calls its notice off needs no dwell.
    return at if fault.fault_class is FaultClass.PLANNED else at + timedelta(seconds=dwell_s)


def _matches(fault: OpenFault, raiser: Raiser, event: HealthEvent) -> bool:
    if event.kind is Kind.RECOVERED:
        return raiser.taken_back_by(event)
    same_part = not event.entities or not raiser.entities or bool(set(event.entities) & set(raiser.entities))
    return RETAKES.get(event.fault or "") == fault.code and raiser.same_sender(event) and same_part


def _taken_back(fault: OpenFault, event: HealthEvent, now: datetime) -> OpenFault:
    raised_by = tuple(
        r.model_copy(update={"cleared_at": r.cleared_at or now}) if _matches(fault, r, event) else r
        for r in fault.raised_by
    )
    return _as_its_raisers_allow(fault.model_copy(update={"raised_by": raised_by}))


def _as_its_raisers_allow(fault: OpenFault) -> OpenFault:
    """Only what still stands may be acted on; a latched fault stands whatever its senders take back."""
    left = [r for r in fault.raised_by if r.cleared_at is None]
    if fault.fault_class.latched or not left:
        return fault
    return fault.model_copy(update={"actionable": any(r.actionable for r in left)})


def _raiser(event: HealthEvent, now: datetime) -> Raiser:
    return Raiser(
        source=event.source,
        sender=event.sender,
        dedupe_key=event.dedupe_key,
        last_seen=now,
        series=event.series,
        statement=event.statement,
        entities=event.entities[:MAX_ENTITIES],
        starts_at=event.starts_at,
        actionable=event.actionable,
    )


def _raised(before: tuple[Raiser, ...], event: HealthEvent, raiser: Raiser) -> tuple[Raiser, ...]:
    """With the new statement in its place: that of the same key, or of an older instance of its series."""
    kept: list[Raiser] = []
    for r in before:
        if r.same_sender(event) and r.dedupe_key == event.dedupe_key:
            continue
        if r.replaced_by(event):
            if r.starts_at and event.starts_at and r.starts_at > event.starts_at:
                return before  # a late repeat of the older instance
            continue
        kept.append(r)
    if len(kept) >= MAX_RAISERS:
        # An edge is never taken back, so another of its kind says as much; a level that doesn't fit is kept nameless.
        edge = next((r for r in kept if r.statement is Statement.EDGE), None)
        if edge is not None:
            kept.remove(edge)
        else:
            kept = [r for r in kept if r.dedupe_key != ANYONE][: MAX_RAISERS - 1]
            raiser = raiser.model_copy(update={"dedupe_key": ANYONE, "series": None})
    return (*kept, raiser)


def _worse_word(a: Severity | None, b: Severity | None) -> Severity | None:
    words = [w for w in (Severity.CRITICAL, Severity.WARNING, Severity.INFO) if w in (a, b)]
    return words[0] if words else None


Observed.model_rebuild()
