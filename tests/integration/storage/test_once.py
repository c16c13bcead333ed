"""Rows that make effects once-only or stop them: intents, fences, dwells, the inbox, policy versions."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa

from activities.ports import Unreadable, Verb
from activities.storage import fences as fences_module
from activities.storage import tables
from activities.storage.database import Database
from activities.storage.dwells import DwellKey, Dwells
from activities.storage.fences import Fences
from activities.storage.inbox import Inbox, Item
from activities.storage.intents import Intent, Intents
from activities.storage.policies import NoPolicy, Policies
from medevac.faults.classes import FaultClass
from medevac.incident import StepKey
from medevac.policy.loading import PolicyError
from medevac.policy.plan import Rung
from tests.integration.storage.racing import in_processes, race
from tests.unit.fleet.fleet import T0

KEY = StepKey(incident="i1", step="act")
MINUTE = timedelta(minutes=1)


# -- intents ---------------------------------------------------------------------------------------------------


def begin(intents: Intents, boot: str = "b1") -> tuple[Intent, bool]:
    return intents.begin(
        KEY, Verb.REBOOT, "c", "n1", "m1", boot, Rung.REBOOT, "xid/79", FaultClass.CRITICAL, T0, before={"power": "on"}
    )


def test_a_key_is_begun_once(db: Database) -> None:
    intents = Intents(db)
    first, new = begin(intents)
    assert new
    assert first.before == {"power": "on"}
    assert begin(intents, boot="b2") == (first, False)
    assert intents.get(KEY) == first
    assert intents.get(StepKey(incident="i1", step="act", n=2)) is None


def test_the_first_answer_stays(db: Database) -> None:
    intents = Intents(db)
    begin(intents)
    intents.sent(KEY, {"operation": "op-1"}, T0 + MINUTE)
    intents.sent(KEY, "unclear", T0 + 2 * MINUTE)
    intents.void(KEY, "too late", T0 + 3 * MINUTE)
    found = intents.get(KEY)
    assert found is not None
    assert (found.answer, found.sent_at, found.void) == ({"operation": "op-1"}, T0 + MINUTE, False)


def test_a_call_that_surely_was_not_made_may_be_begun_anew_by_one(db: Database) -> None:
    intents = Intents(db)
    begin(intents)
    intents.void(KEY, "throttled", T0)
    found = intents.get(KEY)
    assert found is not None
    assert found.void
    answers = race([lambda: begin(intents) for _ in range(8)])
    assert [new for _, new in answers].count(True) == 1


def test_of_many_threads_one_begins(db: Database) -> None:
    intents = Intents(db)
    answers = race([lambda: begin(intents) for _ in range(16)])
    assert [new for _, new in answers].count(True) == 1


def test_of_many_processes_one_begins(db: Database, url: str) -> None:
    script = """
import json, sys
from datetime import UTC, datetime
from activities.ports import Verb
from activities.storage.database import Database
from activities.storage.intents import Intents
from medevac.faults.classes import FaultClass
from medevac.incident import StepKey
from medevac.policy.plan import Rung
intents, new = Intents(Database(sys.argv[1], timeout_s=60)), 0
for n in range(30):
    key = StepKey(incident="i1", step="act", n=n)
    now = datetime.now(UTC)
    new += intents.begin(key, Verb.REBOOT, "c", "n", "m", "b", Rung.REBOOT, "x", FaultClass.CRITICAL, now)[1]
