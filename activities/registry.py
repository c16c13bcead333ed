"""Which adapter stands for which outside system in this installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from activities.evidence_store import EvidenceStore
from activities.ports import Chat, CheckResult, Checks, Cluster, Pager, Provider, TakesInventory, Tickets
from activities.storage_probe import StorageProbes
from medevac.faults.classes import Covers
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Node
from medevac.incident import StepKey

T = TypeVar("T")


class ConfigurationError(ValueError):
    """The parts don't make an installation; the message says which, and what to change."""


def complaints(error: ValidationError) -> str:
    """What is wrong with options, without what stands in them: it may be a secret in the wrong place.

    Their names are quoted, so that those of secrets aren't blanked as if a secret followed.
    """
    return "; ".join(_complaint(one) for one in error.errors(include_input=False))


def _complaint(one: ErrorDetails) -> str:
    where = ".".join(map(str, one["loc"]))
    return f"`{where}`: {one['msg']}" if where else one["msg"]


class NotConfigured(LookupError):
    """A name that no part answers to."""


class _Part(Protocol):
    @property
    def simulated(self) -> bool: ...


class NoChecks:
    """Stands where a cluster has no checks: proves nothing, so that nothing is returned to service by it."""

    def __init__(self, *, simulated: bool) -> None:
        self.simulated = simulated

    def covers(self, node: Node) -> frozenset[Covers]:
        return frozenset()

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        raise NotConfigured(f"cluster {node.cluster!r} has no checks; add a `checks` part for it to the configuration")


class Registry:
    """All parts by name. Refuses an installation that mixes simulated parts with real ones.

    A simulated check would "prove" a real machine healthy, and a drill would page people about machines that
    don't exist; hence all or none, the chat included.
    """

    def __init__(
        self,
        *,
        clusters: Iterable[Cluster],
        providers: Iterable[Provider],
        chat: Chat,
        checks: Mapping[str, Checks] | None = None,
        tickets: Mapping[str, Tickets] | None = None,
        evidence: EvidenceStore | None = None,
        inventory: Inventory | None = None,
        pagers: Iterable[Pager] = (),
        storage: StorageProbes | None = None,
        forms: Mapping[str, str] | None = None,
    ) -> None:
        self._clusters = _by_name("cluster", clusters)
        self._providers = _by_name("provider", providers)
        self._checks = dict(checks or {})
        self._tickets = dict(tickets or {})
        self._forms = dict(forms or {})
        self.chat = chat
        self.pagers = tuple(_by_name("pager", pagers).values())
        """Who is woken when a person is needed; none: only the chat says so."""
        self.evidence = evidence
        """Where what is known before something irreversible is kept; None: nothing is gathered."""
        self.storage = storage or StorageProbes()
        """Who says whether a storage server may go."""
        if not self._clusters:
            raise ConfigurationError("no cluster is configured; name at least one under `clusters`")
        for kind, named, known in (
            ("checks", self._checks, self._clusters),
            ("tickets", self._tickets, self._providers),
        ):
            for name in named:
                if name not in known:
                    raise ConfigurationError(
                        f"`{kind}` names {name!r}, which isn't configured; known: {', '.join(known)}"
                    )
        self.simulated = _all_or_none(self._parts())
        self.inventory = inventory or Inventory()
        """What is known of machines beside what clusters tell; every node that a cluster gives is joined with it."""
        if self.inventory:
            for cluster in self._clusters.values():
                _joined(cluster, self.inventory)
        for provider in self._providers.values():
            if isinstance(provider, TakesInventory):
                provider.take_inventory(self.inventory)

    def _parts(self) -> dict[str, _Part]:
        parts: dict[str, _Part] = {f"cluster {name}": part for name, part in self._clusters.items()}
        parts |= {f"provider {name}": part for name, part in self._providers.items()}
        parts |= {f"checks of {name}": part for name, part in self._checks.items()}
        parts |= {f"tickets of {name}": part for name, part in self._tickets.items()}
        parts |= {f"pager {one.name}": one for one in self.pagers}
        parts["chat"] = self.chat
        return parts

    def cluster(self, name: str) -> Cluster:
        return _find("cluster", name, self._clusters)

    def clusters(self) -> list[Cluster]:
        return list(self._clusters.values())

    def provider(self, name: str) -> Provider:
        return _find("provider", name, self._providers)

    def providers(self) -> list[Provider]:
        return list(self._providers.values())

    def form(self, provider: str) -> str:
        """Digest of how it is configured, to which its proofs are bound; empty where it isn't by a file."""
        return self._forms.get(provider, "")

    def checks(self, cluster: str) -> Checks:
        self.cluster(cluster)
        return self._checks.get(cluster) or NoChecks(simulated=self.simulated)

    def ticket_systems(self) -> list[Tickets]:
        """Each once, whatever number of providers it serves."""
        return list({id(one): one for one in self._tickets.values()}.values())

    def tickets(self, provider: str) -> Tickets:
        return _find("ticket system for provider", provider, self._tickets)


def _joined(cluster: Cluster, inventory: Inventory) -> None:
    """On the adapter itself: one put before it would hide which optional ports it has."""
    node, nodes = cluster.node, cluster.nodes

    def one(name: str) -> Node | None:
        found = node(name)
        return None if found is None else inventory.enrich(found)

    cluster.node = one  # type: ignore[method-assign]
    cluster.nodes = lambda: map(inventory.enrich, nodes())  # type: ignore[method-assign]


def _by_name(kind: str, parts: Iterable[T]) -> dict[str, T]:
    named: dict[str, T] = {}
    for part in parts:
        name = str(getattr(part, "name", ""))
        if not name or name in named:
            raise ConfigurationError(
                f"{kind} name {name!r} is {'empty' if not name else 'used twice'}; names must differ"
            )
        named[name] = part
    return named


def _find(kind: str, name: str, parts: Mapping[str, T]) -> T:
    try:
        return parts[name]
    except KeyError:
        known = ", ".join(parts) or "none"
        raise NotConfigured(f"no {kind} is called {name!r}; configured: {known}") from None


def _all_or_none(parts: Mapping[str, _Part]) -> bool:
    simulated = [name for name, part in parts.items() if part.simulated]
    real = [name for name, part in parts.items() if not part.simulated]
    if simulated and real:
        raise ConfigurationError(
            f"simulated parts ({', '.join(simulated)}) are mixed with real ones ({', '.join(real)}); use only one kind"
        )
    return bool(simulated)
