"""Who may speak for clusters, in the configuration file, and how it signs in: senders, queues, pollers, watchers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from activities.secret import Secret, unread
from medevac.model import Model

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]
ClusterName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""As a sender writes it."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]{1,500}$")]


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
