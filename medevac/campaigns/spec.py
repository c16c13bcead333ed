"""What a campaign is to do, to which nodes, and how carefully."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from medevac.fleet.node import Node
from medevac.model import Model
from medevac.policy.durations import Duration, words
from medevac.policy.plan import Drain

CampaignId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\s*?]+$")]
MAX_NODES = 20_000
LEAST_WINDOW_S = 600.0
MOST_FAULTS = 1.0
MOST_FAILURES = 0.1
MOST_STAGES = 8
"""Whoever is asked reads them all, with the rest of the care, in one message."""
CHECKED = "check/"
"""Code of the fault that a failed check opens: `check/<what it covers>`."""


class Act(StrEnum):
    """What is done to each node. All but `check` go through the node's own incident, under its locks and leases."""

    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REPLACE = "replace"
    DRAIN = "drain"
    """Emptied and held until the campaign ends, then checked and returned."""
    CHECK = "check"
    """Only looked at; a node that fails opens an incident of its own."""

    @property
    def rung(self) -> str:
        """Of the ladder, as the node's incident takes it; a check takes none."""
        return "wait" if self is Act.DRAIN else self.value


class Selector(Model):
    """Which nodes. Everything that is given must fit; nothing given is an error, never "all"."""

    clusters: tuple[Word, ...] = ()
    pools: tuple[Word, ...] = ()
    providers: tuple[Word, ...] = ()
    domains: dict[Word, Word] = Field(default_factory=dict)
    """Failure domains by name: `rack`, `region`, `switch`, `image`, …"""
    skus: tuple[Word, ...] = ()
    labels: dict[Word, str] = Field(default_factory=dict)
    nodes: tuple[Word, ...] = ()
    """By name, or `cluster/name`."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("an empty selector never means all nodes; give clusters, pools, domains, labels or nodes")
        return self

    def takes(self, node: Node) -> bool:
        """`node` as the policy has placed it."""
        return (
            _any(self.clusters, node.cluster)
            and _any(self.pools, node.pool)
            and _any(self.providers, node.machine.provider)
            and _any(self.skus, node.sku)
            and all(node.topology.get(name) == value for name, value in self.domains.items())
            and all(node.labels.get(name) == value for name, value in self.labels.items())
            and (not self.nodes or node.name in self.nodes or f"{node.cluster}/{node.name}" in self.nodes)
        )


class Care(Model):
    """How it widens, and what stops it. Shares are percent of the nodes that are listed."""

    stages: tuple[Annotated[float, Field(gt=0, le=5)], ...] = (1.0, 3.0, 5.0)
    """Listed nodes that have been acted on when each soak begins; after the last the rest follows within budgets."""
    soak: Annotated[Duration, Field(ge=0)] = 3_900.0
    """Between the last node of a stage and the next stage. Faults of a bad image show up to an hour after it."""
    window: Annotated[Duration, Field(gt=0)] = 5_400.0
    """How long after its action a node's fault counts against the campaign."""
    look: Annotated[Duration, Field(ge=0.2, le=300)] = 30.0
    """How often it is looked at, and the most that a place in the budget stays empty."""
    deadline: Annotated[Duration, Field(gt=0)] = 3_600.0
    """For the proof of the act on one node; without it a person decides about that node."""
    at_once: int | None = Field(default=None, ge=1)
    """Nodes in hand at a time; the guard's budgets hold in any case."""
    expected_faults: float = Field(default=0.02, gt=0, le=10)
    """A node's faults and false alarms a day without any campaign, until the nodes beside tell better."""
    expected_failures: float = Field(default=0.02, gt=0, le=0.2)
    """Share of nodes on which the action itself fails though nothing is wrong with it."""
    out_percent: float = Field(default=10.0, gt=0, le=20)
    """Of the pool out of service by anything but the campaign: at this it halts."""

    @model_validator(mode="after")
    def _widens(self) -> Self:
        if not self.stages:
            raise ValueError("a campaign begins with a canary; give at least one stage")
        if list(self.stages) != sorted(set(self.stages)):
            raise ValueError("each stage is larger than the one before it")
        return self


def blind(care: Care) -> str:
    """Why this care, or a bad act under it, would pass unseen; empty where it wouldn't. Asked as a campaign is listed,
    not as it is read: one that people have agreed to stays readable whatever the bounds become.
    """
    if care.window < max(LEAST_WINDOW_S, care.soak):
        return (
            f"care.window is {words(care.window)}: faults come up to an hour after the act; give at least"
            f" {words(max(LEAST_WINDOW_S, care.soak))} (the soak, and 10 min)"
        )
    if care.expected_faults > MOST_FAULTS:
        return (
            f"care.expected_faults is {care.expected_faults:g} a node and day: no fault would halt it; give at most 1"
        )
    if care.expected_failures > MOST_FAILURES:
        return f"care.expected_failures is {care.expected_failures:g}: hardly a failure would halt it; give at most 0.1"
    if len(care.stages) > MOST_STAGES:
        return f"care.stages has {len(care.stages)} stages, more than voters are shown; give at most {MOST_STAGES}"
    return ""


class Spec(Model):
    id: CampaignId
    act: Act
    reason: Annotated[str, StringConstraints(min_length=3, max_length=500)]
    requested_by: str
    selector: Selector
    image: str | None = Field(default=None, max_length=500)
    """`reinstall` only: what the machine's provider is to install."""
    drain: Drain = Drain.CHECKPOINT
    care: Care = Care()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.image is not None and self.act is not Act.REINSTALL:
            raise ValueError(f"an image is installed by `reinstall`; {self.act} takes none")
        return self


def _any(wanted: tuple[str, ...], value: str | None) -> bool:
    return not wanted or value in wanted
