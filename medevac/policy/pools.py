"""Pools: which nodes a policy speaks of, and how far it lets medevac go there."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from medevac.fleet.node import Node
from medevac.fleet.places import Offer, Word
from medevac.model import Model
from medevac.policy.names import Name
from medevac.policy.plan import Mode

NO_GPUS = "no-gpu"
"""In `includes`: nodes without GPUs."""
STORAGE = "storage"


class Coexist(StrEnum):
    """What to do where another remediator (node repair of a cloud, NVSentinel, …) works on the same pool."""

    YIELD = "yield"
    """The other comes first: what it has in repair is followed and then checked, and it is given time to begin."""
    OWN = "own"
    """medevac acts, but not while the other is seen to act too; a foreign cordon still asks a person."""


class Select(Model):
    """Which nodes of the pool's clusters belong to it. Everything that is given must fit; nothing given is an error."""

    pool: Name | None = None
    """The pool's name as the cluster itself tells it (its inventory), where it does."""
    labels: dict[Word, str] = Field(default_factory=dict)
    """Node labels, all of them, with exactly these values."""
    nodes: tuple[Word, ...] = ()
    """Nodes by name."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.pool is None and not self.labels and not self.nodes:
            raise ValueError("an empty selector never means all nodes; give `labels`, `pool` or `nodes`")
        return self

    def takes(self, node: Node) -> bool:
        return (
            (self.pool is None or node.pool == self.pool)
            and (not self.nodes or node.name in self.nodes)
            and all(node.labels.get(key) == value for key, value in self.labels.items())
        )


class Pool(Model):
    """Nodes that are treated alike. A node in no pool, or in two, is never touched."""

    clusters: tuple[Name, ...] = Field(min_length=1)
    """Names of the clusters whose nodes may belong to it."""
    select: Select
    mode: Mode = Mode.OBSERVE
    """How far medevac goes here. Of this and a rule's own mode the stricter wins."""
    ladder: Name | None = None
    """Unless a rule names one. Without either: `cloud` for virtual machines, `bare_metal` for the others."""
    coexist: Coexist | None = None
    """Unset: a pool with another remediator at work is only observed."""
    includes: tuple[Name, ...] = ()
    """Roles that are otherwise never disrupted (`control-plane`, `storage`, `medevac`, `etcd`, `no-gpu`, …)."""
    replacements: tuple[Offer, ...] = ()
    """Where else a replacement of its nodes may be asked for, beside the machine's own provider (docs/providers.md)."""
    storage_probe: Name | None = None
    """Needed with `includes: [storage]`: the check that must pass right now for a storage node to be disrupted."""

    def takes(self, node: Node) -> bool:
        return node.cluster in self.clusters and self.select.takes(node)

    def probe_of(self, node: Node) -> str | None:
        """What must pass for this node to be disrupted; None where it is no storage server of this pool's."""
        return self.storage_probe if STORAGE in node.roles and STORAGE in self.includes else None
