"""The mirror: what a chat shows of incidents and questions follows the ledger, one message for each, changed in place.

The ledger is what is true; a message only shows it. So a chat that is down loses nothing: when it is back, each message
says what is true *then*, however much has happened. One process at a time does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from activities.ports import About, Board, NotSent, Place, Unclear, Unreadable
from activities.quietly import Quietly
from activities.storage.changed import Changed
from activities.storage.posts import Post
from medevac.approvals.approval import ApprovalState, ApprovalView
from medevac.incident import IncidentView, State
from medevac.model import digest
from medevac.telling.asking import approval_card
from medevac.telling.card import Card
from medevac.telling.incidents import NEEDS_A_PERSON, incident_card
from worker import metrics
from worker.chat_owners import BEFORE, Owners
from worker.chat_storms import Storms
from worker.facts import FactsTaker
from worker.intake.leading import pause
from worker.stores import Stores
from worker.threads import Threads

log = logging.getLogger(__name__)

EVERY_S = 1.0
DOWN_S = 5.0
"""After a call whose outcome nobody knows: the chat is down, and hammering doesn't raise it."""
REFUSED_S = 60.0
"""Before a message that was refused for good is tried again; what is wrong is the configuration's, mostly."""
KEEP = timedelta(days=30)
REPLAYS = timedelta(minutes=15)
FORGET_EVERY = 600
AT_ONCE = 30
"""Read in one pass to be told; more could not be sent before the world has moved on."""
QUIET_AGAIN = timedelta(seconds=15)
"""Until it is looked again whether an incident that nobody is told of is still silenced."""
FOLDED_AT_ONCE = 2_000
"""New incidents read in one pass: all of a storm, to be told together."""


class Turn(IntEnum):
    """Who is sent first."""

    DECIDED = 0
    ASKED = 1
    PERSON = 2
    OWNER = 3
    STORM = 4
    REST = 5


@dataclass(frozen=True, slots=True)
class Say:
    """One message that should say something else than it does, or isn't there."""

    turn: Turn
    kind: str
    key: str
    channel: str
    compose: Callable[[], Card]
    over: bool = False
    stamp: str = ""
    """Kept once it is said: until it changes there is nothing to compose."""


