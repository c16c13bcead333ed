"""A Slack of our own that behaves as Slack's API does: tokens, tiers, errors, block limits, triggers, signatures,
Socket Mode. One server on one port, in a thread.

People are moved from the test: `press` gives what Slack would send for a button *that is there*, and so on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import WSMsgType, web

from tests.slack_limits import why_invalid, why_invalid_view

TEAM, APP, BOT = "T0MEDEVAC", "A0MEDEVAC", "U0BOT"
TOKEN = "xoxb-for-tests-only-0123456789"
APP_TOKEN = "xapp-for-tests-only-0123456789"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TIERS = {
    "chat.update": 50, "chat.postEphemeral": 100, "views.open": 100, "views.update": 100,
    "conversations.history": 50, "conversations.replies": 50, "apps.connections.open": 1_000,
}  # fmt: skip
"""Calls a minute."""
TRIGGER_S = 60.0
"""Slack's own are three; here it is the product that is tried, not the machine that it runs on."""
BURST = 3
"""Messages that a channel takes at once before it is held to one a second."""

Json = dict[str, Any]
Signed = tuple[dict[str, str], bytes]


@dataclass
class Message:
    channel: str
    ts: str
    text: str
    blocks: list[Json]
    metadata: Json | None
    thread: str | None
    broadcast: bool
    versions: int = 1
    deleted: bool = False

    def says(self) -> str:
        return json.dumps(self.blocks, ensure_ascii=False) + self.text

    def buttons(self) -> dict[str, Json]:
        return {e["action_id"]: e for b in self.blocks if b["type"] == "actions" for e in b["elements"]}


