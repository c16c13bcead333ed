"""Which node a sender means, and which of its statements are news."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.ports import Cluster, Unreadable
from activities.storage.said import Said
from medevac.events.event import HealthEvent, Kind
from medevac.fleet.node import Machine, Node
from worker.intake.fold import Fold, key_of, words_of
from worker.intake.inventory import Found, Inventory, NotFound
from worker.intake.part import Part


def node(name: str, cluster: str = "a", **more: object) -> Node:
    machine = Machine(provider="p", id=f"i-{cluster}-{name}", serial=f"SN-{name}")
    return Node(cluster=cluster, name=name, machine=machine).model_copy(update=more)


@dataclass
class Listed:
    name: str
    listed: list[Node]
    simulated: bool = True
    reads: int = 0
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    def nodes(self) -> Iterable[Node]:
        self.reads += 1
        if self.broken:
            raise Unreadable("no route")
        return list(self.listed)


def inventory(*clusters: Listed, now: list[float] | None = None) -> Inventory:
    clock = now or [0.0]
    given: list[Cluster] = list(clusters)  # type: ignore[arg-type]
    return Inventory(lambda: given, 30.0, lambda: clock[0])


@pytest.mark.parametrize(
    "subject",
    ["gpu-1", "GPU-1", " gpu-1 ", "i-a-gpu-1", "aws:///zone-1/i-a-gpu-1", "SN-gpu-1", "10.0.3.7", "10.0.3.7:9400",
     "gpu-1:9100", "[fd00::7]:9400", "GPU-5a6b"],
)  # fmt: skip
def test_every_name_of_a_node_finds_it(subject: str) -> None:
    one = node("gpu-1", aliases=("10.0.3.7", "fd00::7", "GPU-5a6b"))
    found = inventory(Listed("a", [one, node("gpu-2")])).resolve(subject, None)
    assert isinstance(found, Found)
    assert found.node.name == "gpu-1"


@pytest.mark.parametrize("subject", ["gpu", "gpu-1.other.example", "gpu-11", "pu-1", "10.0.3", "", None, ":", "/"])
def test_nothing_is_guessed(subject: str | None) -> None:
    one = node("gpu-1", aliases=("10.0.3.7",))
    assert isinstance(inventory(Listed("a", [one])).resolve(subject, None), NotFound)


def test_a_name_in_two_clusters_is_ambiguous_until_the_cluster_is_named() -> None:
    both = inventory(Listed("a", [node("gpu-1")]), Listed("b", [node("gpu-1", "b")]))
    found = both.resolve("gpu-1", None)
    assert isinstance(found, NotFound)
    assert found.ambiguous == ("a/gpu-1", "b/gpu-1")
    named = both.resolve("gpu-1", "b")
    assert isinstance(named, Found)
    assert named.cluster == "b"
    bound = both.resolve("gpu-1", None, ["a"])
    assert isinstance(bound, Found)
    assert bound.cluster == "a"


def test_a_sender_is_bound_to_its_clusters() -> None:
    both = inventory(Listed("a", [node("gpu-1")]), Listed("b", [node("gpu-2", "b")]))
    named = both.resolve("gpu-2", "b", ["a"])
    assert isinstance(named, NotFound)
    assert named.forbidden
    unnamed = both.resolve("gpu-2", None, ["a"])
    assert isinstance(unnamed, NotFound)
    assert not unnamed.forbidden


def test_a_cluster_that_is_none_of_ours_is_never_taken_for_one() -> None:
    only = inventory(Listed("a", [node("gpu-1")]))
    assert isinstance(only.resolve("gpu-1", None), Found)  # and so it was read
    elsewhere = only.resolve("gpu-1", "prod-eu", ["a"])
    assert isinstance(elsewhere, NotFound)
    assert elsewhere.elsewhere
    assert "names cluster prod-eu, which none here is called" in elsewhere.text
    assert only.cached("gpu-1", "prod-eu", ["a"]) is None
    assert only.cached("gpu-1", "a", ["a"]) is not None


def test_a_new_node_is_found_and_junk_names_do_not_hammer_the_cluster() -> None:
    now = [0.0]
    cluster = Listed("a", [node("gpu-1")])
    found = inventory(cluster, now=now)
    assert isinstance(found.resolve("gpu-2", None), NotFound)
    cluster.listed.append(node("gpu-2"))
    now[0] = 6.0
    assert isinstance(found.resolve("gpu-2", None), Found)
    reads = cluster.reads
    for i in range(100):
        found.resolve(f"junk-{i}", None)
    assert cluster.reads <= reads + 1


def test_an_unreadable_cluster_serves_what_was_known_and_is_an_error_when_nothing_was() -> None:
    now = [0.0]
    cluster = Listed("a", [node("gpu-1")], broken=True)
    found = inventory(cluster, now=now)
    with pytest.raises(Unreadable):
        found.resolve("gpu-1", None)
    cluster.broken = False
    assert isinstance(found.resolve("gpu-1", None), Found)
    cluster.broken, now[0] = True, 1_000.0
    assert isinstance(found.resolve("gpu-1", None), Found)


# -- fold ------------------------------------------------------------------------------------------------------


T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = T0 - timedelta(hours=1)


def statement(**changed: object) -> HealthEvent:
    event = HealthEvent(source="kmsg", sender="s", id="1", dedupe_key="k", kind=Kind.FAULT, fault="xid/79")
    return event.model_copy(update=changed)


def repeats(
    fold: Fold, event: HealthEvent, after_s: float, said: dict[str, Said], open_since: datetime | None = EARLIER
) -> bool:
    part = Part(event, "a", "n", opens=event.kind is Kind.FAULT, open_since=open_since)
    return fold.repeats(part, T0 + timedelta(seconds=after_s), said)


def ledger(*events: HealthEvent, at: datetime = T0) -> dict[str, Said]:
    """As it stands once these were held, in this order."""
    return {key_of("a", "n", event): Said(words_of(event), at) for event in events}


def test_a_repeat_is_folded_while_its_incident_is_open() -> None:
    fold, said = Fold(60.0), ledger(statement())
    assert repeats(fold, statement(id="2"), 30, said)
    assert not repeats(fold, statement(id="2"), 60, said), "once in a window it is told again"
    assert not repeats(fold, statement(id="2"), 30, said, None), "it must open a new incident"
    assert repeats(fold, statement(id="2"), 1, said, None), "its row may not be written yet"
    assert not repeats(fold, statement(id="2"), 30, said, T0 + timedelta(seconds=20)), "this incident hasn't heard it"
    assert not repeats(fold, statement(id="2"), 1, {}), "the ledger knows nothing of it"


@pytest.mark.parametrize(
    "changed",
    [{"kind": Kind.RECOVERED}, {"fault": "xid/95"}, {"severity": "critical"}, {"sender": "t"}, {"dedupe_key": "l"}],
)
def test_a_change_is_never_folded(changed: dict[str, object]) -> None:
    assert not repeats(Fold(60.0), statement(**changed), 1, ledger(statement()))
    assert not repeats(Fold(60.0), statement(), 1, ledger(statement(), statement(kind=Kind.RECOVERED)))


def test_what_a_whole_series_took_back_is_news_again() -> None:
    fold, raised = Fold(60.0), statement(series="all")
    said = ledger(raised)
    assert repeats(fold, raised, 2, said)
    said |= ledger(statement(kind=Kind.RECOVERED, dedupe_key="all"), at=T0 + timedelta(seconds=1))
    assert not repeats(fold, raised, 2, said)


@given(st.lists(st.tuples(st.sampled_from(["fault", "recovered"]), st.floats(0.01, 40)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_was_signalled_last_is_what_was_said_last(steps: list[tuple[str, float]]) -> None:
    """However fault and clear alternate, over however many gateways, the workflow has heard the last change."""
    said: dict[str, Said] = {}
    now, heard = 0.0, ""
    for kind, pause in steps:
        now += pause
        event = statement(kind=Kind(kind))
        if not repeats(Fold(60.0), event, now, said):
            said |= ledger(event, at=T0 + timedelta(seconds=now))
            heard = kind
        assert heard == kind


def test_one_that_waited_its_turn_while_the_same_was_signalled_is_a_repeat() -> None:
    fold = Fold(60.0)
    fold.signalled("a", "n", statement(), 100.0)
    assert fold.signalled_since("a", "n", statement(id="2"), 99.9)
    assert not fold.signalled_since("a", "n", statement(id="2"), 100.1), "then only the ledger can tell"
    assert not fold.signalled_since("a", "n", statement(kind=Kind.RECOVERED), 99.9)


def test_memory_is_bounded() -> None:
    fold = Fold(60.0, size=10)
    for i in range(100):
        fold.signalled("a", f"n{i}", statement(), 0.0)
    assert not fold.expects("a", "n0", statement()), "forgetting costs a signal, nothing else"
    assert fold.expects("a", "n99", statement())
