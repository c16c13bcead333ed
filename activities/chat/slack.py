"""Slack as the chat port sees it: messages that are kept up to date, and plain lines in their threads."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from temporalio import activity

from activities.chat import blocks
from activities.chat.options import SlackOptions
from activities.messaging import HANDOVER
from activities.ports import About, NotSent, Place, Unreadable
from activities.registry import ConfigurationError
from medevac.telling.card import Card

if TYPE_CHECKING:
    from activities.chat.slack_api import SlackApi

EVENT = "medevac"
"""Type of the metadata that carries a message's key."""
OURS = "medevac-"
"""Threads that are no incident's."""
LOUD = "@here "
CALLED = re.compile(r"@(\S+) ")
PATIENCE_S = 20.0
"""How long a line waits for its incident's message to be there, before it is told by itself."""
TURN_S = 1.5
"""A line waits so long for its turn, within its activity's time: a try that is too early costs the ledger two lines."""
SEARCHED = 200
REMEMBERED = 1_000


class SlackChat:
    """Obeys `Chat`, `Board` and `HasRights`."""

    system = "slack"

    def __init__(self, options: SlackOptions, api: SlackApi, patience_s: float = PATIENCE_S) -> None:
        self.options = options
        self.api = api
        self.simulated = options.drill
        self.links = options.links
        self.tells_owners = bool(options.owners) or any(route.teams for route in options.routes)
        self._places: Callable[[str], Place | None] = lambda thread: None
        self._people: dict[str, str] = {}
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, float] = OrderedDict()

    def know(self, places: Callable[[str], Place | None], people: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._places = places
        self._people = {id: user for id, (team, user) in (people or {}).items() if team == self.options.team}

    def missing_rights(self) -> list[str]:
        found = self.api.workspace()
        lacks = [] if found == self.options.team else [f"speak in {self.options.team}: its token is {found or '?'}'s"]
        given = self.options
        named = [*filter(None, given.channels.model_dump().values()), *given.owners.values()]
        named += [channel for route in given.routes for channel in (route.channel, route.approvals) if channel]
        for channel in dict.fromkeys(named):
            try:
                self.api.read("conversations.history", channel=channel, limit=1, patience_s=self.options.timeout_s)
            except Unreadable as error:
                lacks.append(f"read {channel} ({error})")
        return lacks

    # -- messages that are kept up to date ---------------------------------------------------------------------

    def channel(self, about: About) -> str:
        for route in self.options.routes:
            if route.fits(about.cluster, about.pool, about.fault_class, about.teams):
                return route.approvals or route.channel if about.asks else route.channel
        return self.options.channels.approvals if about.asks else self.options.channels.everyday

    def channel_of(self, owner: str) -> str | None:
        return self.options.owners.get(owner)

    def show(self, key: str, channel: str, card: Card, at: Place | None) -> Place:
        made = blocks.message(card)
        if at is not None:
            # Buttons and all: what isn't given anew is gone.
            self.api.send("chat.update", channel=at.channel, ts=at.reference, **made)
            return at
        if card.loud:
            made["blocks"] = [blocks.CALL, *made["blocks"]]
        answer = self.api.send("chat.postMessage", channel=channel, metadata=_metadata(key), **made)
        return Place(str(answer.get("channel") or channel), str(answer["ts"]))

    def search(self, key: str, channel: str) -> Place | None:
        found = self.api.read("conversations.history", channel=channel, limit=SEARCHED, include_all_metadata=True)
        return _of_key(found, key, channel)

    # -- plain lines -------------------------------------------------------------------------------------------

    def find(self, key: str) -> str | None:
        if activity.in_activity() and activity.info().attempt == 1:
            # Nothing was sent under this key by an attempt before; a search for each line would double the calls.
            return None
        place = self._places(_thread(key))
        if place is not None:
            said: dict[str, Any] = {
                "channel": place.channel,
                "ts": place.reference,
                "limit": SEARCHED,
                "include_all_metadata": True,
            }
            found = _of_key(self.api.read("conversations.replies", **said), key, place.channel)
            if found is not None:
                return found.reference
        channels = self.options.channels
        own = channels.handover if _thread(key) == HANDOVER else None
        for channel in dict.fromkeys(filter(None, (own, channels.person_needed, channels.everyday))):
            if (found := self.search(key, channel)) is not None:
                return found.reference
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        loud = text.startswith(LOUD)
        said = f"<!here> {self._called(text.removeprefix(LOUD))}" if loud else blocks.escape(text)
        arguments: dict[str, Any] = {
            "text": blocks.cut(said, blocks.TEXT),
            "metadata": _metadata(key),
            "unfurl_links": False,
        }
        place = self._places(thread)
        if place is not None:
            arguments |= {"channel": place.channel, "thread_ts": place.reference}
            if loud:
                arguments["reply_broadcast"] = True
        elif thread == HANDOVER and self.options.channels.handover:
            arguments["channel"] = self.options.channels.handover
        elif loud or thread.startswith(OURS):
            arguments["channel"] = self.options.channels.person_needed
        else:
            self._wait_for_its_thread(key)
            arguments["channel"] = self.options.channels.everyday
        return str(self.api.send("chat.postMessage", patience_s=TURN_S, **arguments)["ts"])

    def _called(self, text: str) -> str:
        """With the groups and people that it begins with as Slack calls them; whoever isn't configured stays a word."""
        calls = ""
        while (match := CALLED.match(text)) is not None:
            group, person = self.options.groups.get(match[1]), self._people.get(match[1])
            called = f"<!subteam^{group}> " if group else f"<@{person}> " if person else ""
            calls += called or blocks.escape(match[0])
            text = text[match.end() :]
        return calls + blocks.escape(text)

    def _wait_for_its_thread(self, key: str) -> None:
        now = time.monotonic()
        with self._lock:
            since = self._waiting.setdefault(key, now)
            while len(self._waiting) > REMEMBERED:
                self._waiting.popitem(last=False)
        if now - since < self._patience_s:
            raise NotSent("its incident's message isn't there yet", retry_after_s=2.0)

    # -- people who wait for an answer -------------------------------------------------------------------------

    def whisper(self, channel: str, user: str, text: str) -> None:
        """For one person's eyes. Raises `NotSent` or `Unclear`."""
        self.api.now(
            "chat.postEphemeral", channel=channel, user=user, text=blocks.cut(blocks.escape(text), blocks.TEXT)
        )

    def whisper_card(self, channel: str, user: str, card: Card) -> None:
        made = blocks.message(card)
        self.api.now("chat.postEphemeral", channel=channel, user=user, text=made["text"], blocks=made["blocks"])

    def respond(self, url: str, text: str) -> None:
        self.api.respond(url, blocks.cut(blocks.escape(text), blocks.TEXT))

    def open_view(self, trigger: str, view: dict[str, Any]) -> str:
        """The view's id. A trigger is good for three seconds and once. Raises `NotSent` or `Unclear`."""
        answer = self.api.now("views.open", trigger_id=trigger, view=view)
        return str((answer.get("view") or {}).get("id", ""))

    def change_view(self, view_id: str, view: dict[str, Any]) -> None:
        self.api.now("views.update", view_id=view_id, view=view)

    def signing_secret(self) -> str | None:
        """Read by the gateway alone. Raises `ConfigurationError`."""
        kept = self.options.signing_secret
        return None if kept is None else kept.read("signing_secret")

    def app_token(self) -> str | None:
        kept = self.options.app_token
        return None if kept is None else kept.read("app_token")


def make(name: str, given: dict[str, Any]) -> SlackChat:
    """Raises `ConfigurationError`."""
    try:
        options = SlackOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"chat {name}: {where or 'options'}: {first['msg']}; see docs/slack.md") from None
    try:
        from activities.chat.slack_api import SlackApi
    except ImportError:
        raise ConfigurationError(f"chat {name}: it needs the extra `slack`: pip install 'medevac[slack]'") from None
    return SlackChat(options, SlackApi(options.bot_token.read("bot_token"), options.api, options.timeout_s))


def _metadata(key: str) -> dict[str, Any]:
    return {"event_type": EVENT, "event_payload": {"key": key}}


def _thread(key: str) -> str:
    """Of `incident/step/n` the incident, which may have slashes of its own."""
    return key.rsplit("/", 2)[0]


def _of_key(answer: dict[str, Any], key: str, channel: str) -> Place | None:
    for one in answer.get("messages", ()):
        metadata = one.get("metadata") or {}
        if metadata.get("event_type") == EVENT and (metadata.get("event_payload") or {}).get("key") == key:
            return Place(channel, str(one["ts"]))
    return None
