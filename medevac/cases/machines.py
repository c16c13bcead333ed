"""What the machines of a case show: which are proved, and which incidents are to verify theirs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from medevac.cases.case import Case, Known, Subject
from medevac.cases.parts import Part, changes
from medevac.cases.replies import Proposal
from medevac.incident import End, State
from medevac.model import Model

VERIFIES_WITHIN = timedelta(minutes=10)
"""An incident that was asked to verify, and waits for people again after this, has seen its check fail."""
WAITS_FOR_THE_MACHINE = frozenset({State.HANDED_OVER, State.HELD, State.OBSERVED})
"""Incident states in which what happens to the machine isn't our own doing."""
STILL_BAD = "We have checked the machine as it is now, and the fault is still there."


class Seen(Model):
    """One subject's incident and machine as they are now."""

    incident_state: State | None = None
    end: End | None = None
    now: Known | None = None
    """None where the node can't be read, or is gone."""
    parts: tuple[Part, ...] = ()
    """Of the machine as it is now, as far as they are known."""


class Confirm(Model):
    """An incident that is to verify its machine; it is returned only if the check passes."""

    incident: str
    key: str
    why: str


def look(case: Case, seen: Callable[[Subject], Seen | None], now: datetime) -> tuple[Case, list[Confirm]]:
    """Facts about every machine of it. None = can't be read now, nothing is concluded."""
    confirms: list[Confirm] = []
    subjects: list[Subject] = []
    news = False
    withdrawn: list[str] = []
    for subject in case.subjects:
        found = None if subject.proof else seen(subject)
        if found is None:
            subjects.append(subject)
            continue
        proof = _proof(subject, found)
        confirm = None if proof else _confirm(subject, found, _claimed(case, subject))
        changes: dict[str, object] = {"proof": proof}
        if found.end is End.WITHDRAWN and not subject.withdrawn:
            changes["withdrawn"] = True
            withdrawn.append(subject.incident)
        if confirm:
            confirms.append(confirm)
        elif not proof and _still_bad(subject, found, now):
            changes["failed_for"] = subject.asked_for
            news = True
        subjects.append(subject.model_copy(update=changes))
    changed = tuple(subjects)
    if changed != case.subjects:
        case = case.model_copy(update={"subjects": changed, "updated_at": now})
    for incident in withdrawn:
        what = f"{incident} ended without a check; `medevac case close {case.id}` if the ticket isn't wanted any more"
        case = case.saying(f"{case.id}: {what}")
    return (case.commenting(STILL_BAD) if news else case), confirms


def _claimed(case: Case, subject: Subject) -> bool:
    """Whether the other side says that it is done: by its newest word, as a later one may take back an earlier, and
    since the last time that a check found otherwise."""
    since = subject.asked_at
    words = [heard for heard in case.heard if heard.proposal is not Proposal.NOTHING]
    newest = max(words, key=lambda heard: heard.at, default=None)
    return case.over_there or (
        newest is not None and newest.proposal.claims_done and (since is None or newest.at > since)
    )


def asked(case: Case, confirm: Confirm, now: datetime) -> Case:
    """The incident has been asked to verify; what it says of it comes with its end."""
    subjects = tuple(
        one.model_copy(update={"asked_for": confirm.key, "asked_at": now}) if one.incident == confirm.incident else one
        for one in case.subjects
    )
    return case.model_copy(update={"subjects": subjects, "updated_at": now}).saying(
        f"{case.id}: {confirm.why}; {confirm.incident} checks it before it returns"
    )


def _still_bad(subject: Subject, seen: Seen, now: datetime) -> bool:
    waits = seen.end is None and seen.incident_state is State.HANDED_OVER
    asked_long_ago = subject.asked_at is not None and now - subject.asked_at >= VERIFIES_WITHIN
    return waits and asked_long_ago and subject.asked_for != subject.failed_for


def _proof(subject: Subject, seen: Seen) -> str:
    """Only what the incident itself has verified, or a machine that is gone."""
    other = changed(subject, seen)
    match seen.end:
        case End.RETURNED:
            return f"{other}; a check has passed" if other else "a check has passed and it is back in service"
        case End.REPLACED:
            return f"replaced by another machine, a check has passed{f' ({other})' if other else ''}"
        case End.DISPOSED:
            return "the machine is gone"
        case _:
            return ""


def changed(subject: Subject, seen: Seen) -> str:
    """What stands there now in place of what was sent back, in words; empty where nothing is known to have changed."""
    if seen.now is None:
        return ""
    other = subject.was.other_machine(seen.now)
    return "; ".join(filter(None, (other, *changes(subject.parts, seen.parts))))


def _confirm(subject: Subject, seen: Seen, claimed: bool) -> Confirm | None:
    """Another machine under its name is to be checked. Another boot of the same one only where the other side says
    that it is done: a technician may be at it."""
    if seen.incident_state not in WAITS_FOR_THE_MACHINE or seen.now is None or seen.end is not None:
        return None
    why = subject.was.other_machine(seen.now)
    if not why and claimed and subject.was.other_boot(seen.now):
        why = "it was booted again, and the provider says that it is done"
    key = f"{seen.now.machine_id}/{seen.now.serial or ''}/{seen.now.boot_id or ''}"
    return Confirm(incident=subject.incident, key=key, why=why) if why and key != subject.asked_for else None
