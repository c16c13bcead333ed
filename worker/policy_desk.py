"""How the one active policy changes: narrowing at once, widening with a second person, never to a wrong one."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from activities.registry import ConfigurationError, Registry
from activities.storage.policies import NoPolicy
from medevac.events.event import HealthEvent, Kind
from medevac.model import Model
from medevac.policy.active import PolicyVersion
from medevac.policy.diff import PolicyChange, changes
from medevac.policy.loading import PolicyError, load
from medevac.policy.plan import Mode, Plan
from medevac.policy.routing import Route, route
from worker.explain import Explainer, fold_faults, in_words
from worker.installation import check_policy
from worker.intake.inventory import Found, Inventory
from worker.stores import Stores

WINDOW = timedelta(days=7)
MOST_EVENTS = 20_000


class PolicyRefused(Exception):
    """The policy is not taken; the message says why and what to do."""


class Effect(Model):
    """How one node's plan would differ."""

    cluster: str
    node: str
    incident: str | None = None
    before: str
    after: str
    newly_acts: bool = False
    """Something is done to it now that was not before, or is done with fewer votes."""


class PolicyDiff(Model):
    active: int
    changes: tuple[PolicyChange, ...]
    widening: bool
    open_incidents: tuple[Effect, ...] = ()
    last_days: tuple[Effect, ...] = ()
    newly_acting_nodes: int = 0


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
            open_incidents=incidents,
            last_days=recent,
            newly_acting_nodes=len({(e.cluster, e.node) for e in (*incidents, *recent) if e.newly_acts}),
        )

    def apply(self, text: str, author: str, now: datetime, *, may_widen: bool, origin: str = "policy") -> Applied:
        active, new = self._stores.policies.active(), self._candidate(text, author, now, origin)
        found = changes(active.policy, new.policy)
        if not found:
            return Applied(version=active.version, state="unchanged", text="it says what the active one says")
        widening = [change for change in found if change.widening]
        if widening and not may_widen:
            raise PolicyRefused(f"{author} may not propose a widening: {widening[0].text}; ask an approver")
        version = self._stores.policies.propose(text, author, now)
        if widening:
            return Applied(
                version=version,
                state="proposed",
                text=f"version {version} widens ({widening[0].text}); someone other than {author} must approve it: "
                f"`medevac policy approve {version}`",
            )
        self._stores.policies.activate(version, None, now)
        return Applied(version=version, state="active", text=f"version {version} is active; it only narrows")

    def approve(self, version: int, by: str, now: datetime) -> Applied:
        proposed = self._get(version)
        if proposed.author == by:
            raise PolicyRefused(f"{by} proposed version {version}; a second person must approve it")
        active = self._stores.policies.active()
        if version == active.version:
            return Applied(version=version, state="unchanged", text=f"version {version} is active already")
        if version < active.version:
            raise PolicyRefused(
                f"version {version} was proposed before version {active.version} became active; propose it again"
            )
        self._candidate(proposed.text, by, now, f"version {version}")
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

    def _effects(
        self, active: PolicyVersion, new: PolicyVersion, now: datetime
    ) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
        explainer = Explainer(self._registry, active, self._stores.ledger)
        inventory = Inventory(self._registry.clusters)
        opened = {
            (view.cluster, view.node): view.id for view in self._stores.ledger.incidents(open_only=True, limit=10_000)
        }
        by_node: dict[tuple[str, str], list[HealthEvent]] = defaultdict(list)
        # Newest first in the ledger; a fault set grows in the order in which things were heard.
        for seen in reversed(self._stores.ledger.events_since(now - WINDOW, MOST_EVENTS)):
            if seen.node is not None and seen.event.cluster is not None:
                by_node[seen.event.cluster, seen.node].append(seen.event)
        incidents: list[Effect] = []
        recent: list[Effect] = []
        for place, events in sorted(by_node.items()):
            where = inventory.resolve(place[1], place[0])
            acting = [e for e in events if _counts(e, active, new)]
            if not acting or not isinstance(where, Found):
                continue
            faults = fold_faults(acting, now)
            before = explainer.plan(where.node, faults, now, active)
            after = explainer.plan(where.node, faults, now, new)
            if in_words(before) == in_words(after):
                continue
            effect = Effect(
                cluster=place[0],
                node=place[1],
                incident=opened.get(place),
                before=in_words(before),
                after=in_words(after),
                newly_acts=_acts(after) > _acts(before),
            )
            (incidents if effect.incident else recent).append(effect)
        return tuple(incidents), tuple(recent)


def _counts(event: HealthEvent, active: PolicyVersion, new: PolicyVersion) -> bool:
    return event.kind in (Kind.FAULT, Kind.PLANNED, Kind.LIFECYCLE, Kind.CHECK) and Route.INCIDENT in (
        route(event, active.policy),
        route(event, new.policy),
    )


def _acts(plan: Plan) -> tuple[int, bool, int]:
    """Grows with what is let happen without people."""
    return (
        (plan.mode.reach, plan.mark, -(plan.approval.threshold if plan.approval else 0))
        if (plan.mode is not Mode.OBSERVE)
        else (0, False, 0)
    )
