"""How the one active policy changes: narrowing at once, widening with a second person, never to a wrong one."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from activities.ports import Unreadable
from activities.registry import ConfigurationError, Registry
from activities.storage.policies import NoPolicy
from medevac.events.event import HealthEvent
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.compared import Effect, effect, newly_let_act
from medevac.policy.diff import PolicyChange, changes
from medevac.policy.loading import PolicyError, load
from medevac.policy.planner import Context
from medevac.policy.policy import Policy
from medevac.policy.routing import Route, route
from worker.beside import newly_owned
from worker.exceeding import MANY_PERCENT, Exceeding, exceeding
from worker.explain import Explainer, fold_faults
from worker.installation import check_policy
from worker.stores import Stores

WINDOW = timedelta(days=7)
MOST_EVENTS = 20_000


class PolicyRefused(Exception):
    """The policy is not taken; the message says why and what to do."""


class PolicyDiff(Model):
    active: int
    changes: tuple[PolicyChange, ...]
    widening: bool
    newly_acts: tuple[str, ...] = ()
    """Who may newly do what, in words."""
    open_incidents: tuple[Effect, ...] = ()
    """Those that would be treated otherwise; `last_days` the same for what was heard in the last 7 days."""
    last_days: tuple[Effect, ...] = ()
    exceeding: tuple[Exceeding, ...] = ()


class Applied(Model):
    version: int
    state: str
    """`active`, `proposed` (a second person must approve) or `unchanged`."""
    text: str


class PolicyDesk:
    """Blocking."""

    def __init__(self, stores: Stores, registry: Registry) -> None:
        self._stores = stores
        self._registry = registry

    def diff(self, text: str, now: datetime, origin: str = "policy") -> PolicyDiff:
        active, new = self._stores.policies.active(), self._candidate(text, "diff", now, origin)
        found = tuple(changes(active.policy, new.policy))
        incidents, recent = self._effects(active, new, now)
        return PolicyDiff(
            active=active.version,
            changes=found,
            widening=any(change.widening for change in found),
            newly_acts=tuple(newly_let_act(active.policy, new.policy)),
            open_incidents=tuple(one for one in incidents if one.changed),
            last_days=tuple(one for one in recent if one.changed),
            exceeding=tuple(exceeding(active.policy, new.policy, self._registry, self._stores.ledger, now)),
        )

    def apply(
        self,
        text: str,
        author: str,
        now: datetime,
        *,
        may_widen: bool,
        origin: str = "policy",
        accept: bool = False,
    ) -> Applied:
        """`accept`: also where a newly set threshold is exceeded by more than 2 % of a pool already."""
        active, new = self._stores.policies.active(), self._candidate(text, author, now, origin)
        found = changes(active.policy, new.policy)
        if not found:
            return Applied(version=active.version, state="unchanged", text="it says what the active one says")
        widening = [change for change in found if change.widening]
        if widening and not may_widen:
            raise PolicyRefused(f"{author} may not propose a widening: {widening[0].text}; ask an approver")
        hot = exceeding(active.policy, new.policy, self._registry, self._stores.ledger, now)
        many = [one for one in hot if len(one.nodes) * 100 > MANY_PERCENT * one.of]
        if many and not accept:
            raise PolicyRefused(f"{many[0].text}, more than {MANY_PERCENT} %; raise it, or apply with `--accept`")
        owned = self._may_own(active.policy, new.policy)
        if widening and any(known.text == text for known in self._stores.policies.list()):
            # The same text is the same version, with its first author: a second proposal must be one of its own.
            text = f"{text.rstrip()}\n# Proposed again by {author}, {now.isoformat(timespec='seconds')}.\n"
        version = self._stores.policies.propose(text, author, now)
        if widening:
            return Applied(
                version=version,
                state="proposed",
                text=f"version {version} widens ({widening[0].text}); someone other than {author} must approve it: "
                f"`medevac policy approve {version}`" + "".join(f"; {one.text}" for one in hot) + owned,
            )
        self._stores.policies.activate(version, None, now)
        return Applied(version=version, state="active", text=f"version {version} is active; it only narrows")

    def approve(self, version: int, by: str, now: datetime) -> Applied:
        proposed = self._get(version)
        if proposed.author == by:
            raise PolicyRefused(f"{by} proposed version {version}; a second person must approve it")
        newest = max(known.version for known in self._stores.policies.applied())
        if version <= newest:
            # Its author asked at another time; one person must not bring it back alone.
            raise PolicyRefused(
                f"version {version} is no open proposal (version {newest} came after it); apply it again"
            )
        candidate = self._candidate(proposed.text, by, now, f"version {version}")
        self._may_own(self._stores.policies.active().policy, candidate.policy)
        self._stores.policies.activate(version, by, now)
        return Applied(version=version, state="active", text=f"version {version} is active, approved by {by}")

    def rollback(self, by: str, now: datetime, *, may_widen: bool) -> Applied:
        """To the version that was active before. Where that widens, it too takes a second person."""
        active = self._stores.policies.active()
        before = self._before()
        if not any(change.widening for change in changes(active.policy, before.policy)):
            self._stores.policies.rollback(by, now)
            back = self._stores.policies.active().version
            return Applied(version=back, state="active", text=f"version {back} is active: {before.version} again")
        return self.apply(before.text, by, now, may_widen=may_widen, origin=f"version {before.version}")

    def _may_own(self, active: Policy, new: Policy) -> str:
        """What switches the others off, where only a person can know that it was done; refused while they act."""
        try:
            found = newly_owned(active, new, self._registry)
        except Unreadable as error:
            raise PolicyRefused(f"who else repairs these nodes can't be read: {error}; try again") from None
        for one in found:
            if one.acting:
                raise PolicyRefused(f"{one.wrong(new.pools[one.pool])}; then apply it again")
        return "".join(f"; make sure that they are off in pool {one.pool}: {one.off}" for one in found)

    def _get(self, version: int) -> PolicyVersion:
        try:
            return self._stores.policies.get(version)
        except NoPolicy as error:
            raise PolicyRefused(str(error)) from error

    def _before(self) -> PolicyVersion:
        active = self._stores.policies.active()
        older = [version for version in self._stores.policies.applied() if version.version != active.version]
        if not older:
            raise PolicyRefused("no other version was ever active; there is nothing to roll back to")
        return older[-1]

    def _candidate(self, text: str, author: str, now: datetime, origin: str) -> PolicyVersion:
        try:
            check_policy(load(text, origin), self._registry, origin)
            return PolicyVersion.of(text, author, now)
        except (PolicyError, ConfigurationError) as error:
            raise PolicyRefused(str(error)) from error

    def _effects(self, active: PolicyVersion, new: PolicyVersion, now: datetime) -> tuple[list[Effect], list[Effect]]:
        """Open incidents, and nodes that only recent events speak of, under both policies."""
        explainer = Explainer(self._registry, active, self._stores.ledger)
        opened = {(v.cluster, v.node): v for v in self._stores.ledger.incidents(open_only=True, limit=MOST_EVENTS)}
        heard: dict[tuple[str, str], list[HealthEvent]] = defaultdict(list)
        # Newest first in the ledger; a fault set grows in the order in which things were heard.
        for seen in reversed(self._stores.ledger.events_since(now - WINDOW, MOST_EVENTS)):
            if seen.node is not None and seen.event.cluster is not None and _counts(seen.event, active, new):
                heard[seen.event.cluster, seen.node].append(seen.event)
        of_open: list[Context] = []
        of_recent: list[Context] = []
        for (cluster, name), events in sorted(heard.items()):
            node = self._registry.cluster(cluster).node(name)
            if node is None:
                continue
            faults, view = fold_faults(events, now), opened.get((cluster, name))
            if view is None:
                of_recent.append(explainer.context(node, faults, now))
            else:
                of_open.append(explainer.context(node, faults, now, view.id, view.opened_at))
        return effect(active, new, of_open, now), effect(active, new, of_recent, now)


def _counts(event: HealthEvent, active: PolicyVersion, new: PolicyVersion) -> bool:
    return Route.INCIDENT in (route(event, active.policy), route(event, new.policy))