print(json.dumps(new))
"""
    counts = in_processes(script, [[url]] * 3)
    assert sum(int(str(count)) for count in counts) == 30


# -- fences ----------------------------------------------------------------------------------------------------


def test_a_freeze_stops_what_stands_in_its_scope(db: Database) -> None:
    fences = Fences(db)
    for scope, stops in (
        ("all", True),
        ("cluster/c", True),
        ("cluster/d", False),
        ("pool/c/train", True),
        ("pool/c/infer", False),
        ("provider/aws", True),
        ("node/c/n1", True),
        ("node/c/n2", False),
    ):
        fences.freeze(scope, "ann", "why", at=T0)
        fence = fences.blocking("c", "n1", "train", "aws")
        assert (fence is not None) is stops, scope
        assert fences.blocking("c", "n1", "train", "aws", edge="mark") is None
        fences.thaw(scope, "ann", T0)
        fences.thaw(scope, "bob", T0)
        assert fences.blocking("c", "n1", "train", "aws") is None


def test_thawing_takes_two_people(db: Database) -> None:
    fences = Fences(db)
    fences.freeze("all", "ann", "why", at=T0)
    for _ in range(2):
        assert not fences.thaw("all", "ann", T0).thawed
        assert voters(fences) == [("ann", ["ann"])]
    done = fences.thaw("all", "bob", T0)
    assert (done.thawed, str(done)) == (True, "all is thawed by ann and bob")
    assert fences.active() == []
    assert str(fences.thaw("all", "bob", T0)) == "all isn't frozen"


def test_no_word_to_go_on_lifts_a_freeze_that_came_after_it(db: Database) -> None:
    fences = Fences(db)
    first = fences.freeze("all", "ann", "why", at=T0)
    assert fences.freeze("all", "ann", "why", at=T0) == first
    fences.thaw("all", "ann", T0)
    again = fences.freeze("all", "ann", "why", at=T0)
    fences.freeze("all", "cid", "smoke", at=T0)
    assert str(fences.thaw("all", "bob", T0)) == "all stays frozen: 1 of 2 people want to thaw it (bob)"
    assert voters(fences) == [("ann", ["bob"]), ("cid", ["bob"])]
    blocking = fences.blocking("c", "n")
    assert blocking is not None
    assert blocking.epoch == again.epoch
    assert fences.thaw("all", "ann", T0).thawed
    assert fences.active() == []


def test_a_word_to_go_on_counts_for_an_hour_and_until_the_scope_is_frozen_anew(db: Database) -> None:
    fences, minute = Fences(db), timedelta(minutes=1)
    fences.freeze("all", "kim", "smoke", at=T0)
    fences.thaw("all", "ada", T0 + minute, "the smoke is gone")
    late = fences.thaw("all", "bob", T0 + 62 * minute)
    assert not late.thawed
    assert str(late) == (
        "all stays frozen: 1 of 2 people want to thaw it (bob);"
        f" ada's word of {T0 + minute:%H:%M} UTC no longer counts: it is more than 60 min old"
    )
    fences.freeze("all", "cid", "sparks", at=T0 + 70 * minute)
    anew = fences.thaw("all", "ada", T0 + 71 * minute)
    assert not anew.thawed
    assert "bob's word" in str(fences.weighed(T0 + 71 * minute)[0].lapsed)
    assert "cid froze it anew since" in str(fences.weighed(T0 + 71 * minute)[0].lapsed)
    assert fences.thaw("all", "bob", T0 + 72 * minute).thawed
    assert fences.active() == []


def test_each_word_to_go_on_keeps_its_time_and_reason(db: Database) -> None:
    fences, later = Fences(db), T0 + timedelta(minutes=5)
    fences.freeze("all", "kim", "smoke", at=T0)
    fences.thaw("all", "ada", later, "the smoke is gone")
    assert [(v.by, v.at, v.why) for v in fences.active()[0].thaw_votes] == [("ada", later, "the smoke is gone")]
    assert [vote.by for vote in fences.weighed(later)[0].thaw_votes] == ["ada"]


def test_a_vote_that_is_a_bare_name_is_as_old_as_its_freeze(db: Database) -> None:
    fences = Fences(db)
    fences.freeze("all", "kim", "smoke", at=T0)
    with db.transaction() as connection:
        connection.execute(sa.update(tables.fences).values(thaw_votes=["ada"]))
    assert not fences.thaw("all", "bob", T0 + timedelta(minutes=61)).thawed
    assert fences.thaw("all", "ada", T0 + timedelta(minutes=62)).thawed


def voters(fences: Fences) -> list[tuple[str, list[str]]]:
    return [(one.by, [vote.by for vote in one.thaw_votes]) for one in fences.weighed(T0)]


def test_a_freeze_with_marks_is_stronger(db: Database) -> None:
    fences = Fences(db)
    first = fences.freeze("all", "ann", "why", at=T0)
    stronger = fences.freeze("all", "ann", "why", marks=True, at=T0)
    assert stronger.epoch > first.epoch
    assert fences.blocking("c", "n", edge="mark") == stronger


@pytest.mark.parametrize(
    "scope", ["", "pool/c", "pool//p", "cluster/", "everything", "node/c/n/x", "all ", "node/c/\0"]
)
def test_a_scope_that_nothing_stands_in_is_an_error(db: Database, scope: str) -> None:
    with pytest.raises(ValueError, match="it is `all`"):
        Fences(db).freeze(scope, "ann", "why", at=T0)


def test_one_read_serves_a_second_and_no_longer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(fences_module.time, "monotonic", lambda: clock[0])
    here, elsewhere = Fences(db), Fences(db)
    assert here.blocking("c", "n") is None
    elsewhere.freeze("all", "ann", "why", at=T0)
    clock[0] += 0.9
    assert here.blocking("c", "n") is None
    clock[0] += 0.2
    assert here.blocking("c", "n") is not None


def test_fences_that_cannot_be_read_are_not_absent(empty_url: str) -> None:
    database = Database(empty_url)  # no schema: every read fails
    with pytest.raises(Unreadable):
        Fences(database).blocking("c", "n")
    database.close()


# -- dwells ----------------------------------------------------------------------------------------------------

GPU = DwellKey("c", "n", "gpu:0", "temp")


def test_samples_at_once_are_judged_one_after_the_other(db: Database) -> None:
    dwells = Dwells(db)

    def count(state: dict[str, int] | None) -> tuple[dict[str, int], int]:
        n = (state or {"n": 0})["n"] + 1
        return {"n": n}, n

    answers = race([lambda: dwells.update_all([(GPU, count)])[0] for _ in range(12)])
    assert sorted(answers) == list(range(1, 13))
    assert dwells.update_all([(GPU._replace(entity="gpu:1"), count)])[0] == 1


def test_a_dwell_that_is_over_leaves_no_state(db: Database) -> None:
    dwells = Dwells(db)
    dwells.update_all([(GPU, lambda _: ({"n": 1}, None))])
    dwells.update_all([(GPU, lambda _: (None, None))])
    assert dwells.update_all([(GPU, lambda state: (None, state))])[0] is None


# -- inbox -----------------------------------------------------------------------------------------------------


def test_an_item_is_offered_until_it_is_done(db: Database) -> None:
    inbox = Inbox(db)
    items = [Item(key=f"k{i}", at=T0 + i * MINUTE, body={"i": i}) for i in range(3)]
    assert inbox.put(items) == 3
    assert inbox.put(items[:1]) == 0
    first, second = inbox.oldest(2)
    assert (first.body, second.body) == ({"i": 0}, {"i": 1})
    assert inbox.waiting() == (3, T0)
    inbox.done([first.id, second.id])
    assert [item.key for item in inbox.oldest()] == ["k2"]
    inbox.done([])
    inbox.done([inbox.oldest()[0].id])
    assert inbox.waiting() == (0, None)


# -- policies --------------------------------------------------------------------------------------------------


def text(name: str) -> str:
    return f"version: 1\nname: {name}\n"


def test_versions_come_into_force_and_go_back(db: Database) -> None:
    policies = Policies(db)
    with pytest.raises(NoPolicy, match="policy apply"):
        policies.active()
    first = policies.propose(text("one"), "ann", T0)
    second = policies.propose(text("two"), "bob", T0)
    with pytest.raises(NoPolicy):
        policies.active()
    policies.activate(first, None, T0)
    active = policies.activate(second, "cid", T0 + MINUTE)
    assert (active.version, active.author, active.approved_by, active.applied_at) == (second, "bob", "cid", T0 + MINUTE)
    assert active.policy.name == "two"
    assert policies.rollback("ann", T0 + 2 * MINUTE).version == first
    assert policies.active().applied_at == T0 + 2 * MINUTE
    assert policies.rollback("ann", T0 + 3 * MINUTE).version == second
    assert [v.version for v in policies.applied()] == [first, second, first, second]
    assert [v.version for v in policies.list()] == [second, first]
    assert policies.get(first).policy.name == "one"


def test_the_same_text_is_the_same_version(db: Database) -> None:
    policies = Policies(db)
    first = policies.propose(text("one"), "ann", T0)
    assert policies.propose(text("one"), "bob", T0) == first
    assert policies.get(first).author == "ann"


def test_a_wrong_policy_gets_no_version(db: Database) -> None:
    policies = Policies(db)
    good = policies.propose(text("one"), "ann", T0)
    policies.activate(good, None, T0)
    with pytest.raises(PolicyError):
        policies.propose("version: 1\nname: two\npoools: {}\n", "ann", T0)
    assert [v.version for v in policies.list()] == [good]
    with pytest.raises(NoPolicy, match="no policy version 99"):
        policies.activate(99, None, T0)
    assert policies.active().version == good


def test_nothing_to_roll_back_to(db: Database) -> None:
    policies = Policies(db)
    with pytest.raises(NoPolicy):
        policies.rollback("ann", T0)
    policies.activate(policies.propose(text("one"), "ann", T0), None, T0)
    with pytest.raises(NoPolicy, match="only one"):
        policies.rollback("ann", T0)


def test_readers_see_one_version_or_the_other_while_it_changes(db: Database) -> None:
    policies = Policies(db)
    versions = [policies.propose(text(name), "ann", T0) for name in ("one", "two")]
    policies.activate(versions[0], None, T0)
    stop = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(Policies(db).active().policy.name)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(10):
        policies.activate(versions[(i + 1) % 2], None, T0)
    stop.set()
    reader.join()
    assert seen <= {"one", "two"}