class Mirror:
    def __init__(
        self,
        stores: Stores,
        board: Board,
        facts: FactsTaker,
        threads: Threads,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        every_s: float = EVERY_S,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`leads` is asked before each message: a process that was stopped for long isn't the one that speaks."""
        self._leads = leads
        self._quietly = Quietly(stores.ledger, stores.policies, stores.silences)
        self._stores = stores
        self._changed = Changed(stores.database)
        self._board = board
        self._facts = facts
        self._threads = threads
        self._now = now
        self._every_s = every_s
        self._storms = Storms(stores.posts, self._changed, board)
        self._owners = Owners(stores, board, facts)
        self._shown: dict[str, str] = {}
        """Key → the stamp that its message was made of; empty after a restart, then all is composed once."""
        self._held: dict[str, tuple[str, datetime]] = {}
        """Silenced incidents: the stamp that was looked at, and when it is looked again."""
        self._refused: dict[str, datetime] = {}
        self._passes = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. What it did in one pass is lost with it; the next begins from the ledger."""
        while not stop.is_set():
            pause_s = self._every_s
            try:
                pause_s = await self._threads.run(self.once)
            except Unreadable as error:
                log.error("chat: the ledger cannot be read: %s", error)
            except Exception:
                log.exception("chat: a pass failed")
            await pause(stop, pause_s)

    def once(self) -> float:
        """One pass; how long to wait until the next. Raises `Unreadable`."""
        now = self._now()
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        standing = self._stores.posts.standing(self._board.system)
        wanted = sorted(self._wanted(standing, now), key=lambda say: say.turn)
        waiting, pause_s = 0, self._every_s
        blocked: set[tuple[str, bool]] = set()
        for say in wanted:
            if not self._leads():
                break
            post = standing.get(say.key)
            new = post is None or not post.reference
            channel = say.channel if post is None else post.channel
            if (channel, new) in blocked or say.key in self._refused or pause_s > self._every_s:
                waiting += 1
                continue
            try:
                self._say(say, post, now)
            except Unclear as error:
                log.warning("chat: %s: %s", say.key, error)
                metrics.CHAT.labels(say.kind, "unclear").inc()
                pause_s, waiting = DOWN_S, waiting + 1
            except NotSent as error:
                waiting += 1
                if error.final:
                    self._later(say, now, str(error))
                else:
                    metrics.CHAT.labels(say.kind, "paced").inc()
                    blocked.add((channel, new))
            except Unreadable:
                raise
            except Exception as error:
                # One that can't be made must not keep the others from being told.
                log.exception("chat: %s can't be told", say.key)
                waiting += 1
                self._later(say, now, type(error).__name__)
        metrics.CHAT_WAITING.set(waiting)
        self._passes += 1
        if self._passes % FORGET_EVERY == 0:
            self._stores.posts.forget(now - KEEP, taken_before=now - REPLAYS)
        return pause_s

    def _later(self, say: Say, now: datetime, why: str) -> None:
        log.error("chat: %s is refused: %s", say.key, why)
        metrics.CHAT.labels(say.kind, "refused").inc()
        self._refused[say.key] = now + timedelta(seconds=REFUSED_S)

    # -- what should be said -----------------------------------------------------------------------------------

    def _wanted(self, standing: dict[str, Post], now: datetime) -> list[Say]:
        return [*self._questions(standing, now), *self._incidents(standing, now)]

    def _questions(self, standing: dict[str, Post], now: datetime) -> Iterable[Say]:
        stamps = self._changed.approvals(_ids(standing, "approval/"))
        news = [(id, stamp) for id, stamp in stamps.items() if self._news(f"approval/{id}", stamp)]
        # Those that are decided first: their buttons are to go. The stamp says which, without reading the question.
        news.sort(key=lambda one: f":{ApprovalState.PENDING}:" in one[1])
        for id, stamp in news[:AT_ONCE]:
            view = self._stores.ledger.approval(id)
            if view is None:
                continue
            decided = view.state is not ApprovalState.PENDING
            key = f"approval/{id}"
            if decided and key not in standing:
                self._shown[key] = stamp
                continue
            about = self._about_question(view) if key not in standing else About(asks=True)
            yield Say(
                Turn.DECIDED if decided else Turn.ASKED,
                "approval",
                key,
                self._board.channel(about),
                lambda view=view: approval_card(view, self._facts.of(view, now), self._board.links),  # type: ignore[misc]
                over=decided,
                stamp=stamp,
            )

    def _incidents(self, standing: dict[str, Post], now: datetime) -> Iterable[Say]:
        stamps = self._changed.incidents(_ids(standing, "incident/"))
        self._held = {id: held for id, held in self._held.items() if id in stamps}
        quiet_yet = {id for id, (stamp, again) in self._held.items() if stamp == stamps[id] and now < again}
        news = {
            id: stamp
            for id, stamp in stamps.items()
            if self._news(f"incident/{id}", stamp) and (f"incident/{id}" in standing or id not in quiet_yet)
        }
        urgent = sorted(news, key=lambda id: not any(f":{state}:" in news[id] for state in NEEDS_A_PERSON))
        known_ids = [id for id in urgent if f"incident/{id}" in standing]
        own = [id for id in known_ids if not self._storms.member(standing[f"incident/{id}"])]
        within = [id for id in known_ids if self._storms.member(standing[f"incident/{id}"])]
        unknown = [id for id in urgent if f"incident/{id}" not in standing]
        # Their own messages say all; only their jobs' owners are still to be told.
        owners_only = {id for id in self._held if id not in quiet_yet and id not in news}
        views = self._changed.views([*own[:AT_ONCE], *within[:FOLDED_AT_ONCE], *unknown[:FOLDED_AT_ONCE], *owners_only])
        quiet = self._quiet(views.values(), standing, stamps, now)
        fresh, known = [], []
        for id, view in views.items():
            if id in owners_only:
                continue
            if f"incident/{id}" in standing:
                known.append(view)
            elif view.end is None and view.state is not State.ENDED:
                if id not in quiet:
                    fresh.append(view)
            else:
                self._shown[f"incident/{id}"] = news[id]
        alone = self._storms.fold(fresh, standing, now)
        for view in (*known, *alone):
            key = f"incident/{view.id}"
            post = standing.get(key)
            over = view.end is not None or view.state is State.ENDED
            if post is not None and self._storms.member(post):
                self._storms.moved(post, over=over)
                self._shown[key] = news[view.id]
                continue
            yield Say(
                Turn.PERSON if view.state in NEEDS_A_PERSON else Turn.REST,
                "incident",
                key,
                self._board.channel(self._with_teams(view)) if post is None else post.channel,
                lambda view=view: incident_card(view, self._board.links),  # type: ignore[misc]
                over=over,
                stamp=news[view.id],
            )
        for storm in self._storms.wanted(standing, now):
            yield Say(Turn.STORM, "storm", storm.key, storm.channel, storm.compose, over=storm.over)
        for told in self._owners.wanted(views.values(), quiet):
            yield Say(Turn.OWNER, "owner", told.key, told.channel, told.compose, over=True)

    def _quiet(
        self, views: Iterable[IncidentView], standing: dict[str, Post], stamps: dict[str, str], now: datetime
    ) -> set[str]:
        """Those of which nobody is told anything new now; what is said already goes on saying what is true."""
        news = []
        for view in views:
            self._held.pop(view.id, None)
            told = f"incident/{view.id}" in standing and not (self._board.tells_owners and view.state in BEFORE)
            over = view.end is not None or view.state is State.ENDED
            if not told and not over:
                news.append(view)
        found = set(self._quietly.among(news, now))
        self._held |= {id: (stamps[id], now + QUIET_AGAIN) for id in found}
        return found

    def _news(self, key: str, stamp: str) -> bool:
        return self._shown.get(key) != stamp and key not in self._refused

    def _about_question(self, view: ApprovalView) -> About:
        first = self._stores.ledger.incident(view.waiters[0].incident) if view.waiters else None
        if first is None:
            return About(cluster=view.waiters[0].cluster if view.waiters else "", asks=True)
        return self._with_teams(first).model_copy(update={"asks": True})

    def _with_teams(self, view: IncidentView) -> About:
        """Of what is told by itself; a storm goes by cluster, pool and severity alone."""
        return _about(view).model_copy(update={"teams": self._owners.of(view)})

    # -- saying it ---------------------------------------------------------------------------------------------

    def _say(self, say: Say, post: Post | None, now: datetime) -> None:
        card = say.compose()
        said = digest(repr(card))[:32]
        if post is not None and post.reference and post.digest == said and post.over == say.over:
            self._settled(say, Place(post.channel, post.reference))
            return
        at = Place(post.channel, post.reference) if post is not None and post.reference else None
        outcome = "posted" if at is None else "changed"
        if at is None and post is not None and (at := self._looked_for(say.key, post.channel)) is not None:
            outcome = "found"
        channel = say.channel if post is None else post.channel
        try:
            place = self._board.show(say.key, channel, card, at) if at else self._posted(say, channel, card, now)
        except NotSent as error:
            if at is None or not error.final:
                raise
            # A person has deleted it, or it may not be changed any more: it is told anew, once.
            outcome = "gone"
            place = self._posted(say, channel, card, now)
        metrics.CHAT.labels(say.kind, outcome).inc()
        self._stores.posts.put([self._post(say, place, said, now, say.over)])
        self._settled(say, place)

    def _posted(self, say: Say, channel: str, card: Card, now: datetime) -> Place:
        """Written down before it is sent: one whose sending ended unclear is looked for, and not sent twice."""
        self._stores.posts.put([self._post(say, Place(channel, ""), "", now, over=False)])
        try:
            return self._board.show(say.key, channel, card, None)
        except NotSent:
            if say.kind != "storm":  # its members name it
                self._stores.posts.drop(self._board.system, say.key)
            raise

    def _looked_for(self, key: str, channel: str) -> Place | None:
        try:
            return self._board.search(key, channel)
        except Unreadable as error:
            raise NotSent(f"it may have been posted, and can't be looked for: {error}", retry_after_s=2.0) from None

    def _post(self, say: Say, place: Place, said: str, now: datetime, over: bool) -> Post:
        return Post(key=say.key, system=self._board.system, channel=place.channel, reference=place.reference,
                    digest=said, at=now, over=over)  # fmt: skip

    def _settled(self, say: Say, place: Place) -> None:
        self._storms.posted(say.key, place)
        self._owners.posted(say.key)
        if say.over:
            self._shown.pop(say.key, None)
        elif say.stamp:
            self._shown[say.key] = say.stamp


def _about(view: IncidentView) -> About:
    return About(cluster=view.cluster, pool=view.pool, fault_class=view.fault_class)


def _ids(standing: dict[str, Post], kind: str) -> list[str]:
    return [key.removeprefix(kind) for key in standing if key.startswith(kind)]
