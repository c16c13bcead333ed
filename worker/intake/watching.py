"""`medevac watch`: what a cluster says of its nodes by itself (conditions, Events), on the way of every delivery.

Level-triggered: whoever comes to lead hears all there is, says what is bad, and takes back what is good again; so it
goes anew every `relist_s` and after every gap. What was heard stays in the mailbox until it is held durably; a process
that dies forgets it, and the next hears it again. What is said twice folds.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from activities.ports import Told, Unreadable, Watchable
from activities.registry import ConfigurationError
from activities.storage.heard import heard
from activities.storage.raised import keep, raised
from medevac.events import k8s_node
from medevac.events.parsing import Payload
from medevac.events.transport import CLUSTER_HEADER
from medevac.faults.expected import STALE_AFTER
from worker import metrics
from worker.installation import open_installation
from worker.intake.assembly import Parts, build, run_until_stopped
from worker.intake.conditions import Conditions, Judged, Level
from worker.intake.delivery import Deliveries, Refused, Speaker
from worker.intake.leading import Lead, pause
from worker.intake.living import Living
from worker.intake.mailbox import Batch, EventNews, Mailbox, NodeNews
from worker.intake.node_events import News, NodeEvents
from worker.settings import Settings
from worker.speakers import Watcher as WatcherConfig
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

SOURCES = ("k8s_node", "npd", "eks_nma")
NOTHING: frozenset[str] = frozenset()
AT_ONCE = 100
"""Nodes, and Events, of one delivery."""
ALIVE_S = 20.0
AGAIN_S = 0.5
LONGEST_AGAIN_S = 10.0
LOOK_BACK = 2 * STALE_AFTER
"""In the ledger, for Events that a process before us has said."""


class Watcher:
    """One cluster, for as long as this process leads."""

    def __init__(
        self,
        config: WatcherConfig,
        cluster: Watchable,
        deliveries: Deliveries,
        stores: Stores,
        threads: Threads,
        lead: Lead,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._deliveries = deliveries
        self._stores = stores
        self._threads = threads
        self._lead = lead
        self._speaker = Speaker(config.name, SOURCES, (cluster.name,))
        self._living = Living(f"{config.name}/{cluster.name}", stores.database, threads)
        self._heard_at: datetime | None = None
        self._kept: dict[str, frozenset[str]] = {}
        """What stands in the ledger as raised, by node."""

    async def run(self, stop: asyncio.Event) -> None:
        await self._lead.lead(self._watch, stop)

    async def _watch(self, stop: asyncio.Event) -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the process ends
                loop.call_soon_threadsafe(arrived.set)

        box = Mailbox(wake)
        told = partial(self._told, box)
        config = self._config
        watching = await self._threads.run(self._cluster.watch, told, relist_s=config.relist_s, events=config.events)
        living = asyncio.create_task(self._lives())
        try:
            await self._pass_on(box, arrived, stop)
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
            box.close()
            await asyncio.shield(self._threads.run(watching.close))

    async def _lives(self) -> None:
        """Writes down that the API server shows the nodes, where somebody expects it to."""
        written = None
        while self._config.expected_every_s is not None:
            heard = self._heard_at
            if heard != written and heard is not None and self._lead.holds:
                await self._living.said(heard)
                written = heard
            await asyncio.sleep(ALIVE_S)

    def _told(self, box: Mailbox, told: Told) -> None:
        if told.kind == "Node":
            self._heard_at = datetime.now(UTC)
        metrics.WATCH_HEARD.labels(self._config.name, told.kind).set_to_current_time()
        if told.listed:
            metrics.WATCH_LISTS.labels(self._config.name, told.kind, told.how).inc()
        if told.how != "alive":
            box.put(told)

    async def _pass_on(self, box: Mailbox, arrived: asyncio.Event, stop: asyncio.Event) -> None:
        self._kept.clear()
        conditions, events, again_s = Conditions(self._config.joining_s), NodeEvents(), AGAIN_S
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                arrived.clear()
                batch = box.take(AT_ONCE)
                if not batch:
                    waiting = asyncio.ensure_future(arrived.wait())
                    await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
                    continue
                if await self._held(batch, conditions, events):
                    again_s = AGAIN_S
                    continue
                box.put_back(batch)
                await pause(stop, again_s)
                again_s = min(2 * again_s, LONGEST_AGAIN_S)
        finally:
            stopping.cancel()

    async def _held(self, batch: Batch, conditions: Conditions, events: NodeEvents) -> bool:
        """False: all of it must be said again."""
        try:
            nodes = not batch.nodes or await self._nodes(batch.nodes, conditions)
            return (not batch.events or await self._events(batch.events, events)) and nodes
        except Exception as error:
            log.error("%s: what %s says can't be passed on now: %s", self._config.name, self._cluster.name, error)
            return False

    # -- nodes -------------------------------------------------------------------------------------------------

    async def _nodes(self, news: Sequence[NodeNews], conditions: Conditions) -> bool:
        owed = await self._threads.run(self._owed, [one.name for one in news if one.level > Level.CHANGE])
        judged = await self._threads.run(self._judged, news, conditions, owed)
        metrics.WATCHED.labels(self._config.name, "condition", "stale").inc(sum(len(one.stale) for one in judged))
        said = [one for one in judged if one.meanings]
        stands = {one.node: self._kept.get(one.node, NOTHING) | conditions.raised(one.node, one) for one in said}
        await self._threads.run(self._keep, stands)
        payloads: dict[str, list[Mapping[str, Any]]] = {}
        for one in judged:
            for source, node in one.by_source.items():
                payloads.setdefault(source, []).append(node)
        gone = [one.name for one in news if one.node is None]
        for name in gone:
            if conditions.is_bad(name):
                payloads.setdefault(k8s_node.SOURCE, []).append(_deleted(name))
        if not await self._say("node", payloads):
            return False
        for one in judged:
            conditions.held(one)
        for name in gone:
            conditions.gone(name)
        # Of a node that is gone it stays written: one of its name may come back, and be good.
        await self._threads.run(self._keep, {one.node: conditions.raised(one.node) for one in said})
        return True

    @staticmethod
    def _judged(news: Iterable[NodeNews], conditions: Conditions, owed: Mapping[str, Collection[str]]) -> list[Judged]:
        now = datetime.now(UTC)
        return [
            conditions.judge(one.node, now, one.level, owed.get(one.name, ())) for one in news if one.node is not None
        ]

    def _owed(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Raises `Unreadable`: what is to be taken back must be known before a node counts as judged."""
        if not names:
            return {}
        owed = raised(self._stores.database, self._speaker.name, self._cluster.name, names)
        self._written(dict.fromkeys(names, NOTHING) | owed)
        return owed

    def _keep(self, nodes: Mapping[str, frozenset[str]]) -> None:
        """Written down before it is said, so that whoever comes after a kill knows what to take back."""
        changed = {name: types for name, types in nodes.items() if self._kept.get(name, NOTHING) != types}
        if not changed:
            return
        try:
            keep(self._stores.database, self._speaker.name, self._cluster.name, changed, datetime.now(UTC))
        except Unreadable as error:
            # A fault that Temporal can take doesn't wait for the ledger; it is written down at the next listing.
            log.error("%s: what is raised can't be written down: %s", self._config.name, error)
        else:
            self._written(changed)

    def _written(self, nodes: Mapping[str, frozenset[str]]) -> None:
        for name, types in nodes.items():
            if types:
                self._kept[name] = types
            else:
                self._kept.pop(name, None)

    # -- Events ------------------------------------------------------------------------------------------------

    async def _events(self, found: Sequence[EventNews], events: NodeEvents) -> bool:
        news, old = await self._threads.run(self._news, found, events)
        payloads: dict[str, list[Mapping[str, Any]]] = {}
        for one in news:
            payloads.setdefault(one.source, []).append(one.thing)
        if not await self._say("event", payloads):
            return False
        metrics.WATCHED.labels(self._config.name, "event", "old").inc(len(old))
        for one in (*news, *old):
            events.held(one)
        return True

    def _news(self, found: Sequence[EventNews], events: NodeEvents) -> tuple[list[News], list[News]]:
        """Those to be said, and those that are old. Raises `Unreadable`."""
        looked: list[tuple[News, bool]] = []
        for one in found:
            if one.thing is None:
                events.gone(one.uid)
            elif (news := events.look(one.thing)) is not None:
                looked.append((news, one.listed))
        now, known = datetime.now(UTC), set[str]()
        if listed := [str((news.thing.get("involvedObject") or {}).get("name")) for news, was in looked if was]:
            known = heard(self._stores.database, self._speaker.name, self._cluster.name, listed, now - LOOK_BACK)
        old = [news for news, was in looked if was and events.is_old(news, known, now)]
        return [news for news, _ in looked if news not in old], old

    # -- saying ------------------------------------------------------------------------------------------------

    async def _say(self, kind: str, payloads: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
        """True when all of it is held, or lies with the dead letters."""
        held = True
        for source, items in payloads.items():
            if not self._lead.holds:
                return False
            done = await self._delivered(source, items)
            metrics.WATCHED.labels(self._config.name, kind, "held" if done else "again").inc(len(items))
            held = held and done
        return held

    async def _delivered(self, source: str, items: Sequence[Mapping[str, Any]]) -> bool:
        body = json.dumps({"kind": "List", "apiVersion": "v1", "items": items}).encode()
        payload = Payload(body, {"content-type": "application/json", CLUSTER_HEADER: self._cluster.name})
        try:
            taken = await self._deliveries.take(source, payload, self._speaker)
        except Refused as refused:
            log.warning("%s: %s", self._config.name, refused)
            return refused.kept
        return taken.held and taken.kept


def _deleted(name: str) -> Mapping[str, Any]:
    return {"type": "DELETED", "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}}


async def run_watch(settings: Settings) -> int:
    installation = open_installation(settings)
    watched = [(one, name) for one in installation.config.watchers for name in one.clusters]
    if not watched:
        raise ConfigurationError("the configuration has no `watchers`; name one, or don't start `medevac watch`")
    clusters: dict[str, Watchable] = {}
    for one, name in watched:
        cluster = installation.registry.cluster(name)
        if not isinstance(cluster, Watchable):
            raise ConfigurationError(
                f"watcher {one.name}: cluster {name} tells nothing by itself; take it out of `clusters` there"
            )
        clusters[name] = cluster
    parts = await build(settings, installation, "watch")
    loops = [_watcher(one, clusters[name], parts, installation.stores).run for one, name in watched]
    return await run_until_stopped(settings, parts, loops)


def _watcher(config: WatcherConfig, cluster: Watchable, parts: Parts, stores: Stores) -> Watcher:
    lead = Lead(f"watch/{config.name}/{cluster.name}", stores.leaders, parts.threads, config.lease_s)
    return Watcher(config, cluster, parts.deliveries, stores, parts.threads, lead)
