"""Whether anybody is told: silences and windows of the policy that hold messages and pages about an incident."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from activities.ports import Unreadable
from activities.storage.ledger import Ledger
from activities.storage.policies import NoPolicy, Policies
from activities.storage.silences import Silences
from medevac.faults.catalogue import lookup
from medevac.incident import IncidentView
from medevac.policy.loading import PolicyError
from medevac.policy.silences import Holds, Silence, Subject, says_nothing

log = logging.getLogger(__name__)

HEARD_FOR = timedelta(days=7)


class Quietly:
    """Blocking. What can't be read silences nobody: better told twice than never."""

    def __init__(self, ledger: Ledger, policies: Policies, silences: Silences) -> None:
        self._ledger = ledger
        self._policies = policies
        self._silences = silences

    def of(self, incident: str, now: datetime) -> str:
        """Why nobody is told of this incident now; empty where somebody is."""
        try:
            view = self._ledger.incident(incident)
            return self.about(view, now) if view else ""
        except Unreadable as error:
            log.warning("whether %s is silenced can't be read: %s", incident, error)
            return ""

    def about(self, view: IncidentView, now: datetime) -> str:
        """Raises `Unreadable`."""
        return self.among([view], now).get(view.id, "")

    def among(self, views: Iterable[IncidentView], now: datetime) -> dict[str, str]:
        """Of those that nobody is told of: why. Silences are read once for all. Raises `Unreadable`."""
        open_to_it = [view for view in views if _may_be_silenced(view)]
        if not open_to_it:
            return {}
        silences = self._silences.standing(now)
        why = {view.id: self._why(view, silences, now) for view in open_to_it}
        return {id: said for id, said in why.items() if said}

    def _why(self, view: IncidentView, silences: Sequence[Silence], now: datetime) -> str:
        if silence := says_nothing(silences, self.subjects(view, silences, now), now):
            return str(silence)
        return self._window(view.pool, now)

    def subjects(self, view: IncidentView, silences: Iterable[Silence], now: datetime) -> list[Subject]:
        """The incident's faults as `silences` see them; who raised each is read only where that decides."""
        found = [
            Subject(
                cluster=view.cluster, pool=view.pool, node=view.node, fault=code, fault_class=lookup(code).fault_class
            )
            for code in _codes(view)
        ]  # fmt: skip
        others = [one.matcher.model_copy(update={"source": None}) for one in silences if one.matcher.source]
        if not any(matcher.fits(subject) for matcher in others for subject in found):
            return found
        sources = self._sources(view, now)
        return [subject.model_copy(update={"sources": sources.get(subject.fault, ())}) for subject in found]

    def _sources(self, view: IncidentView, now: datetime) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for one in self._ledger.heard_of(view.cluster, view.node, now - HEARD_FOR, limit=200):
            if one.event.fault:
                found.setdefault(one.event.fault, set()).add(one.event.source)
        return {code: tuple(sorted(sources)) for code, sources in found.items()}

    def _window(self, pool: str | None, now: datetime) -> str:
        try:
            windows = self._policies.active().policy.windows
        except (NoPolicy, PolicyError):
            return ""
        for name, window in windows.items():
            if Holds.NOTIFY in window.holds and window.covers(pool) and (until := window.until(now)):
                return f"window `{name}` holds it until {until:%Y-%m-%d %H:%M} UTC"
        return ""


def _may_be_silenced(view: IncidentView) -> bool:
    codes = _codes(view)
    classes = [lookup(code).fault_class for code in codes]
    if view.fault_class is not None:
        classes.append(view.fault_class)
    return bool(codes) and not any(one.latched for one in classes)


def _codes(view: IncidentView) -> tuple[str, ...]:
    return view.faults or ((view.fault,) if view.fault else ())
