"""Live updates: one look at the ledger per process tells every open page what has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from activities.ports import Unreadable
from activities.storage.views import Views
from worker.console.entering import Here
from worker.console.pages import PageRoute
from worker.gateway.errors import Problem
from worker.threads import Threads

router = APIRouter(route_class=PageRoute, include_in_schema=False)
log = logging.getLogger(__name__)

LOOK_S = 0.3
"""Between two looks, and only while a page is open."""
MOST = 200
"""Open pages of one process: each keeps a connection, and senders need theirs."""
MOST_EACH = 20
ALIVE_S = 15.0
STREAM_S = 600.0
"""Then the browser connects anew, and is asked anew who it is."""
BLIND = "unreadable"


class Listener:
    def __init__(self, who: str) -> None:
        self.who = who
        self.topics: set[str] = set()
        self.woken = asyncio.Event()
        self.over = False

    def tell(self, topics: Iterable[str]) -> None:
        self.topics |= set(topics)
        self.woken.set()

    def take(self) -> str:
        taken, self.topics = " ".join(sorted(self.topics)), set()
        self.woken.clear()
        return taken


class Live:
    def __init__(self, views: Views, threads: Threads, look_s: float = LOOK_S) -> None:
        self._views = views
        self._threads = threads
        self._look_s = look_s
        self._listeners: list[Listener] = []
        self._looking: asyncio.Task[None] | None = None
        self._seen = asyncio.Event()

    def room_for(self, who: str) -> bool:
        return len(self._listeners) < MOST and sum(one.who == who for one in self._listeners) < MOST_EACH

    async def listen(self, who: str) -> Listener:
        """Returns once every later change will be told."""
        listener = Listener(who)
        self._listeners.append(listener)
        if self._looking is None or self._looking.done():
            self._seen = asyncio.Event()
            self._looking = asyncio.create_task(self._look(), name="console")
        try:
            await self._seen.wait()
        except asyncio.CancelledError:
            self.leave(listener)
            raise
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        if not self._listeners and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def close(self) -> None:
        """Ends every stream, so that the server needn't wait for them."""
        for one in self._listeners:
            one.over = True
            one.woken.set()

    async def _look(self) -> None:
        known: dict[str, str] | None = None
        while True:
            try:
                found = await self._threads.run(self._views.marks)
            except Unreadable as error:
                log.warning("the console's live updates can't read the ledger: %s", error)
                known = {}
                self._tell([BLIND])
                await asyncio.sleep(self._look_s * 10)
                continue
            if known is not None and known != found:
                self._tell(name for name in found if known.get(name) != found[name])
            known = found
            self._seen.set()
            await asyncio.sleep(self._look_s)

    def _tell(self, topics: Iterable[str]) -> None:
        listed = list(topics)
        for one in self._listeners:
            one.tell(listed)


@router.get("/console/events")
async def events(request: Request, here: Here) -> StreamingResponse:
    live: Live = request.app.state.console.live
    if not live.room_for(here.person.id):
        raise Problem(503, "too many pages are open for live updates; load this one anew to see changes")

    async def stream() -> AsyncIterator[str]:
        listener = await live.listen(here.person.id)
        try:
            yield "retry: 1000\nevent: ready\ndata: -\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(STREAM_S):
                    while not listener.over:
                        try:
                            await asyncio.wait_for(listener.woken.wait(), ALIVE_S)
                        except TimeoutError:
                            yield ": alive\n\n"
                            continue
                        if topics := listener.take():
                            yield f"event: changed\ndata: {topics}\n\n"
        finally:
            live.leave(listener)

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
