"""What the configuration says of a Slack workspace. Secrets stand in files or variables, never here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from activities.registry import ConfigurationError
from activities.secret import SafeUrl, Secret
from medevac.faults.classes import FaultClass
from medevac.model import Model
from medevac.telling.facts import Links

ChannelId = Annotated[str, StringConstraints(pattern=r"^[CGD][A-Z0-9]{2,30}$")]
"""Not its name: names change, and `chat.update` takes ids only."""
GroupId = Annotated[str, StringConstraints(pattern=r"^S[A-Z0-9]{2,30}$")]
LEAST = 16


class Kept(Secret):
    """Read where Slack is configured: one that is missing ends the start, not the first message."""

    def read(self, what: str) -> str:
        """Raises `ConfigurationError`, which names the reference and never the value."""
        if self.file is not None:
            try:
                value = self.file.expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"slack {what}: cannot read {self.file}: {type(error).__name__}") from None
        else:
            value = os.environ.get(self.env or "", "").strip()
        if len(value) < LEAST:
            raise ConfigurationError(f"slack {what}: {self.file or self.env} holds no secret; see docs/slack.md")
        return value


class Channels(Model):
    everyday: ChannelId
    person_needed: ChannelId
    approvals: ChannelId
    handover: ChannelId | None = None
    """Unset: `person_needed`."""


class Route(Model):
    """Where incidents and questions of some go instead. Each line that is given must fit; the first route counts."""

    clusters: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    classes: tuple[FaultClass, ...] = ()
    """Severity: the fault's class."""
    teams: tuple[str, ...] = ()
    """Owners of the jobs hit."""
    channel: ChannelId
    approvals: ChannelId | None = None
    """Of questions; unset: `channel`."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.clusters or self.pools or self.classes or self.teams):
            raise ValueError("an empty route never means everything; give `clusters`, `pools`, `classes` or `teams`")
        return self

    def fits(self, cluster: str, pool: str | None, fault_class: str | None, teams: Iterable[str]) -> bool:
        return (
            (not self.clusters or cluster in self.clusters)
            and (not self.pools or pool in self.pools)
            and (not self.classes or fault_class in self.classes)
            and (not self.teams or not set(self.teams).isdisjoint(teams))
        )


class SlackOptions(Model):
    team: str = Field(pattern=r"^T[A-Z0-9]{2,30}$")
    """The workspace. Requests of any other are refused."""
    app: str = Field(pattern=r"^A[A-Z0-9]{2,30}$")
    bot_token: Kept
    signing_secret: Kept | None = None
    """For buttons and commands over HTTP, where Slack can reach the gateway."""
    app_token: Kept | None = None
    """For Socket Mode, where it can't."""
    channels: Channels
    routes: tuple[Route, ...] = ()
    owners: dict[str, ChannelId] = {}
    """Owner of a job (its label, else its namespace) → where that team is told of its jobs."""
    links: Links = Links()
    groups: dict[str, GroupId] = {}
    """Groups of the policy → Slack's user groups, called by name where a question is told to them."""
    drill: bool = False
    """A workspace for trials, the only kind that a simulated fleet may speak to."""
    api: SafeUrl = Field(default="https://slack.com/api/", pattern=r"/$")
    timeout_s: float = Field(default=5.0, gt=0, le=30)
