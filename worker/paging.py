"""Pages: what needs a person now, according to the ledger, stands at every pager, and nothing else does.

A pager that was down is told what is true when it is back. The systems' own deduplication makes it safe that every
worker's sweep does this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import Enum

from activities.ports import NotSent, Page, Pager, Unclear
from activities.storage.posts import Post
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalState, ApprovalView
from medevac.campaigns.progress import stopped_itself
from medevac.fleet.order import unplanned
from medevac.incident import IncidentView, State
from medevac.model import digest
from worker import metrics
from worker.stores import Stores

log = logging.getLogger(__name__)

ALONE = 10
"""Incidents that are paged one by one; what comes beyond is one page, or a storm would wake everybody 200 times."""
AT_ONCE = 20
"""Calls to one pager in one sweep; the rest follows in the next."""
EXPIRED_FOR = timedelta(hours=24)
"""As long as the unanswered question latches."""
LOOKED_AT = 500
"""Approvals, newest first, among which expired ones are looked for."""
SOMEBODY_NEEDED = frozenset({State.HANDED_OVER, State.OBSERVED, State.HELD, State.WATCHING})

Quiet = Callable[[IncidentView, datetime], str]


class Told(Enum):
    TAKEN = "taken"
    REFUSED = "refused"
    """This one; others may be taken."""
    STOP = "stop"
    """The pager is down or wants less: no more in this sweep."""


class Pages:
    """Blocking. `quiet` says why nobody is woken for an incident; empty where somebody is."""

    def __init__(
        self, stores: Stores, pagers: Iterable[Pager], installation: str, quiet: Quiet = lambda view, now: ""
    ) -> None:
        self._stores = stores
        self._pagers = tuple(pagers)
        self._prefix = f"medevac/{installation}/"
        self._quiet = quiet
        self._not_before: dict[str, datetime] = {}

    def look(self, opened: list[IncidentView], now: datetime) -> None:
        if not self._pagers:
            return
        wanted = {page.key: page for page in self._wanted(opened, now)}
        for pager in self._pagers:
            self._bring(pager, wanted, now)

    # -- what stands -------------------------------------------------------------------------------------------

    def _wanted(self, opened: list[IncidentView], now: datetime) -> list[Page]:
        expired, homeless = self._expired(opened, now)
        needy = [
            view
            for view in sorted(opened, key=lambda view: view.opened_at)
            if (view.state is State.HANDED_OVER or view.id in expired)
            and not _unplanned(view)
            and not self._quiet(view, now)
        ]
        found = [self._incident(view, expired) for view in needy[:ALONE]]
        if more := needy[ALONE:]:
            title = "medevac: more incidents need a person, beside those paged alone; `medevac handover` lists them"
            nodes = ", ".join(f"{view.cluster}/{view.node}" for view in more[:50])
            found.append(self._page("incidents/more", title, nodes, "the fleet"))
        found += [
            self._page(
                f"approval/{view.id}",
                f"medevac: nobody answered: {view.title}",
                f"Asked at {view.requested_at:%Y-%m-%d %H:%M} UTC; unanswered, that is a no. See `medevac approvals`.",
                "the fleet",
                critical=False,
            )
            for view in homeless
        ]
        found += [
            self._page(
                f"campaign/{one.id}",
                f"medevac: campaign {one.id} has halted by itself: {one.why}",
                f"Nothing more is begun. `medevac campaign show {one.id}`, then resume or end it.",
                "the fleet",
            )
            for one in self._stores.campaigns.all(open_only=True)
            if stopped_itself(one.state, one.why)
        ]
        found += self._unanswered({view.id: view for view in opened}, now)
        found += [
            self._page(
                f"breaker/{one.cluster}/{one.cause}",
                f"medevac: breaker {one.cluster}/{one.cause} is open: {one.reason}",
                "Nothing more is destroyed there until it closes. See `medevac breakers`.",
                one.cluster,
            )
            for one in self._stores.guard.open_breakers()
        ]
        return found

    def _unanswered(self, opened: dict[str, IncidentView], now: datetime) -> list[Page]:
        """Questions that are still open after the reminder, where the policy has somebody woken for that."""
        due = []
        for view in self._stores.ledger.approvals(pending_only=True, limit=LOOKED_AT):
            waiting = [opened[w.incident] for w in view.waiters if w.incident in opened]
            quiet = bool(waiting) and all(self._quiet(one, now) for one in waiting)
            if view.need.reminder and view.need.reminder.page and now >= tally.remind_at(view) and not quiet:
                due.append(view)
        pages = [
            self._page(
                f"approval/{view.id}",
                f"medevac: still waits for a yes or no: {view.title}",
                f"{' or '.join(tally.voters(view, now))} may vote; no answer until {view.expires_at:%Y-%m-%d %H:%M} UTC"
                f" is a no. See `medevac approvals {view.id}`.",
                "the fleet",
                critical=False,
            )
            for view in due[:ALONE]
        ]
        if more := due[ALONE:]:
            title = "medevac: more questions wait, beside those paged alone; `medevac approvals` lists them"
            pages.append(self._page("approvals/more", title, f"{len(more)} more", "the fleet", critical=False))
        return pages

    def _expired(self, opened: list[IncidentView], now: datetime) -> tuple[set[str], list[ApprovalView]]:
        """Open incidents whose question nobody answered and who still wait for somebody; questions of nobody's."""
        by_id = {view.id: view for view in opened}
        incidents, homeless = set(), []
        for view in self._stores.ledger.approvals(pending_only=False, limit=LOOKED_AT):
            result = view.result
            if view.state is not ApprovalState.EXPIRED or result is None or now - result.decided_at > EXPIRED_FOR:
                continue
            waiting = {w.incident for w in view.waiters} & by_id.keys()
            incidents |= {id for id in waiting if by_id[id].state in SOMEBODY_NEEDED}
            if not waiting and all(self._stores.ledger.incident(w.incident) is None for w in view.waiters):
                homeless.append(view)
        return incidents, homeless

    def _incident(self, view: IncidentView, expired: set[str]) -> Page:
        why = "nobody answered its question" if view.id in expired else "handed over to a person"
        text = [
            view.summary or view.waiting_for,
            f"fault {', '.join(view.faults) or view.fault or '?'}; machine {view.machine_id or '?'}; "
            f"pool {view.pool or '?'}; owner {view.owner or 'nobody'}; since {view.opened_at:%Y-%m-%d %H:%M} UTC",
            f"`medevac incidents {view.id}` tells all of it",
        ]
        title = f"medevac: {view.cluster}/{view.node}: {view.fault or 'unknown fault'}: {why}"
        return self._page(f"incident/{view.id}", title, "\n".join(filter(None, text)), f"{view.cluster}/{view.node}")

    def _page(self, key: str, title: str, text: str, source: str, critical: bool = True) -> Page:
        severity = "critical" if critical else "warning"
        return Page.model_validate(
            {"key": (self._prefix + key)[:250], "title": title, "text": text, "source": source, "severity": severity}
        )

    # -- bringing a pager up to date ---------------------------------------------------------------------------

    def _bring(self, pager: Pager, wanted: dict[str, Page], now: datetime) -> None:
        system = f"pager/{pager.name}"
        standing = self._stores.posts.standing(system)
        todo = [
            (page, False) for key, page in wanted.items() if key not in standing or standing[key].digest != _said(page)
        ]
        todo += [(self._as_it_was(post), True) for key, post in standing.items() if key not in wanted]
        unsent = len(todo)
        if now >= self._not_before.get(pager.name, now):
            for page, over in todo[:AT_ONCE]:
                told = self._say(pager, page, over, now)
                if told is Told.STOP:
                    break
                if told is Told.REFUSED:
                    continue
                post = Post(
                    key=page.key, system=system, channel=page.source[:200], reference=page.title[:500],
                    digest=_said(page), at=now, over=over,
                )  # fmt: skip
                self._stores.posts.put([post])
                unsent -= 1
        metrics.PAGES_UNSENT.labels(pager.name).set(unsent)

    def _as_it_was(self, post: Post) -> Page:
        return Page(key=post.key, title=post.reference, source=post.channel)

    def _say(self, pager: Pager, page: Page, over: bool, now: datetime) -> Told:
        try:
            (pager.resolve if over else pager.page)(page)
        except NotSent as error:
            metrics.PAGES.labels(pager.name, "refused").inc()
            log.error("%s (%s)", error, page.key)
            if error.retry_after_s:
                self._not_before[pager.name] = now + timedelta(seconds=error.retry_after_s)
            return Told.REFUSED if error.final else Told.STOP
        except Unclear as error:
            metrics.PAGES.labels(pager.name, "unclear").inc()
            log.error("%s (%s)", error, page.key)
            return Told.STOP
        metrics.PAGES.labels(pager.name, "resolved" if over else "paged").inc()
        return Told.TAKEN


def _unplanned(view: IncidentView) -> bool:
    return view.state is State.HANDED_OVER and unplanned(view.faults, view.rung, view.touched)


def _said(page: Page) -> str:
    return digest([page.title, page.severity])[:16]
