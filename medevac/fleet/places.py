"""Where machines stand, as far as providers are compared by it, and where a replacement could be asked for."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import StringConstraints

from medevac.fleet.node import Machine, Node
from medevac.model import Model

Word = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\s*]+$")]

UNKNOWN = "unknown"


class Place(NamedTuple):
    """What machines are compared by."""

    provider: str
    region: str = UNKNOWN
    sku: str = UNKNOWN
    image: str = UNKNOWN


def place_of(node: Node) -> Place:
    region, image = (node.topology.get(name) or UNKNOWN for name in ("region", "image"))
    return Place(node.machine.provider, region, node.sku or UNKNOWN, image)


class Offer(Model):
    """A place where a replacement could be asked for. What is left out fits everything."""

    provider: Word
    region: Word | None = None
    sku: Word | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.provider, self.region, self.sku) if part)

    def takes(self, place: Place) -> bool:
        return (
            self.provider == place.provider
            and self.region in (None, place.region)
            and self.sku in (None, place.sku)
        )  # fmt: skip

    @classmethod
    def of(cls, node: Node) -> Offer:
        """Where the node's machine is itself."""
        return cls(provider=node.machine.provider, region=node.topology.get("region"), sku=node.sku)

    def asked(self, node: Node) -> Node:
        """The node as it is told to a provider that has no machine behind it: a machine without an id."""
        region = {"region": self.region} if self.region else {}
        machine = Machine(provider=self.provider, id="")
        return node.model_copy(
            update={"machine": machine, "topology": region, "sku": self.sku or node.sku, "owner": ""}
        )


class Source(Model):
    """Where a successor is asked for, as it was decided."""

    offer: Offer
    own: bool
    """It is where the machine itself is."""

    @property
    def elsewhere(self) -> Offer | None:
        return None if self.own else self.offer
