"""What is written to a provider: composed of what the allow-list names, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from medevac.model import Model

MOST_TITLE = 200
MOST_BODY = 8_000
"""AWS Support takes 8,000 characters; so does everybody else."""


class Share(StrEnum):
    """What may leave the company. Each is a line, or a section, of the ticket."""

    MACHINE_ID = "machine_id"
    """The provider's own name of the machine."""
    SERIAL = "serial"
    PARTS = "parts"
    """Serials of GPUs and other parts."""
    SKU = "sku"
    FAULT = "fault"
    TIMELINE = "timeline"
    """When it was first seen, and what was done when, in fixed words."""
    ATTEMPTS = "attempts"
    """Remedies that were tried, and how they ended."""
    REASONS = "reasons"
    """Why the policy decides so; may name pools and jobs."""
    EVIDENCE = "evidence"
    """Links to evidence, which lead into our own store."""
    NODE = "node"
    """Our names of node and cluster."""
    RACK = "rack"
    CONTRACT = "contract"
    """Support contract and warranty, as the inventory has them."""


SHARED = (
    Share.MACHINE_ID, Share.SERIAL, Share.PARTS, Share.SKU, Share.FAULT, Share.TIMELINE, Share.ATTEMPTS, Share.CONTRACT,
)  # fmt: skip
"""Where the configuration says nothing: what the provider needs, and none of our own names, jobs or links."""


class Letter(Model):
    title: str
    body: str


class Facts(Model):
    """All that is known of one incident's machine. What of it goes out, the allow-list says."""

    machine_id: str = ""
    serial: str = ""
    parts: tuple[str, ...] = ()
    sku: str = ""
    fault: str = ""
    first_seen: datetime | None = None
    timeline: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    node: str = ""
    rack: str = ""
    contract: str = ""


def compose(facts: Facts, share: Iterable[Share]) -> Letter:
    """One machine's ticket."""
    allowed = frozenset(share)
    what = facts.fault if Share.FAULT in allowed and facts.fault else "hardware fault"
    title = f"{what} on {name(facts, allowed)}"
    return Letter(title=_cut(title, MOST_TITLE), body=_cut("\n".join(_lines(facts, allowed)), MOST_BODY))


def summary(many: Sequence[Facts], share: Iterable[Share], provider: str) -> Letter:
    """One ticket for machines that came too many at once."""
    allowed = frozenset(share)
    title = f"hardware faults on several machines ({provider})"
    body = "\n".join(("Several machines failed within an hour:", *(f"- {short(facts, allowed)}" for facts in many)))
    return Letter(title=_cut(title, MOST_TITLE), body=_cut(body, MOST_BODY))


def short(facts: Facts, share: Iterable[Share]) -> str:
    """One line about one machine."""
    allowed = frozenset(share)
    fault = f": {facts.fault}" if Share.FAULT in allowed and facts.fault else ""
    serial = f" (serial {facts.serial})" if Share.SERIAL in allowed and facts.serial else ""
    named = name(facts, allowed)
    return f"{named}{serial if facts.serial != named else ''}{fault}"


def name(facts: Facts, allowed: frozenset[Share]) -> str:
    """How the machine may be called outside."""
    for share, value in ((Share.MACHINE_ID, facts.machine_id), (Share.SERIAL, facts.serial), (Share.NODE, facts.node)):
        if share in allowed and value:
            return value
    return "one machine"


def _lines(facts: Facts, allowed: frozenset[Share]) -> list[str]:
    lines = [
        f"{label}: {value}"
        for share, label, value in (
            (Share.MACHINE_ID, "Machine", facts.machine_id),
            (Share.SERIAL, "Serial", facts.serial),
            (Share.PARTS, "Parts", ", ".join(facts.parts)),
            (Share.SKU, "Type", facts.sku),
            (Share.CONTRACT, "Contract", facts.contract),
            (Share.NODE, "Our name", facts.node),
            (Share.RACK, "Rack", facts.rack),
            (Share.FAULT, "Fault", facts.fault),
        )
        if share in allowed and value
    ]
    if Share.TIMELINE in allowed and facts.first_seen:
        lines.append(f"First seen: {facts.first_seen:%Y-%m-%d %H:%M} UTC")
    for share, label, values in (
        (Share.TIMELINE, "What happened", facts.timeline),
        (Share.ATTEMPTS, "What was tried", facts.attempts),
        (Share.REASONS, "Why we write", facts.reasons),
        (Share.EVIDENCE, "Evidence", facts.evidence),
    ):
        if share in allowed and values:
            lines += ["", f"{label}:", *(f"- {value}" for value in values)]
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
