"""Many messages of one topic within a minute are told together: each exactly once, by whichever process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.failures import Bounded
from activities.folding import ALONE, ATTEMPTS, SETTLED, WINDOW, Folding, due
from activities.storage.database import Database
from activities.storage.ledger import Ledger
from medevac.incident import Line, StepKey

NOW = datetime(2026, 3, 1, 11, 59, 50, tzinfo=UTC)
"""Ten seconds before an hour ends: windows cross it."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    db = Database(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    db.upgrade()
    yield Ledger(db)
    db.close()


@pytest.fixture
def bounded() -> Iterator[Bounded]:
    pool = Bounded(2)
    yield pool
    pool.close()


def key(n: int) -> StepKey:
    return StepKey(incident=f"inc-{n}", step="notify")


def say(folding: Folding, n: int, at: datetime, topic: str = "plan") -> bool:
    return folding.folds(key(n), topic, f"message {n}", topic == "page", at)


def tell_all(ledger: Ledger, now: datetime) -> list[str]:
    texts = []
    while (digest := due(ledger, now)) is not None:
        assert ledger.add_lines([digest.line]) == 1
        texts.append(digest.text)
    return texts


def test_a_few_are_posted_and_the_rest_told_together_once(ledger: Ledger, bounded: Bounded) -> None:
    folding = Folding(ledger, bounded)
    folded = [say(folding, n, NOW + timedelta(seconds=n / 4)) for n in range(100)]
    assert folded == [False] * ALONE + [True] * (100 - ALONE)
    assert due(ledger, NOW + WINDOW) is None, "the window isn't over"
    later = NOW + WINDOW + timedelta(seconds=1) + SETTLED
    (text,) = tell_all(ledger, later)
    assert f"{100 - ALONE} × plan" in text
    assert f"message {ALONE}" in text
    assert tell_all(ledger, later + timedelta(hours=1)) == []


def test_quiet_messages_are_never_folded(ledger: Ledger, bounded: Bounded) -> None:
    folding = Folding(ledger, bounded)
    assert not any(say(folding, n, NOW + n * WINDOW / ALONE) for n in range(20))


def test_topics_are_counted_apart(ledger: Ledger, bounded: Bounded) -> None:
    folding = Folding(ledger, bounded)
    for n in range(10):
        say(folding, n, NOW)
    assert not say(folding, 11, NOW, "page")


def test_a_retry_gets_the_answer_it_had_in_any_process(ledger: Ledger, bounded: Bounded) -> None:
    first = [say(Folding(ledger, bounded), n, NOW) for n in range(6)]
    assert first == [False] * ALONE + [True] * (6 - ALONE), "processes share the count"
    assert [say(Folding(ledger, bounded), n, NOW + timedelta(seconds=15)) for n in range(6)] == first
    (text,) = tell_all(ledger, NOW + 2 * WINDOW)
    assert f"{6 - ALONE} × plan" in text


def test_a_storm_that_lasts_is_told_once_a_window(ledger: Ledger, bounded: Bounded) -> None:
    folding = Folding(ledger, bounded)
    posted = sum(not say(folding, n, NOW + timedelta(seconds=n)) for n in range(300))
    assert posted == ALONE
    assert len(tell_all(ledger, NOW + timedelta(seconds=400))) == 5


def test_a_ledger_that_does_not_answer_silences_nobody(tmp_path: Path, bounded: Bounded) -> None:
    folding = Folding(Ledger(Database(f"sqlite:///{tmp_path / 'never-made.sqlite'}")), bounded)
    assert not any(say(folding, n, NOW) for n in range(ALONE))


def test_in_a_storm_a_slow_ledger_is_asked_again_before_each_is_told_by_itself(
    ledger: Ledger, bounded: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    folding, free, add = Folding(ledger, bounded), threading.Event(), ledger.add_lines

    def slow(lines: list[Line]) -> int:
        assert free.wait(30)
        return add(lines)

    monkeypatch.setattr(ledger, "add_lines", slow)
    monkeypatch.setattr("activities.folding.PROTECTIVE_BUDGET_S", 0.05)
    assert not say(folding, 0, NOW), "nothing says yet that it is a storm"
    free.set()
    monkeypatch.setattr("activities.folding.PROTECTIVE_BUDGET_S", 30.0)
    assert not any(say(folding, n, NOW) for n in range(1, ALONE))
    free.clear()
    monkeypatch.setattr("activities.folding.PROTECTIVE_BUDGET_S", 0.05)
    with pytest.raises(ApplicationError, match="too many messages"):
        say(folding, ALONE, NOW)
    assert not folding.folds(key(ALONE), "plan", "x", False, NOW, ATTEMPTS), "better told twice than never"
    free.set()
    monkeypatch.setattr("activities.folding.PROTECTIVE_BUDGET_S", 30.0)
    assert folding.folds(key(ALONE), "plan", "x", False, NOW + timedelta(seconds=2), 2)
    assert len(tell_all(ledger, NOW + 2 * WINDOW)) == 1
