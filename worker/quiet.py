"""Monitors that have gone quiet: each is one event of the monitor class, and is told once until it is heard again.

A sender, queue or watcher is expected to speak where the configuration says so (`expected_every_s`), a poller's targets
are expected to answer, every heartbeat that has come at a steady rate (Prometheus' always-firing `Watchdog`, say) is
expected to come again, by sender and cluster. One that is silent for more than two of its intervals is blind; that says
nothing about any node, so the event names none, carries our marker and goes nowhere but to the ledger, the metrics and
a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from activities.storage.ledger import Ledger
from activities.storage.seen import Heard
from medevac.events.alertmanager import HEARTBEATS
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.catalogue import classify
from medevac.faults.open_fault import MISSED
from medevac.incident import StepKey
from worker.config import Config

FAULT = "monitor/quiet"
OWN = "medevac"
"""Sender of these events: a silence that is told is no sign of life of the one that is silent."""
BEATS = HEARTBEATS - {"infoinhibitor"}
"""Alerts that fire always; the other only fires where it holds something back."""
LEARNED_FROM = timedelta(hours=6)
LEAST_GAPS = 3
SHORTEST = timedelta(seconds=30)
"""Two senders of one heartbeat speak within moments of each other; that is no rate."""
POLLS = 3
"""Rounds in which none of a poller's targets answered are one interval of it: several, before anybody is told."""
REMEMBERED = timedelta(days=30)
"""As long as the ledger keeps what was heard."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """Who is expected to speak. `cluster` and `beat` are empty where any word of the sender counts."""

    sender: str
    cluster: str = ""
    beat: str = ""

    @property
    def name(self) -> str:
        """Under which it was heard, where any word counts."""
        return f"{self.sender}/{self.cluster}" if self.cluster else self.sender

    def __str__(self) -> str:
        return "|".join((self.sender, self.cluster or "*", self.beat or "*"))


@dataclass(frozen=True, slots=True)
class Silence:
    monitor: Monitor
    since: datetime | None
    """When it was heard last; None for never."""
    every: timedelta
    over: bool = False
    """It has been heard again."""

    @property
    def key(self) -> StepKey:
        step = "heard-again" if self.over else "quiet"
        return StepKey(incident=str(self.monitor), step=step, n=int(self.since.timestamp()) if self.since else 0)

    @property
    def text(self) -> str:
        about = f" in cluster {self.monitor.cluster}" if self.monitor.cluster else ""
        what = f"the heartbeat {self.monitor.beat} of " if self.monitor.beat else ""
        who = f"{what}sender {self.monitor.sender}{about}"
        if self.over:
            return f"{who} is heard again"
        last = f"since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else "yet"
        return (
            f"{who} has not been heard {last} and speaks every {self.every.total_seconds():g} s: faults may go unseen"
        )

    def event(self, now: datetime) -> HealthEvent:
        return classify(
            HealthEvent(
                source=OWN, sender=OWN, id=str(self.key), dedupe_key=str(self.monitor), fault=FAULT,
                kind=Kind.RECOVERED if self.over else Kind.FAULT, statement=Statement.LEVEL, actionable=False,
                starts_at=None if self.over else self.since, ends_at=now if self.over else None, received_at=now,
                marker="quiet", summary=self.text,
            )
        )  # fmt: skip


def rate(times: Sequence[datetime]) -> timedelta | None:
    """The interval of a heartbeat that came at `times`, oldest first; None for what came too seldom to have one.

    Gaps of a moment are left out; of the others it is one that most don't exceed, so that an outage is no rate.
    """
    gaps = sorted(gap for a, b in pairwise(times) if (gap := b - a) >= SHORTEST)
    return gaps[len(gaps) * 4 // 5] if len(gaps) >= LEAST_GAPS else None


def expected(
    configured: Mapping[Monitor, timedelta], beats: Iterable[Heard]
) -> dict[Monitor, tuple[timedelta, datetime | None]]:
    """Who should speak, how often, and (of the heartbeats) when it last did."""
    found: dict[Monitor, tuple[timedelta, datetime | None]] = {
        monitor: (every, None) for monitor, every in configured.items()
    }
    times: dict[Monitor, list[datetime]] = {}
    for one in beats:
        name = (one.fault or "").removeprefix("alert/")
        if name.lower().replace("_", "") in BEATS:
            times.setdefault(Monitor(one.sender, one.cluster or "", name), []).append(one.at)
    for monitor, heard in times.items():
        if (every := rate(sorted(heard))) is not None:
            found[monitor] = (every, max(heard))
    return found


class Quiet:
    """Of one process. `look` reads the ledger and says what has changed; `note` writes it down."""

    def __init__(self, ledger: Ledger, configured: Mapping[Monitor, timedelta], known: Iterable[str] = ()) -> None:
        """`known`: all senders of the configuration; the silence of one that was taken out is nobody's."""
        self._ledger = ledger
        self._configured = dict(configured)
        self._known = frozenset(known) | {one.sender for one in configured}
        self._began: datetime | None = None

    def look(self, now: datetime) -> tuple[list[Silence], list[Silence]]:
        """All that are silent now, and what is news: silences that began or ended since the last look of any process.
        Blocking. Raises `Unreadable`."""
        self._began = self._began or now
        told = {e.event.dedupe_key: e.event for e in self._ledger.last_of(FAULT, now - REMEMBERED)}
        last = self._heard_last(now)
        silent, news = [], []
        for monitor, (every, beat) in expected(self._configured, self._ledger.beats(now - LEARNED_FROM)).items():
            heard = beat or last.get(monitor.name)
            before = told.pop(str(monitor), None)
            was_silent = before is not None and before.kind is Kind.FAULT
            if now - (heard or self._began) > MISSED * every:
                silence = Silence(monitor, heard, every)
                silent.append(silence)
                if not was_silent:
                    news.append(silence)
            elif was_silent:
                news.append(Silence(monitor, heard, every, over=True))
        # A heartbeat that is silent for longer than it is learned from: still silent, until it beats again.
        for key, event in told.items():
            sender, cluster, name = key.split("|", 2)
            if event.kind is Kind.FAULT and name != "*" and sender in self._known:
                monitor = Monitor(sender, "" if cluster == "*" else cluster, name)
                silent.append(Silence(monitor, event.starts_at, timedelta(0)))
        return silent, news

    def _heard_last(self, now: datetime) -> dict[str, datetime]:
        """Looks far back only for those that are silent: who speaks is found among the newest."""
        if not self._configured:
            return {}
        names = {monitor.name for monitor in self._configured}
        last = dict(self._ledger.heard_last(names, now - MISSED * max(self._configured.values())))
        if missing := names - last.keys():
            last |= self._ledger.heard_last(missing, now - REMEMBERED)
        return last

    def note(self, silence: Silence, now: datetime) -> None:
        """Blocking. Raises `Unreadable`."""
        self._ledger.see_events([(silence.event(now), None, "recorded: a monitor, no node")])


def listening(ledger: Ledger, config: Config) -> Quiet:
    return Quiet(ledger, expectations(config), [one.name for one in config.speakers])


def expectations(config: Config) -> dict[Monitor, timedelta]:
    """Whom the configuration expects to speak, and how often."""
    every: dict[Monitor, float | None] = {Monitor(one.name): one.expected_every_s for one in config.senders}
    every |= {Monitor(one.name): one.expected_every_s for one in config.queues}
    every |= {Monitor(one.name): one.expected_every_s or POLLS * one.every_s for one in config.pollers}
    # Each cluster has an API server of its own.
    every |= {Monitor(one.name, name): one.expected_every_s for one in config.watchers for name in one.clusters}
    return {monitor: timedelta(seconds=seconds) for monitor, seconds in every.items() if seconds}
