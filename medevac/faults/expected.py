"""Statements that a remedy explains: symptoms of our own step, echoes of what it has mended, and stale ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime, timedelta

from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Identity
from medevac.model import Model

STALE_AFTER = timedelta(hours=1)
SHOWN_BY_A_STEP = frozenset(
    {"condition", "alert", "event", "check", "instance-state", "instance-status", "asg", "slurm"}
    | {"monitor", "aws", "azure", "gcp", "oci"}
)
"""Namespaces in which a node that we drain, restart or replace shows up by itself, as long as nothing there is of
a latched class: hardware is never explained away."""
LATCHING = frozenset({"npd", "eks_nma"})
"""Senders whose conditions may stay bad until their agent is restarted, whatever becomes of the fault: restated with a
fresh heartbeat, they are no word on what a check has judged since."""


class Remedy(Model):
    """What medevac is doing or has done, by which expected symptoms and echoes are told."""

    step: str
    """`evacuate`, `act`, `prove`, `verify`, `probation`."""
    began_at: datetime
    deadline: datetime
    proved_at: datetime | None = None
    before: Identity = Identity()
    echo_grace_s: float = 300.0
    latched_s: float = 0.0
    """How long after the proof a latching condition that says the same as before it is no news."""


class Proof(Model):
    """A check that passed: what it covered, on which boot, and when."""

    covers: tuple[Covers, ...]
    boot_id: str | None
    at: datetime
    since: datetime | None = None
    """When the remedy that it judged was proved."""
    said: tuple[str, ...] = ()
    """What latching conditions said of the faults that it proved gone (`said_by`)."""
    told: tuple[str, ...] = ()
    """Of these, what has been heard again, and told to people."""


def is_symptom(event: HealthEvent, remedy: Remedy | None, now: datetime) -> bool:
    """While a step runs and until its deadline, what the step itself causes. After the deadline it is real."""
    if remedy is None or remedy.step == "probation" or now > remedy.deadline:
        return False
    if event.kind is Kind.LIFECYCLE:
        return True
    if event.kind is not Kind.FAULT or event.fault_class is None or event.fault_class.latched:
        return False
    return event.fault_class is FaultClass.MONITOR or (event.fault or "").split("/")[0] in SHOWN_BY_A_STEP


def is_echo(
    event: HealthEvent, remedy: Remedy | None, now: datetime, known: Collection[str], proofs: Collection[Proof]
) -> bool:
    """A statement from before the remedy's proof, about what the remedy was for.

    `known` are the codes still open. An old statement of a latched fault that nobody knew, and that no passed
    check covers, is news all the same: the remedy wasn't for it.
    """
    if remedy is None or event.kind is not Kind.FAULT:
        return False
    heard_at = event.received_at or now
    if event.fault not in known and any(_mended(event, proof, remedy.echo_grace_s, heard_at) for proof in proofs):
        return True
    if remedy.proved_at is None or not _from_before(event, remedy, remedy.proved_at, heard_at):
        return False
    if event.fault in known or event.fault_class is None or not event.fault_class.latched:
        return True
    covered = {c for p in proofs if p.at >= remedy.proved_at for c in p.covers}
    return bool(event.covers) and covered.issuperset(event.covers)


def said_by(event: HealthEvent) -> str:
    """What a latching condition says: since when, status, reason, message. Empty for all other statements."""
    if event.source not in LATCHING or event.statement is not Statement.LEVEL or event.starts_at is None:
        return ""
    whole = event.detail.get("whole")  # of a text that the summary had to cut
    text = f"{event.starts_at.isoformat()} {event.summary}" + (f" {whole}" if whole else "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def still_says(event: HealthEvent, remedy: Remedy | None, now: datetime, proofs: Collection[Proof]) -> Proof | None:
    """The proof since which a latching condition has gone on saying what it said before, of what is mended."""
    said = said_by(event)
    if not said or remedy is None or event.kind is not Kind.FAULT or not event.covers:
        return None
    latest, heard_at = timedelta(seconds=remedy.latched_s), event.received_at or now
    for proof in proofs:
        if said in proof.said and heard_at <= (proof.since or proof.at) + latest:
            return proof if set(proof.covers).issuperset(event.covers) else None
    return None


def only_repeats(event: HealthEvent, said: str, said_at: datetime, remedy: Remedy | None, now: datetime) -> bool:
    """After the remedy's proof, while no check has judged it: a latching condition that says what it said before."""
    if remedy is None or remedy.proved_at is None or remedy.step == "probation" or not said or said != said_by(event):
        return False
    heard_at = event.received_at or now
    return said_at <= remedy.proved_at and heard_at <= remedy.proved_at + timedelta(seconds=remedy.latched_s)


def _mended(event: HealthEvent, proof: Proof, grace_s: float, heard_at: datetime) -> bool:
    """Also by an earlier remedy than the present one: its echoes don't end because another step has begun."""
    if event.statement is not Statement.LEVEL or event.starts_at is None or not event.covers:
        return False
    proved_at = proof.since or proof.at
    in_time = event.starts_at < proved_at and heard_at <= proved_at + timedelta(seconds=grace_s)
    return in_time and set(proof.covers).issuperset(event.covers)


def _from_before(event: HealthEvent, remedy: Remedy, proved_at: datetime, heard_at: datetime) -> bool:
    began_before = event.starts_at is not None and event.starts_at < proved_at
    if event.statement is Statement.LEVEL:
        # Still stated when the grace is over: it holds, whenever it began.
        return began_before and heard_at <= proved_at + timedelta(seconds=remedy.echo_grace_s)
    if event.boot_id and remedy.before.boot_id:
        if event.boot_id != remedy.before.boot_id:
            return False
        # A GPU reset keeps the boot id, so a time that says "after" is believed.
        return event.starts_at is None or began_before
    return began_before


def is_stale(event: HealthEvent, now: datetime, boot_ids: Collection[str]) -> bool:
    """An event of long ago by its own clock, unless it is of a boot that is known to be the present one."""
    if event.statement is not Statement.EDGE or event.kind is not Kind.FAULT or event.starts_at is None:
        return False
    if event.boot_id and event.boot_id in boot_ids:
        return False
    return (event.received_at or now) - event.starts_at > STALE_AFTER
