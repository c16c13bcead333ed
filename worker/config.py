"""The configuration file: what one installation has, who may send to it, and who may decide in it.

No secret stands in it: senders and people are known by a sha256, or by a reference to a file or variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, IPvAnyNetwork, JsonValue, StringConstraints, field_validator, model_validator

from activities.evidence_store import EvidenceOptions
from activities.secret import Secret, unread
from activities.storage_probe import StorageProbe
from medevac.fleet.scorecard import Penalties, Price
from medevac.model import Model
from worker.yaml_model import YamlError, load_yaml_model

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]
ClusterName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""As a sender writes it."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


Url = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]{1,500}$")]


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


class Token(Model):
    """A bearer token or password, by its sha256 or by reference."""

    sha256: Sha256 | None = None
    file: Path | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(part is not None for part in (self.sha256, self.file, self.env)) != 1:
            raise ValueError("give exactly one of `sha256`, `file` and `env`")
        return self


class PublicKey(Model):
    """Of a gateway's vote key (Ed25519, PEM). `medevac vote-key` makes a pair."""

    pem: str | None = None
    file: Path | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(part is not None for part in (self.pem, self.file, self.env)) != 1:
            raise ValueError("give exactly one of `pem`, `file` and `env`")
        return self


class Basic(Model):
    user: str = Field(min_length=1)
    password: Token


class Sns(Model):
    topics: tuple[str, ...] = Field(min_length=1)
    """ARNs. Amazon signs for every account's topics alike, so only these are believed."""


GOOGLE = ("https://accounts.google.com", "accounts.google.com")
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v3/certs"


class Oidc(Model):
    """Identity tokens (JWT, RS256). As they stand, the defaults are those of Pub/Sub push."""

    audience: str = Field(min_length=1)
    email: str | None = None
    """Of the service account; must be verified by the issuer."""
    subject: str | None = None
    issuers: tuple[str, ...] = Field(default=GOOGLE, min_length=1)
    jwks_url: str = Field(default=GOOGLE_KEYS, pattern=r"^https://[!-~]{1,500}$")

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if self.email is None and self.subject is None:
            raise ValueError("give `email` or `subject`: an issuer signs for everybody's accounts alike")
        return self


class ApiUser(Model):
    user: str = Field(min_length=1)
    password: Secret


class Alertmanager(Model):
    """Where an Alertmanager's API answers, and how one signs in there."""

    url: Url
    bearer: Secret | None = None
    basic: ApiUser | None = None
    ca: Path | None = None
    """Certificate authority, where it is your own."""

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.bearer is not None and self.basic is not None:
            raise ValueError("give at most one of `bearer` and `basic`")
        if self.bearer is not None or self.basic is not None:
            unread(self.url)
        return self


class Sender(Model):
    """Who may post events, as which sources, about which clusters, and how it signs in."""

    name: Name
    sources: tuple[str, ...] = Field(min_length=1)
    clusters: tuple[Name, ...] = Field(min_length=1)
    """Clusters it may speak for. Its events about others are refused."""
    cluster_names: dict[ClusterName, Name] = {}
    """What it calls a cluster, to the cluster's name here, one of `clusters`: `{prod-eu: main}`."""
    bearer: Token | None = None
    basic: Basic | None = None
    hmac: Secret | None = None
    """Standard-Webhooks signature (HMAC-SHA256 over `id.timestamp.body`); secret `whsec_<base64>` or plain text."""
    pagerduty: Secret | None = None
    """Secret of a PagerDuty v3 webhook subscription (`X-PagerDuty-Signature`)."""
    grafana: Secret | None = None
    """HMAC secret of a Grafana contact point; set its timestamp header to `X-Grafana-Alerting-Timestamp`."""
    sns: Sns | None = None
    oidc: Oidc | None = None
    expected_every_s: float | None = Field(default=None, ge=1.0)
    """It says something at least this often; silent for twice as long, its monitor is taken to be down."""
    alertmanager: Alertmanager | None = None
    """One that sends with `max_alerts`: asked for the alerts that it held back. Its address alone is enough."""

    @field_validator("alertmanager", mode="before")
    @classmethod
    def _address(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _signs_in(self) -> Self:
        ways = ("bearer", "basic", "hmac", "pagerduty", "grafana", "sns", "oidc")
        if sum(getattr(self, way) is not None for way in ways) != 1:
            raise ValueError(f"give exactly one of {', '.join(f'`{way}`' for way in ways)}")
        return self


class Queue(Model):
    """An SQS queue that `medevac consume` receives from. Credentials are found as AWS's own tools find them."""

    name: Name
    url: Url
    region: str = ""
    endpoint: Url | None = None
    source: str = "aws"
    clusters: tuple[Name, ...] = Field(min_length=1)
    cluster_names: dict[ClusterName, Name] = {}
    """As a sender's."""
    visibility_s: int = Field(default=30, ge=3, le=43_200)
    """How long SQS hides a message that is being taken; renewed while it lasts."""
    expected_every_s: float | None = Field(default=None, ge=1.0)
    """A message that says something comes at least this often: for queues that something feeds at a rate."""
    tries: int = Field(default=20, ge=1, le=1_000)
    """Receives of a message that can't be taken, before it goes to the dead letters."""


class Target(Model):
    url: Url
    node: str = Field(min_length=1)
    """Whom it speaks of: its answers don't say."""


class Poller(Model):
    """gpud daemons, which only answer when asked, for `medevac poll`."""

    name: Name
    source: str = "gpud"
    clusters: tuple[Name, ...] = Field(min_length=1)
    targets: tuple[Target, ...] = Field(min_length=1)
    paths: tuple[str, ...] = ("/v1/states",)
    every_s: float = Field(default=60.0, ge=1.0)
    ca: Path | None = None
    """Certificate authority of the targets, where it is your own."""
    verify: bool = True
    """False for gpud as it comes: it makes itself a certificate at each start, which nobody can check. Whoever can
    answer in a target's place can then say anything about that node, so no secret is sent there."""
    expected_every_s: float | None = Field(default=None, ge=1.0)
    """Some target answers at least this often; unset: three times `every_s`."""

    @model_validator(mode="after")
    def _unverified(self) -> Self:
        if not self.verify and self.ca is not None:
            raise ValueError("`ca` is for checking certificates, which `verify: false` doesn't; take one out")
        if not self.verify and any(urlsplit(target.url).username is not None for target in self.targets):
            raise ValueError("a target's address holds a name or password, which `verify: false` would send to anybody")
        return self


class Watcher(Model):
    """What clusters say of their nodes by themselves (conditions, Events), for `medevac watch`."""

    name: Name
    clusters: tuple[Name, ...] = Field(min_length=1)
    events: bool = True
    """Also Events about nodes; off for an account that may not read them."""
    relist_s: float = Field(default=300.0, ge=1.0)
    """So often all conditions are judged again, whatever was heard before."""
    joining_s: float = Field(default=600.0, ge=0.0)
    """So long after a node was made it may be not ready, or without a network, and is not said to be sick."""
    expected_every_s: float | None = Field(default=None, ge=60.0)
    """The API server shows at least this often that it would tell; in each cluster."""
    lease_s: float = Field(default=15.0, ge=1.0)
    """Of several processes one speaks; the next follows it within this."""


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
