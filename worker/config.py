"""The configuration file: what one installation has, who may send to it, and who may decide in it.

No secret stands in it: senders and people are known by a sha256, or by a reference to a file or variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import Field, IPvAnyNetwork, JsonValue, model_validator

from activities.evidence_store import EvidenceOptions
from activities.secret import Secret
from activities.storage_probe import StorageProbe
from medevac.fleet.scorecard import Penalties, Price
from medevac.model import Model
from worker.speakers import Basic, Name, Poller, PublicKey, Queue, Sender, Token, Watcher
from worker.yaml_model import YamlError, load_yaml_model


class ConfigError(ValueError):
    """The configuration is wrong. One line an error: `file:line:column: what; what to do`."""


class Part(Model):
    """One outside system: an adapter (`kind`, by its entry point) under a name, with the adapter's own options."""

    name: Name
    kind: str
    options: dict[str, JsonValue] = {}


class Cluster(Part):
    checks: str = ""
    """Name of the checks that prove this cluster's nodes; may be left out when there is only one."""


class Provider(Part):
    tickets: str = ""
    """Name of the ticket system for this provider's machines; may be left out when there is only one."""


class SlackUser(Model):
    """Ids, as Slack's own signed requests carry them. Names and addresses can be changed by whoever has them."""

    team: str = Field(pattern=r"^[TE][A-Z0-9]{2,30}$")
    user: str = Field(pattern=r"^[UW][A-Z0-9]{2,30}$")


class Replies(Model):
    """How a ticket system signs in that posts its replies to the gateway (docs/cases.md)."""

    bearer: Token | None = None
    basic: Basic | None = None
    hmac: Secret | None = None
    """Standard-Webhooks signature, as of senders."""

    @model_validator(mode="after")
    def _signs_in(self) -> Self:
        if sum(way is not None for way in (self.bearer, self.basic, self.hmac)) != 1:
            raise ValueError("give exactly one of `bearer`, `basic` and `hmac`")
        return self


class TicketSystem(Part):
    replies: Replies | None = None
    """Unset: nobody may post replies, they are looked for."""


class Person(Model):
    """One principal. `groups`: `viewer`, `operator`, `approver`, `capacity-owners`, `admin`, or the policy's own."""

    id: Name
    name: str = ""
    groups: tuple[str, ...] = Field(min_length=1)
    token: Token
    slack: SlackUser | None = None
    """Who this is in Slack. Votes from there and with the token are one person's."""
    login: str = Field(default="", max_length=200)
    """As the console's trusted proxy names this person; `id` where left out."""


class TrustedProxy(Model):
    """What stands before the gateway, signs people in, and says who they are. It must drop the header from others."""

    addresses: tuple[IPvAnyNetwork, ...] = Field(min_length=1)
    """Of the proxy itself, as the gateway sees its connections. The header is believed from nowhere else."""
    header: str = Field(default="X-Forwarded-User", pattern=r"^[A-Za-z][A-Za-z0-9-]{1,60}$")


class Console(Model):
    session_s: float = Field(default=12 * 3_600, ge=60, le=7 * 86_400)
    """How long a sign-in lasts."""
    proxy: TrustedProxy | None = None


class Scorecard(Model):
    prices: tuple[Price, ...] = ()
    penalties: Penalties = Penalties()


