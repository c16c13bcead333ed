"""Where a successor for one node is asked for: the places that may be asked, the best first, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from medevac.fleet.node import Capability, Node
from medevac.fleet.places import Offer, Place, Source, place_of
from medevac.fleet.scorecard import Card, choose
from medevac.model import Model


class Candidate(Model):
    source: Source
    why: str
    adjusted: float | None = None
    """Price and penalty of an hour; None where no price is known."""
    certified: bool = True
    """Its provider was proved on a real machine here, or needs no proof."""


class Asking(Model):
    """Without candidates there is no choice: the machine's own provider is asked."""

    candidates: tuple[Candidate, ...] = ()
    """Best first."""
    again: bool = False
    """Nothing came where one was asked for in this incident, and another place is left."""
    notes: tuple[str, ...] = ()

    def can(self, node: Node) -> Node:
        """The node, which others' machines may replace where its own can at least be ended."""
        able = node.machine.capabilities
        if not self.candidates or Capability.TERMINATE not in able:
            return node
        machine = node.machine.model_copy(update={"capabilities": able | {Capability.REPLACE}})
        return node.model_copy(update={"machine": machine})


def offered(node: Node, listed: Iterable[Offer]) -> list[Offer]:
    """The node's own place, and those that its pool's `replacements` name beside it."""
    return [Offer.of(node), *(offer for offer in dict.fromkeys(listed) if not offer.takes(place_of(node)))]


def places(node: Node, offers: Iterable[Offer]) -> dict[Offer, Place]:
    """Where a machine of each offer would stand."""
    own = Offer.of(node)
    return {offer: place_of(node if offer == own else offer.asked(node)) for offer in offers}


def asking(
    node: Node, listed: Iterable[Offer], card: Card | None, *, cannot: Mapping[Offer, str],
    asked: Source | None = None, nothing_came: Collection[Offer] = (), uncertified: Collection[str] = (),
) -> Asking:  # fmt: skip
    """`card`: None where it can't be read. `asked`: where one may still come, so that nobody else is asked."""
    own, offers = Offer.of(node), offered(node, listed)
    able = [offer for offer in offers if offer not in cannot]
    left = [offer for offer in able if offer not in nothing_came]
    notes = [f"{offer} is not asked: {why}" for offer, why in cannot.items()]
    notes += [f"nothing came from {offer} in this incident" for offer in nothing_came]
    if card is None:
        notes.append("the scorecard can't be read, so nothing is compared and the machine's own provider comes first")
    if asked is not None:
        notes.append("it has been asked for there already")
    known = card.known(places(node, offers)) if card else ()
    ranked = choose([asked.offer] if asked else left or able, known, nothing_came)
    return Asking(
        candidates=tuple(
            Candidate(
                source=Source(offer=one.offer, own=one.offer == own),
                why=one.why if card else str(one.offer),
                adjusted=one.adjusted,
                certified=one.offer.provider not in uncertified,
            )
            for one in ranked
        ),
        again=bool(nothing_came) and bool(left) and asked is None,
        notes=tuple(notes),
    )
