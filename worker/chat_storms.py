"""A storm is one message: beyond a few incidents of one fault in a while, those of one channel are told together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.ports import About, Board, Place
from activities.storage.changed import Changed
from activities.storage.posts import Post, Posts
from medevac.incident import IncidentView
from medevac.telling.card import Card
from medevac.telling.incidents import storm_card

ALONE = 3
"""Incidents of one fault within `WINDOW` that have a message each."""
WINDOW = timedelta(minutes=10)
EVERY = timedelta(seconds=5)
"""Between two changes of one storm's message: in a storm something changes all the time."""
IN = "in "
STORM = "storm/"


@dataclass(frozen=True, slots=True)
class Wanted:
    key: str
    channel: str
    compose: Callable[[], Card]
    over: bool


class Storms:
    def __init__(self, posts: Posts, changed: Changed, board: Board) -> None:
        self._posts = posts
        self._changed = changed
        self._board = board
        self._moved: set[str] = set()
        """Storms whose message is to be made anew."""
        self._alone: dict[tuple[str, str], dict[str, datetime]] = {}
        """Channel and fault → incidents that are told by themselves, and since when."""
        self._looked = False

    def member(self, post: Post) -> bool:
        return post.digest.startswith(IN)

    def fold(self, fresh: Iterable[IncidentView], standing: dict[str, Post], now: datetime) -> list[IncidentView]:
        """Files those that are told together; those that are left are told by themselves."""
        groups: dict[tuple[str, str], list[IncidentView]] = defaultdict(list)
        for view in sorted(fresh, key=lambda view: view.opened_at):
            channel = self._board.channel(About(cluster=view.cluster, pool=view.pool, fault_class=view.fault_class))
            groups[channel, view.fault or "?"].append(view)
        alone: list[IncidentView] = []
        for (channel, fault), views in groups.items():
            before = self._alone.get((channel, fault), {})
            lately = {id: at for id, at in before.items() if at > now - WINDOW} | {
                view.id: before.get(view.id, now) for view in views
            }
            going = next((key for key in standing if key.startswith(_prefix(channel, fault))), None)
            if going is None and len(lately) <= ALONE:
                self._alone[channel, fault] = lately
                alone += views
                continue
            key = going or f"{_prefix(channel, fault)}{now:%Y%m%dT%H%M%S}"
            reference = standing[key].reference if key in standing else ""
            rows = [
                Post(key=f"incident/{view.id}", system=self._board.system, channel=channel, reference=reference,
                     digest=f"{IN}{key}", at=now, over=False)
                for view in views
            ]  # fmt: skip
            if going is None:
                rows.append(Post(key=key, system=self._board.system, channel=channel, reference="", digest="",
                                 at=now, over=False))  # fmt: skip
            self._posts.put(rows)
            standing.update((row.key, row) for row in rows)
            self._moved.add(key)
        return alone

    def moved(self, post: Post, *, over: bool) -> None:
        self._moved.add(post.digest.removeprefix(IN))
        if over:
            self._posts.put([post.model_copy(update={"over": True})])

    def wanted(self, standing: dict[str, Post], now: datetime) -> list[Wanted]:
        storms = {key: post for key, post in standing.items() if key.startswith(STORM)}
        if not self._looked:
            # A process that comes to lead doesn't know what moved before it.
            self._looked = True
            self._moved |= set(storms)
        found = []
        for key in [key for key in self._moved if key in storms]:
            post = storms[key]
            if post.reference and now < post.at + EVERY:
                continue
            members = self._posts.told_in(self._board.system, key)
            over = bool(members) and all(member.over for member in members)
            found.append(Wanted(key, post.channel, lambda key=key: self._card(key), over))  # type: ignore[misc]
        return found

    def posted(self, key: str, place: Place) -> None:
        """Members' lines are told in the storm's thread."""
        if not key.startswith(STORM):
            return
        self._moved.discard(key)
        members = self._posts.told_in(self._board.system, key)
        late = [m.model_copy(update={"reference": place.reference}) for m in members if m.reference != place.reference]
        self._posts.put(late)

    def _card(self, key: str) -> Card:
        members = self._posts.told_in(self._board.system, key)
        views = self._changed.views(post.key.removeprefix("incident/") for post in members)
        listed = sorted(views.values(), key=lambda view: view.opened_at)
        fault = key.removeprefix(STORM).partition("/")[2].rpartition("/")[0]
        return storm_card(fault, listed, self._board.links)


def _prefix(channel: str, fault: str) -> str:
    return f"{STORM}{channel}/{fault}/"
