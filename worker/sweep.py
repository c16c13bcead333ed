"""The sweep: finds what nobody would otherwise notice. Any worker may run it, and all may at once.

It pages for incidents with no ledger line beyond their step's limit, closes those whose workflow is gone, takes back
leases whose holder doesn't run, and sets the gauges that the alerts read. A page is a ledger line first: only the
sweep whose line is new speaks, so that any number of workers page once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from activities.folding import Folding, due
from activities.messaging import MAX_TEXT
from activities.messaging import PAGE as LOUD
from activities.ports import Chat, NotSent, Unclear, Unreadable
from activities.signatures import case_workflow_id
from medevac.campaigns.progress import CampaignState
from medevac.incident import IncidentView, Line, State, StepKey
from worker import metrics
from worker.engine import Engine, NotRunning, Unavailable
from worker.meanwhile import WAITS_FOR_PEOPLE, Meanwhile
from worker.orphans import OrphanMarks
from worker.paging import Pages
from worker.quiet import Quiet
from worker.shifts import ShiftChange
from worker.stores import Stores
from worker.threads import Threads
from worker.unplaced import unplaced
from workflows.messages import campaign_workflow_id

log = logging.getLogger(__name__)

CHECKED_AT_ONCE = 10
ALL_EVERY = 10
"""Every so many sweeps each open incident's workflow is looked for, not only the overdue ones'."""
YOUNG = timedelta(seconds=60)
"""An incident younger than this may have ended before its row says so; it isn't called an orphan yet."""
KEEP_EVENTS = timedelta(days=30)
MOST = 10_000
PAGES = "medevac-sweep"
PAGE = "page"
BETWEEN_STEPS = timedelta(minutes=10)
WAITING = frozenset(
    {
        State.WATCHING,
        State.WAITING_LEASE,
        State.WAITING_APPROVAL,
        State.PROBATION,
        State.HELD,
        State.OBSERVED,
        State.HANDED_OVER,
    }
)
"""States that may last; all others are on their way to the next step."""