@dataclass
class FarSlack:
    channels: frozenset[str] = frozenset({"C0FLEET", "C0ONCALL", "C0ASKED", "C0TEAM"})
    strict: bool = True
    """Whether paces and tiers are held."""
    messages: list[Message] = field(default_factory=list)
    whispers: list[tuple[str, str, str]] = field(default_factory=list)
    """Channel, user, text: also what was sent to a command's own address."""
    whispered: list[Json] = field(default_factory=list)
    views: dict[str, Json] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    trouble: deque[str] = field(default_factory=deque)
    """How the next calls go wrong: an error code, `429`, `500`, `before` or `after` (no answer)."""
    down: bool = False
    answered: dict[str, float] = field(default_factory=dict)
    """When each address for an answer was first used, by the monotonic clock."""
    acked: list[str] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self._n = 0
        self._lock = threading.RLock()
        self._triggers: dict[str, tuple[float, bool]] = {}
        self._uses: Counter[str] = Counter()
        self._lately: dict[str, deque[float]] = defaultdict(deque)
        self._room: dict[str, tuple[float, float]] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="far slack", daemon=True)

    # -- the server --------------------------------------------------------------------------------------------

    def start(self) -> FarSlack:
        self._thread.start()
        assert self._ready.wait(120)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    @property
    def api(self) -> str:
        return f"{self.url}/api/"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=1_000_000)
        app.router.add_post("/api/response/{id}", self._response)
        app.router.add_post("/api/{method}", self._method)
        app.router.add_get("/socket", self._socket)
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())

    async def _method(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        if request.content_type == "application/json":
            given = await request.json()
        else:
            given = {**dict(await request.post()), **dict(request.query)}
        self.calls[method] += 1
        wanted = APP_TOKEN if method == "apps.connections.open" else TOKEN
        if request.headers.get("Authorization") != f"Bearer {wanted}":
            return self._no(method, "invalid_auth")
        how = self.trouble.popleft() if self.trouble and method != "apps.connections.open" else ""
        if self.down or how == "before":
            return await self._hang(request)
        if how == "429":
            return self._slow(method, 7)
        if how == "500":
            return web.Response(status=500, text="<html>upstream</html>")
        if how and how != "after":
            return self._no(method, how)
        if (wait_s := self._too_fast(method, str(given.get("channel", "")))) > 0:
            return self._slow(method, max(1, round(wait_s + 0.5)))
        answer = getattr(self, "_" + method.replace(".", "_"), lambda _: "unknown_method")(given)
        if how == "after":
            return await self._hang(request)
        if isinstance(answer, str):
            return self._no(method, answer)
        return web.json_response({"ok": True, **answer})

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        """The connection ends without an answer."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)

    def _no(self, method: str, error: str) -> web.Response:
        self.refused[error] += 1
        return web.json_response({"ok": False, "error": error})

    def _slow(self, method: str, after_s: int) -> web.Response:
        self.refused["ratelimited"] += 1
        return web.json_response(
            {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(after_s)}
        )

    def _too_fast(self, method: str, channel: str) -> float:
        if not self.strict:
            return 0.0
        now = time.monotonic()
        if method == "chat.postMessage":
            left, at = self._room.get(channel, (float(BURST), now))
            left = min(BURST, left + (now - at))
            self._room[channel] = (left - 1 if left >= 1 else left, now)
            return 0.0 if left >= 1 else 1 - left
        lately = self._lately[method]
        while lately and lately[0] < now - 60:
            lately.popleft()
        if len(lately) >= TIERS.get(method, 100):
            return lately[0] + 60 - now
        lately.append(now)
        return 0.0

    # -- methods -----------------------------------------------------------------------------------------------

    def _chat_postMessage(self, given: Json) -> Json | str:
        if (wrong := self._bad_message(given)) is not None:
            return wrong
        with self._lock:
            self._n += 1
            ts = f"{1_700_000_000 + self._n}.{self._n:06d}"
            thread = given.get("thread_ts")
            if thread and self._find(given["channel"], thread) is None:
                return "thread_not_found"
            made = Message(given["channel"], ts, str(given.get("text", ""))[:40_000], given.get("blocks") or [],
                           given.get("metadata"), thread, bool(given.get("reply_broadcast")))  # fmt: skip
            self.messages.append(made)
        return {"channel": made.channel, "ts": ts}

    def _chat_update(self, given: Json) -> Json | str:
        if (wrong := self._bad_message(given)) is not None:
            return wrong
        if len(str(given.get("text", ""))) > 4_000:
            return "msg_too_long"
        found = self._find(given["channel"], given.get("ts"))
        if found is None:
            return "message_not_found"
        found.text, found.blocks, found.versions = str(given["text"]), given.get("blocks") or [], found.versions + 1
        return {"channel": found.channel, "ts": found.ts}

    def _chat_postEphemeral(self, given: Json) -> Json | str:
        if (wrong := self._bad_message(given)) is not None:
            return wrong
        self.whispers.append((given["channel"], given["user"], str(given.get("text", ""))))
        self.whispered.append(given)
        return {"message_ts": "1.1"}

    def _views_open(self, given: Json) -> Json | str:
        made, used = self._triggers.get(str(given.get("trigger_id")), (float("-inf"), False))
        if used:
            return "exchanged_trigger_id"
        if time.monotonic() - made > TRIGGER_S:
            return "expired_trigger_id"
        self._triggers[given["trigger_id"]] = (made, True)
        if why_invalid_view(given.get("view")):
            return "invalid_arguments"
        self._n += 1
        id = f"V{self._n:06d}"
        self.views[id] = given["view"]
        return {"view": {"id": id}}

    def _views_update(self, given: Json) -> Json | str:
        if given.get("view_id") not in self.views:
            return "not_found"
        if why_invalid_view(given.get("view")):
            return "invalid_arguments"
        self.views[given["view_id"]] = given["view"]
        return {"view": {"id": given["view_id"]}}

    def _conversations_history(self, given: Json) -> Json | str:
        if given.get("channel") not in self.channels:
            return "channel_not_found"
        roots = [m for m in self.messages if m.channel == given["channel"] and (m.thread is None or m.broadcast)]
        return {"messages": self._listed(roots[::-1][: int(given.get("limit", 100))], given)}

    def _conversations_replies(self, given: Json) -> Json | str:
        if self._find(given.get("channel"), given.get("ts")) is None:
            return "thread_not_found"
        within = [m for m in self.messages if given["ts"] in (m.ts, m.thread) and m.channel == given["channel"]]
        return {"messages": self._listed(within[: int(given.get("limit", 1_000))], given)}

    def _auth_test(self, given: Json) -> Json | str:
        return {"team_id": TEAM, "user_id": BOT}

    def _apps_connections_open(self, given: Json) -> Json | str:
        return {"url": self.url.replace("http", "ws", 1) + "/socket"}

    def _bad_message(self, given: Json) -> str | None:
        if given.get("channel") not in self.channels:
            return "channel_not_found"
        if not given.get("text") and not given.get("blocks"):
            return "no_text"
        if given.get("blocks") and why_invalid(given["blocks"]):
            return "invalid_blocks"
        return None

    def _find(self, channel: Any, ts: Any) -> Message | None:
        return next((m for m in self.messages if m.channel == channel and m.ts == ts and not m.deleted), None)

    def _listed(self, found: list[Message], given: Json) -> list[Json]:
        full = str(given.get("include_all_metadata", "")).lower() in ("1", "true")
        return [
            {"ts": m.ts, "text": m.text, **({"metadata": m.metadata} if full and m.metadata else {})}
            for m in found
            if not m.deleted
        ]

    async def _response(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        self.answered.setdefault(id, time.monotonic())
        self._uses[id] += 1
        if self._uses[id] > 5:
            return web.Response(status=404, text="used_url")
        given = await request.json()
        self.whispers.append(("", id.partition("-")[0], str(given["text"])))
        return web.Response(text="ok")

    # -- people ------------------------------------------------------------------------------------------------

    def roots(self, channel: str | None = None) -> list[Message]:
        found = [m for m in self.messages if m.thread is None and not m.deleted]
        return [m for m in found if channel in (None, m.channel)]

    def told(self, user: str) -> list[str]:
        return [text for _, to, text in self.whispers if to == user]

    def trigger(self) -> str:
        id = uuid.uuid4().hex
        self._triggers[id] = (time.monotonic(), False)
        return id

    def response_url(self, user: str) -> str:
        return f"{self.api}response/{user}-{uuid.uuid4().hex}"

    def pressed(self, message: Message, action: str, user: str, *, team: str = TEAM, url: bool = True) -> Json:
        """The payload of a press. Raises `KeyError` where the button isn't there (any more)."""
        return press(message.buttons()[action], user, message.channel, trigger=self.trigger(), team=team,
                     url=self.response_url(user) if url else "")  # fmt: skip

    def submitted(self, view: Json, user: str, reason: str) -> Json:
        return {
            "type": "view_submission",
            "api_app_id": APP,
            "team": {"id": TEAM},
            "user": {"id": user, "team_id": TEAM},
            "view": {**view, "state": {"values": {"medevac_reason": {"text": {"value": reason}}}}},
        }

    def command(self, user: str, text: str, *, team: str = TEAM, channel: str = "C0FLEET") -> dict[str, str]:
        return {
            "command": "/medevac", "text": text, "user_id": user, "team_id": team, "api_app_id": APP,
            "channel_id": channel, "response_url": self.response_url(user), "trigger_id": self.trigger(),
        }  # fmt: skip

    # -- Socket Mode -------------------------------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1})
        self._sockets.append(socket)
        async for message in socket:
            if message.type is WSMsgType.TEXT and message.data:
                self.acked.append(json.loads(message.data)["envelope_id"])
        self._sockets.remove(socket)
        return socket

    @property
    def connected(self) -> bool:
        return bool(self._sockets)

    def deliver(self, kind: str, payload: Json, envelope: str = "") -> str:
        """Over the first connection, as Slack does; the envelope's id."""
        id = envelope or uuid.uuid4().hex
        sent = self._sockets[0].send_json(
            {"type": kind, "envelope_id": id, "payload": payload, "accepts_response_payload": False}
        )
        asyncio.run_coroutine_threadsafe(sent, self._loop).result(120)
        return id


def press(
    button: Json, user: str, channel: str, *, trigger: str = "", team: str = TEAM, app: str = APP, url: str = ""
) -> Json:
    return {
        "type": "block_actions",
        "api_app_id": app,
        "team": {"id": team, "domain": "medevac"},
        "user": {"id": user, "username": "whatever", "name": "admin", "team_id": team},
        "trigger_id": trigger,
        "channel": {"id": channel},
        "container": {"type": "message", "channel_id": channel},
        "response_url": url,
        "actions": [{"action_id": button["action_id"], "value": button["value"], "type": "button"}],
    }


def interactive(payload: Json) -> bytes:
    return urlencode({"payload": json.dumps(payload)}).encode()


def commanded(form: dict[str, str]) -> bytes:
    return urlencode(form).encode()


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET, stamp: str | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at)) if stamp is None else stamp
    mac = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={mac}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def options(slack: FarSlack, **more: Any) -> Json:
    """For the configuration's `chat` part; the secrets' variables are set by the fixture."""
    given: Json = {
        "team": TEAM,
        "app": APP,
        "bot_token": {"env": "TEST_SLACK_BOT"},
        "signing_secret": {"env": "TEST_SLACK_SECRET"},
        "channels": {"everyday": "C0FLEET", "person_needed": "C0ONCALL", "approvals": "C0ASKED"},
        "api": slack.api,
        "drill": True,
    }
    return given | more