class Config(Model):
    installation: Name
    clusters: tuple[Cluster, ...] = Field(min_length=1)
    providers: tuple[Provider, ...] = Field(min_length=1)
    checks: tuple[Part, ...] = ()
    tickets: tuple[TicketSystem, ...] = ()
    chat: Part | None = None
    pagers: tuple[Part, ...] = ()
    """Who is woken when a person is needed (docs/operate/on-call.md)."""
    scorecard: Scorecard = Scorecard()
    """What machines cost, and what their trouble does (docs/providers.md)."""
    inventory: tuple[Path, ...] = ()
    """CSV or YAML files about machines (docs/inventory.md)."""
    evidence: EvidenceOptions | None = None
    """Where it is kept what was known about a machine before anything irreversible; unset: a folder."""
    storage_probes: tuple[StorageProbe, ...] = ()
    """What pools of the policy name under `storage_probe` (docs/policy.md)."""
    senders: tuple[Sender, ...] = ()
    queues: tuple[Queue, ...] = ()
    pollers: tuple[Poller, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    people: tuple[Person, ...] = ()
    vote_keys: tuple[PublicKey, ...] = ()
    """Votes count that a gateway with one of these keys signed; without any, nobody can vote."""
    console: Console = Console()

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        for what, names in (
            ("clusters", [part.name for part in self.clusters]),
            ("providers", [part.name for part in self.providers]),
            ("checks", [part.name for part in self.checks]),
            ("tickets", [part.name for part in self.tickets]),
            ("pagers", [part.name for part in self.pagers]),
            ("storage_probes", [one.name for one in self.storage_probes]),
            ("senders, queues, pollers and watchers", [one.name for one in self.speakers]),
            ("people", [person.id for person in self.people]),
            ("people's logins", [person.login or person.id for person in self.people]),
            ("people in Slack", [f"{p.slack.team}:{p.slack.user}" for p in self.people if p.slack]),
        ):
            if twice := _twice(names):
                raise ValueError(f"{what}: {twice} is there twice; names are unique")
        for one in self.speakers:
            for cluster in one.clusters:
                if cluster not in {part.name for part in self.clusters}:
                    raise ValueError(f"{type(one).__name__.lower()} {one.name}: no cluster is called {cluster}")
            if isinstance(one, Sender | Queue):
                for said, meant in one.cluster_names.items():
                    if meant not in one.clusters:
                        raise ValueError(
                            f"{type(one).__name__.lower()} {one.name}: `cluster_names` calls {meant} {said}, and "
                            f"{meant} is none of its `clusters`; add it there, or take the name out"
                        )
        _referenced("checks", [(c.name, c.checks) for c in self.clusters], [part.name for part in self.checks])
        _referenced("tickets", [(p.name, p.tickets) for p in self.providers], [part.name for part in self.tickets])
        kinds: list[Part] = [*self.clusters, *self.providers, *self.checks, *self.tickets]
        simulated = {part.kind == SIMULATION for part in kinds}
        if len(simulated) > 1:
            raise ValueError(
                "simulated and real parts are mixed: "
                + ", ".join(f"{part.name} ({part.kind})" for part in kinds)
                + "; a check that is simulated proves nothing about a real node"
            )
        return self

    @property
    def speakers(self) -> tuple[Sender | Queue | Poller | Watcher, ...]:
        """Whoever may speak for clusters."""
        return (*self.senders, *self.queues, *self.pollers, *self.watchers)

    def cluster_names(self, source: str) -> dict[str, str]:
        """What those who may say `source` call clusters; without names that mean different clusters."""
        found: dict[str, str | None] = {}
        names = [one.cluster_names for one in self.senders if source in one.sources]
        names += [one.cluster_names for one in self.queues if source == one.source]
        for said, meant in (pair for some in names for pair in some.items()):
            found[said] = meant if found.setdefault(said, meant) == meant else None
        return {said: meant for said, meant in found.items() if meant is not None}

    @property
    def simulated(self) -> bool:
        return all(part.kind == SIMULATION for part in self.clusters)


SIMULATION = "simulation"


def _twice(names: Iterable[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _referenced(what: str, named: Iterable[tuple[str, str]], known: list[str]) -> None:
    for part, name in named:
        if name and name not in known:
            raise ValueError(f"{part}: no {what} is called {name}")
        if not name and len(known) > 1:
            raise ValueError(f"{part}: there are several {what}; say which (`{what}: NAME`)")


def load_config(path: Path) -> Config:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; set MEDEVAC_CONFIG to a readable file") from error
    try:
        return load_yaml_model(Config, text, str(path))
    except YamlError as error:
        raise ConfigError(str(error)) from error