class Sweep:
    def __init__(
        self,
        stores: Stores,
        engine: Engine,
        chat: Chat,
        folding: Folding,
        meanwhile: Meanwhile,
        threads: Threads,
        every_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        marks: OrphanMarks | None = None,
        quiet: Quiet | None = None,
        pages: Pages | None = None,
        shifts: ShiftChange | None = None,
    ) -> None:
        self._stores = stores
        self._engine = engine
        self._chat = chat
        self._folding = folding
        self._meanwhile = meanwhile
        self._threads = threads
        self._every_s = every_s
        self._now = now
        self._marks = marks
        self._quiet = quiet
        self._pages = pages
        self._shifts = shifts
        self._count = 0

    async def run(self) -> None:
        """Until cancelled. A sweep that fails is counted and comes again."""
        while True:
            outcome = "failed"
            try:
                await self.once()
                outcome = "done"
                metrics.LAST_SWEEP.set(self._now().timestamp())
            except Unreadable as error:
                outcome = "ledger_unreachable"
                log.error("sweep: the ledger cannot be read: %s", error)
            except Unavailable as error:
                outcome = "temporal_unreachable"
                log.error("sweep: Temporal does not answer: %s", error)
            except Exception:
                log.exception("sweep failed")
            metrics.SWEEPS.labels(outcome).inc()
            await asyncio.sleep(self._every_s)

    async def once(self) -> None:
        now = self._now()
        opened = await self._threads.run(self._stores.ledger.incidents, open_only=True, limit=MOST)
        await self._gauges(opened, now)
        await self._tell_together(now)
        if self._pages is not None:
            await self._threads.run(self._pages.look, opened, now)
        overdue = [view for view in opened if await self._overdue(view, now)]
        metrics.OVERDUE_INCIDENTS.set(len(overdue))
        for view in overdue:
            since = view.due_at or view.updated_at
            await self._page(
                StepKey(incident=view.id, step="overdue", n=int(since.timestamp())),
                f"{view.cluster}/{view.node}: no news of {view.step or view.state} beyond its limit of "
                f"{since:%Y-%m-%d %H:%M:%S} UTC; see `medevac incidents {view.id}`",
            )
        suspects = opened if self._count % ALL_EVERY == 0 else overdue
        await self._look_at_waiting(opened, now)
        await self._close_orphans([view for view in suspects if now - view.updated_at > YOUNG], opened)
        await self._reap(now)
        await self._listen(now)
        await self._threads.run(self._unplaced, now)
        if self._marks is not None and self._count % ALL_EVERY == 0:
            for key, text in await self._marks.reconcile(now):
                await self._page(key, text)
        if self._count % ALL_EVERY == 0:
            await self._wind_clocks()
            await self._threads.run(self._stores.ledger.forget_events, now - KEEP_EVENTS)
            await self._threads.run(self._stores.dead_letters.forget, now - KEEP_EVENTS)
        metrics.DEAD_LETTERS.set(await self._threads.run(self._stores.dead_letters.waiting))
        self._count += 1
        if self._shifts is not None:
            await self._threads.run(self._shifts.look, now)

    def _unplaced(self, now: datetime) -> None:
        metrics.UNPLACED.clear()
        for sender, machines in Counter(one.sender for one in unplaced(self._stores.ledger, now)).items():
            metrics.UNPLACED.labels(sender).set(machines)

    async def _overdue(self, view: IncidentView, now: datetime) -> bool:
        """No ledger line beyond the limit of its step; or, between steps, none for longer than any may take."""
        waits = view.state in WAITING
        limit = view.due_at or (None if waits else view.updated_at + BETWEEN_STEPS)
        if limit is None or now <= limit:
            return False
        lines = [line for line in await self._threads.run(self._stores.ledger.lines, view.id) if line.kind != PAGE]
        if any(line.at > limit for line in lines):
            return False
        # The limit of a step that has ended stands in the row until the next begins; a wait has no next.
        steps = [line for line in lines if line.kind == "step"]
        return not (waits and steps and steps[-1].data.get("step") == view.step)

    async def _gauges(self, opened: list[IncidentView], now: datetime) -> None:
        states = Counter(view.state for view in opened)
        for state in State:
            metrics.OPEN_INCIDENTS.labels(state).set(states[state])
        pending = await self._threads.run(self._stores.ledger.approvals, pending_only=True, limit=MOST)
        metrics.PENDING_APPROVALS.set(len(pending))
        oldest = min((view.requested_at for view in pending), default=now)
        metrics.OLDEST_APPROVAL_SECONDS.set(max(0.0, (now - oldest).total_seconds()))
        breakers = await self._threads.run(self._stores.guard.open_breakers)
        metrics.BREAKERS.clear()
        for breaker in breakers:
            metrics.BREAKERS.labels(f"{breaker.cluster}/{breaker.cause}").set(1)
        metrics.FENCES.set(len(await self._threads.run(self._stores.fences.active)))

    async def _look_at_waiting(self, opened: list[IncidentView], now: datetime) -> None:
        """What people did to the nodes they were given: noted, and the incident looks again."""
        for view in opened:
            if view.state in WAITS_FOR_PEOPLE and await self._threads.run(self._meanwhile.look, view, now):
                with suppress(NotRunning):
                    await self._engine.wake(view.workflow_id)

    async def _listen(self, now: datetime) -> None:
        """Monitors that have gone quiet, and those that are heard again. No node is touched for either."""
        if self._quiet is None:
            return
        silent, news = await self._threads.run(self._quiet.look, now)
        metrics.QUIET.clear()
        for sender, count in Counter(one.monitor.sender for one in silent).items():
            metrics.QUIET.labels(sender).set(count)
        for silence in news:
            if await self._page(silence.key, silence.text):
                await self._threads.run(self._quiet.note, silence, now)

    # -- orphans -----------------------------------------------------------------------------------------------

    async def _close_orphans(self, suspects: list[IncidentView], opened: list[IncidentView]) -> None:
        """An open row without a workflow: terminated, or its last record was lost. Its node is left as it is."""
        newest: dict[str, IncidentView] = {}
        for view in opened:
            if view.workflow_id not in newest or view.opened_at > newest[view.workflow_id].opened_at:
                newest[view.workflow_id] = view
        slots = asyncio.Semaphore(CHECKED_AT_ONCE)

        async def check(view: IncidentView) -> None:
            async with slots:
                # The workflow id is the node's; a newer incident under it says that this one's run is over.
                if newest[view.workflow_id].id == view.id and await self._engine.running(view.workflow_id):
                    return
                await self._close(view)

        await asyncio.gather(*(check(view) for view in suspects))

    async def _close(self, view: IncidentView) -> None:
        fresh = await self._threads.run(self._stores.ledger.incident, view.id)
        if fresh is None or fresh.rev != view.rev or fresh.end is not None:
            return
        where = f"{view.cluster}/{view.node}"
        text = f"{where}: the workflow of {view.id} is gone; the node is left as it is, see `medevac adopt`"
        closed = view.model_copy(
            update={
                "state": State.ENDED,
                "updated_at": self._now(),
                "due_at": None,
                "step": "",
                "waiting_for": "a person: its workflow was ended from outside",
                "rev": view.rev + 1,
                "summary": "ended from outside, nothing undone",
            }
        )
        if await self._threads.run(self._stores.ledger.upsert_incident, closed):
            metrics.ORPHANS_CLOSED.inc()
            await self._page(StepKey(incident=view.id, step="orphan"), text)

    # -- clocks ------------------------------------------------------------------------------------------------

    async def _wind_clocks(self) -> None:
        """Cases and campaigns lie in the ledger; where the workflow that moves one is gone, another takes over."""
        for case in await self._threads.run(self._stores.cases.all, open_only=True, limit=MOST):
            if not await self._engine.running(case_workflow_id(case.system, case.id)):
                await self._engine.follow_case(case.system, case.id)
        for campaign in await self._threads.run(self._stores.campaigns.all, open_only=True, limit=MOST):
            asked = campaign.state is CampaignState.ASKED  # Its question is with the workflow that is gone.
            if not asked and not await self._engine.running(campaign_workflow_id(campaign.id)):
                await self._engine.start_campaign(campaign.id, None, campaign.state)

    # -- leases ------------------------------------------------------------------------------------------------

    async def _reap(self, now: datetime) -> None:
        """Only what has expired, and only when Temporal says that its holder doesn't run."""
        for lease in await self._threads.run(self._stores.guard.expired, now):
            if await self._engine.running(lease.workflow_id):
                continue
            if await self._threads.run(self._stores.guard.reap, lease.lease_id, now) is None:
                continue
            metrics.LEASES_REAPED.inc()
            await self._page(
                StepKey(incident=lease.incident, step="lease-reaped", n=lease.epoch),
                f"{lease.cluster}/{lease.node}: its workflow is gone in the middle of a step; look at the node",
            )

    # -- messages that were folded -----------------------------------------------------------------------------

    async def _tell_together(self, now: datetime) -> None:
        while (digest := await self._threads.run(due, self._stores.ledger, now)) is not None:
            # A line first: of all sweeps only the one whose line is new speaks.
            if not await self._threads.run(self._stores.ledger.add_lines, [digest.line]):
                continue
            text = (LOUD if digest.page else "") + digest.text[:MAX_TEXT]
            try:
                await self._threads.run(self._chat.post, str(digest.line.key), PAGES, text)
            except (NotSent, Unclear, Unreadable) as error:
                log.error("%s (could not be posted: %s)", digest.text, error)

    # -- pages -------------------------------------------------------------------------------------------------

    async def _page(self, key: StepKey, text: str) -> bool:
        """False when it was told already."""
        line = Line(key=key, at=self._now(), kind=PAGE, text=text)
        if not await self._threads.run(self._stores.ledger.add_lines, [line]):
            return False
        log.error("page: %s", text)
        if await self._threads.run(self._folding.folds, key, key.step, text, True, self._now()):
            return True
        try:
            await self._threads.run(self._chat.post, str(key), PAGES, text)
        except (NotSent, Unclear, Unreadable) as error:
            log.error("the page could not be posted: %s", error)
        return True
