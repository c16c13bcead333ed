"""A fleet on a clock of its own, with faults of its own, under the same pure classes that the workflow runs."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from medevac.campaigns.progress import Beside, CampaignState, NodeProgress, NodeState, step
from medevac.campaigns.spec import Care

START = datetime(2026, 3, 1, tzinfo=UTC)
FAULTS_PER_NODE_DAY = 3.79 / 1_000
FALSE_ALARMS_PER_DAY = 27.0
ACTION_S = 900.0


@dataclass
class Fleet:
    """`bad` is the share of nodes that fault 5 to 60 minutes after the action."""

    size: int
    seed: int
    bad: float = 0.0
    fails: float = 0.004
    care: Care = field(default_factory=Care)
    percent: float = 1.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = START
        self.nodes = {f"c/n{n}": NodeProgress(cluster="c", node=f"n{n}") for n in range(self.size)}
        self.state, self.passed, self.why = CampaignState.RUNNING, 0, ""
        self.beside_faults = 0
        self.beside_s = 0.0
        self.at_once = max(1, math.floor(self.size * self.percent / 100))
        self.ends: list[tuple[datetime, str]] = []
        self.faults: list[tuple[datetime, str]] = []
        rate = (FAULTS_PER_NODE_DAY * self.size + FALSE_ALARMS_PER_DAY * self.size / 2_000) / 86_400
        at = 0.0
        while (at := at + self.random.expovariate(rate)) < 14 * 86_400:
            self.faults.append((START + timedelta(seconds=at), f"c/n{self.random.randrange(self.size)}"))
        heapq.heapify(self.faults)

    @property
    def acted(self) -> int:
        return sum(one.sent_at is not None for one in self.nodes.values())

    @property
    def best_s(self) -> float:
        """The least that the budget allows for the whole list."""
        return -(-self.size // self.at_once) * ACTION_S

    @property
    def worked_s(self) -> float:
        """Until the last node was through."""
        return max((one.over_at - START).total_seconds() for one in self.nodes.values() if one.over_at)

    def run(self) -> CampaignState:
        while self.state.begins:
            self._live()
            done = step(
                self.care, self.at_once, self.state, self.passed, list(self.nodes.values()),
                Beside(faults=self.beside_faults, node_s=self.beside_s), self.now,
            )  # fmt: skip
            self.state, self.passed, self.why = done.state, done.passed, done.why
            for key in done.send:
                self._change(key, state=NodeState.SENT, sent_at=self.now)
                heapq.heappush(self.ends, (self.now + timedelta(seconds=ACTION_S), key))
            idle = sum(one.over_at is None for one in self.nodes.values())
            self.beside_s += idle * done.look_again_s
            self.now += timedelta(seconds=done.look_again_s)
        return self.state

    def _live(self) -> None:
        while self.ends and self.ends[0][0] <= self.now:
            at, key = heapq.heappop(self.ends)
            failed = self.random.random() < self.fails
            self._change(key, state=NodeState.FAILED if failed else NodeState.DONE, over_at=at)
            if not failed and self.random.random() < self.bad:
                heapq.heappush(self.faults, (at + timedelta(minutes=self.random.uniform(5, 60)), key))
        while self.faults and self.faults[0][0] <= self.now:
            at, key = heapq.heappop(self.faults)
            one = self.nodes[key]
            if one.over_at is None:
                self.beside_faults += one.state is NodeState.WAITING
            elif one.fault is None and (at - one.over_at).total_seconds() <= self.care.window:
                self._change(key, fault="xid/79")

    def _change(self, key: str, **given: object) -> None:
        self.nodes[key] = self.nodes[key].model_copy(update=given)
