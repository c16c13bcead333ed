"""Callers share a turn: each gets its own answer or error, and nobody waits for ever."""

from __future__ import annotations

import threading

import pytest

from activities.guard.batching import Batching, Job
from activities.ports import Unreadable


def test_who_comes_while_a_batch_runs_is_served_together_in_the_next() -> None:
    running, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def run(batch: list[Job[int]]) -> None:
        sizes.append(len(batch))
        running.set()
        go_on.wait(10)
        for job in batch:
            job.result = job.work * 2

    batching = Batching(run, timeout_s=10)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(batching.do(i))) for i in range(9)]
    threads[0].start()
    assert running.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(batching._waiting) < 8:
        threading.Event().wait(0.01)
    go_on.set()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [i * 2 for i in range(9)]
    assert sizes == [1, 8]


def test_who_gets_no_turn_in_time_is_told_so_and_not_served_later() -> None:
    running, go_on = threading.Event(), threading.Event()
    served: list[str] = []

    def run(batch: list[Job[str]]) -> None:
        served.extend(job.work for job in batch)
        running.set()
        go_on.wait(10)

    batching = Batching(run, timeout_s=0.1)
    first = threading.Thread(target=batching.do, args=("first",))
    first.start()
    assert running.wait(10)
    with pytest.raises(Unreadable, match="no turn"):
        batching.do("second")
    go_on.set()
    first.join()
    assert batching.do("third") is None
    assert served == ["first", "third"]


def test_a_failed_batch_fails_for_each_of_its_callers_and_not_for_the_next() -> None:
    fails = iter([True, False])

    def run(batch: list[Job[int]]) -> None:
        if next(fails):
            raise Unreadable("the ledger is away")

    batching = Batching(run, timeout_s=1)
    with pytest.raises(Unreadable, match="the ledger is away"):
        batching.do(1)
    assert batching.do(2) is None
