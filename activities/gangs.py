"""The gangs whose pods leave one node: stopped as a whole where the cluster can, and never left stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from activities.failures import redact
from activities.ports import CanRequeue, Cluster, NotSent, Requeue, Unreadable
from medevac.fleet.node import Workload

FAILURES = 3
"""After so many its pods are evicted one by one: the drain doesn't hang on a courtesy."""


@dataclass(slots=True)
class Gangs:
    """Of one evacuation."""

    cluster: Cluster
    node: str
    incident: str
    ending: dict[str, Workload] = field(default_factory=dict)
    """Stopped, and not yet started again, by name."""
    said: dict[str, str] = field(default_factory=dict)
    """How each gang comes back, or who has to see to it."""
    requeued: set[str] = field(default_factory=set)
    failures: dict[str, int] = field(default_factory=dict)

    def take_up(self, names: Iterable[str]) -> None:
        """What an earlier attempt has stopped; the node names it."""
        for name in names:
            self.ending.setdefault(name, Workload(name=name))

    def takes(self, work: Workload | None) -> bool:
        """True where the whole gang is being ended, so that none of its pods is evicted."""
        if work is None or work.gang is None or not isinstance(self.cluster, CanRequeue) or work.name in self.said:
            return False
        if work.name not in self.ending:
            self._step(self.cluster, work)
        return work.name in self.ending and work.name not in self.said

    def go_on(self) -> None:
        """The next step of those that are ending."""
        if isinstance(self.cluster, CanRequeue):
            for work in [work for name, work in self.ending.items() if name not in self.said]:
                self._step(self.cluster, work)

    @property
    def busy(self) -> bool:
        return any(name not in self.said for name in self.ending)

    def never_left_stopped(self, *, by_earlier: bool = False) -> None:
        """However the evacuation ends, between two of its attempts too: a stopped gang with nobody behind it hangs.

        `by_earlier`: also what this attempt knows nothing of, for its node may be gone.
        """
        if not (self.ending or by_earlier) or not isinstance(self.cluster, CanRequeue):
            return
        try:
            failed = self.cluster.resume(self.node, self.incident)
        except (NotSent, Unreadable) as error:
            # The node still names them: the next attempt starts them, and so does the lifting of the mark.
            failed = [f"not started again yet: {redact(str(error), 200)}"]
        self.requeued |= set() if failed else set(self.ending)
        for name in self.ending:
            self.said[name] = "; ".join(failed) or "started anew before all its pods had ended"
        self.ending.clear()

    def _step(self, cluster: CanRequeue, work: Workload) -> None:
        try:
            answer = cluster.requeue(work, self.node, self.incident)
        except (NotSent, Unreadable) as error:
            # It may be stopped all the same: it stays among those that are started again at the end.
            self.ending[work.name] = work
            self.failures[work.name] = self.failures.get(work.name, 0) + 1
            if self.failures[work.name] >= FAILURES:
                self.said[work.name] = f"could not be ended as a whole: {redact(str(error), 200)}"
            return
        if answer.state is Requeue.ENDING:
            self.ending[work.name] = work
            return
        self.ending.pop(work.name, None)
        if answer.state is Requeue.DONE:
            self.requeued.add(work.name)
        self.said[work.name] = redact(answer.why, 200)
