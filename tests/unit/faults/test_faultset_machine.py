"""Whatever is said in whatever order: latched faults stay until proof, a clear takes back its sender's word only."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from medevac.events.event import HealthEvent, Kind
from medevac.faults.catalogue import lookup
from medevac.faults.classes import Covers
from medevac.faults.faultset import RECORDED, Change, FaultSet
from tests.unit.faults.said import T0, at, said

CODES = ("xid/79", "xid/74", "xid/13", "thermal/gpu-temp", "alert/Odd")
MORE = (*CODES, "xid/48", "xid/45", "xid/63", "xid/154", "condition/Ready")
LATCHED = frozenset(c for c in CODES if lookup(c).fault_class.latched)
LOOSE = frozenset(c for c in CODES if lookup(c).fault_class not in RECORDED) - LATCHED
SENDERS = (("alertmanager", "a"), ("alertmanager", "b"))
FORBIDDEN = ("nvsentinel", "a")
"""Its statements may not be acted on."""
DWELL = 60.0


def statement(code: str, sender: tuple[str, str], kind: Kind) -> HealthEvent:
    return said(code, source=sender[0], sender=sender[1], kind=kind, key=f"{sender[0]}|{code}")


class Hearing(RuleBasedStateMachine):
    """Beside the set runs the plainest possible book: who says what, since when it is taken back."""

    @initialize()
    def begin(self) -> None:
        self.faults = FaultSet()
        self.now: datetime = T0
        self.latched: set[str] = set()
        self.open: dict[tuple[str, tuple[str, str]], datetime | None] = {}
        """(code, sender) → when it was taken back."""

    @rule(code=st.sampled_from(CODES), sender=st.sampled_from(SENDERS), times=st.integers(1, 3))
    def state(self, code: str, sender: tuple[str, str], times: int) -> None:
        for _ in range(times):
            self.faults = self.faults.observe(statement(code, sender, Kind.FAULT), self.now, dwell_s=DWELL).faults
        if code in LATCHED:
            self.latched.add(code)
        if code in LOOSE:
            self.open[code, sender] = None

    @rule(code=st.sampled_from(CODES), sender=st.sampled_from((*SENDERS, FORBIDDEN)))
    def take_back(self, code: str, sender: tuple[str, str]) -> None:
        before = self.faults
        observed = before.observe(statement(code, sender, Kind.RECOVERED), self.now, dwell_s=DWELL)
        self.faults = observed.faults
        if self.open.get((code, sender), self.now) is None:
            self.open[code, sender] = self.now
        elif code not in LATCHED:
            assert observed.change in (Change.IGNORED, Change.REPEAT, Change.CLEARING)

    @rule(code=st.sampled_from(CODES))
    def state_forbidden(self, code: str) -> None:
        """Evidence: it joins, and makes nothing actionable that wasn't."""
        acting = {f.code for f in self.faults.faults if f.actionable}
        event = statement(code, FORBIDDEN, Kind.FAULT).model_copy(update={"actionable": False})
        self.faults = self.faults.observe(event, self.now, dwell_s=DWELL).faults
        after = {f.code for f in self.faults.faults if f.actionable}
        # One that its own sender has taken back meanwhile is now held by evidence alone.
        assert acting - after <= {code} - LATCHED
        assert after <= acting
        if code in LATCHED:
            self.latched.add(code)
        if code in LOOSE:
            self.open[code, FORBIDDEN] = None

    @rule(seconds=st.sampled_from([1.0, 4.0, 30.0, DWELL, 2 * DWELL]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        due = self.faults.next_settle(DWELL)
        self.faults, gone = self.faults.settle(self.now, DWELL)
        assert bool(gone) == (due is not None and due <= self.now)
        for code in gone:
            assert code not in LATCHED
            takes = [taken for (c, _), taken in self.open.items() if c == code]
            assert takes, f"{code} was never open"
            assert all(t is not None and self.now - t >= timedelta(seconds=DWELL) for t in takes)
            self.open = {k: v for k, v in self.open.items() if k[0] != code}

    @rule(covers=st.frozensets(st.sampled_from(list(Covers)), min_size=1))
    def prove(self, covers: frozenset[Covers]) -> None:
        self.now += timedelta(seconds=1)
        self.faults = self.faults.prove(covers, "b2", self.now)
        gone = {c for c in CODES if lookup(c).covers and covers.issuperset(lookup(c).covers)}
        gone |= {c for c in CODES if not lookup(c).fault_class.repairable}
        self.latched -= gone
        self.open = {k: v for k, v in self.open.items() if k[0] not in gone}

    @invariant()
    def what_is_open_is_what_the_book_says(self) -> None:
        assert set(self.faults.codes) == self.latched | {code for code, _ in self.open}
        assert len(self.faults.codes) == len(self.faults.faults)

    @invariant()
    def only_those_who_may_make_it_actionable(self) -> None:
        for fault in self.faults.faults:
            if fault.code in LOOSE and fault.taken_back_at is None:
                by = {s for (c, s), taken in self.open.items() if c == fault.code and taken is None}
                assert fault.actionable == bool(by - {FORBIDDEN})

    @invariant()
    def the_worst_comes_first(self) -> None:
        found = [f for code in self.faults.codes for f in self.faults.faults if f.code == code]
        order = [(not f.actionable, f.fault_class.rank) for f in found]
        assert order == sorted(order)
        assert all(f.first_seen <= f.last_seen <= self.now for f in self.faults.faults)


Hearing.TestCase.settings = settings(max_examples=300, derandomize=True, stateful_step_count=30, deadline=None)
TestHearing = Hearing.TestCase


@given(
    st.lists(st.tuples(st.sampled_from(MORE), st.sampled_from(SENDERS)), min_size=1, max_size=8, unique=True),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 7), max_size=6),
)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_neither_order_nor_duplicates_decide_what_is_open(
    statements: list[tuple[str, tuple[str, str]]], random: object, again: list[int]
) -> None:
    def heard(order: list[tuple[str, tuple[str, str]]]) -> set[tuple[str, str, bool, frozenset[tuple[str, str]]]]:
        faults = FaultSet()
        for i, (code, sender) in enumerate(order):
            faults = faults.observe(statement(code, sender, Kind.FAULT), at(i * 0.1)).faults
        return {
            (f.code, f.fault_class.value, f.actionable, frozenset((r.source, r.sender) for r in f.raised_by))
            for f in faults.faults
        }

    shuffled = list(statements)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert heard(shuffled) == heard(statements)
    assert heard(statements + [statements[i % len(statements)] for i in again]) == heard(statements)
