"""Our mark on a node: one write that takes all of it or nothing, and lifting that takes away only what is ours."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from activities.kubernetes import dead, nodes, others
from activities.kubernetes.client import FIELD_MANAGER, MERGE, Client, Object, url
from activities.kubernetes.names import MARK, REQUEUING, TAINT
from activities.kubernetes.nodes import Before, Marked
from activities.ports import Mark, NotSent, Unreadable

Written = Literal["done", "already"]
TRIES = 6
"""Others write to a node too (its kubelet, controllers); who loses a race reads again."""
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def mark(client: Client, name: str, wanted: Mark, known: Object | None = None) -> Written:
    """`known`: the node as read a moment ago; where it is another by now, nothing is written and it is read anew."""
    if not _VALUE.fullmatch(wanted.code):
        raise NotSent(f"{wanted.code!r} can't be a taint's value: at most 63 of A-Z a-z 0-9 . _ -", final=True)
    if (
        known is not None
        and nodes.marked(known) is None
        and _patched(client, name, known, marking(known, None, wanted))
    ):
        return "done"
    for attempt in range(TRIES):
        node = _read(client, name)
        if node is None:
            raise NotSent(f"node {name} doesn't exist", final=True)
        found = nodes.marked(node)
        if found is not None and found.incident not in (wanted.incident, wanted.instead_of):
            raise NotSent(f"node {name} carries the mark of {found.incident}", final=True)
        if found is not None and found.incident != wanted.incident and not nodes.unschedulable(node):
            found = None  # Who uncordoned it said no to an incident that is over: marked as if it were bare.
        if found is not None and not nodes.unschedulable(node):
            raise NotSent(f"node {name} was uncordoned by someone, which is a veto", final=True)
        if found is not None and _says(node, found, wanted):
            return "already"
        if _patched(client, name, node, marking(node, found, wanted)):
            return "done"
        _yield(attempt)
    raise NotSent(f"node {name} was written by others {TRIES} times in between", retry_after_s=1.0)


def lift(
    client: Client, name: str, incident: str, first: Callable[[Object], bool], known: Object | None = None
) -> Written:
    """`first` is done with the node as read, while it is still ours; False where it has written to it.

    `known` as for `mark`; not where something was stopped for it, which is undone by a fresh read only.
    """
    if known is not None and (REQUEUING in nodes.notes(known) or not _is_of(known, incident)):
        known = None
    for attempt in range(TRIES):
        node = known or _read(client, name)
        known = None
        found = nodes.marked(node) if node is not None else None
        if node is None or found is None or found.incident != incident:
            return "already"
        if first(node) and _patched(client, name, node, lifting(node, found)):
            return "done"
        _yield(attempt)
    raise NotSent(f"node {name} was written by others {TRIES} times in between", retry_after_s=1.0)


def _is_of(node: Object, incident: str) -> bool:
    found = nodes.marked(node)
    return found is not None and found.incident == incident


def marking(node: Object, found: Marked | None, wanted: Mark) -> Object:
    """The patch that sets our mark and leaves all others' taints as they were read."""
    cordoned = nodes.unschedulable(node)
    before = found.before if found else Before(unschedulable=cordoned, cordoned_by=_who(node) if cordoned else "")
    text = Marked(
        incident=wanted.incident,
        code=wanted.code,
        faults=wanted.faults,
        reason=wanted.reason,
        since=found.since if found else datetime.now(UTC).isoformat(timespec="seconds"),
        before=before,
    )
    taint = {"key": TAINT, "value": wanted.code, "effect": "NoSchedule"}
    return {
        "metadata": {
            "annotations": {MARK: json.dumps(text.model_dump(mode="json"), ensure_ascii=False)},
            "labels": {TAINT: wanted.code},
        },
        "spec": {"unschedulable": True, "taints": [*_others(node), taint]},
    }


def lifting(node: Object, found: Marked) -> Object:
    """The patch that takes our mark away. A cordon that was there before, or that someone else has set since, stays."""
    kept, freed = dead.withdrawn(node)
    spec: Object = {"taints": [taint for taint in kept if not nodes.ours(taint)] or None}
    theirs = found.before.unschedulable or others.cordons(node)
    if not theirs and nodes.cordoned_by(node) in ("", FIELD_MANAGER):
        spec["unschedulable"] = None
    return {"metadata": {"annotations": {MARK: None, REQUEUING: None, **freed}, "labels": {TAINT: None}}, "spec": spec}


def _says(node: Object, found: Marked, wanted: Mark) -> bool:
    """The mark stands whole, and as it is wanted."""
    same = (found.incident, found.code, found.faults, found.reason) == (
        wanted.incident,
        wanted.code,
        wanted.faults,
        wanted.reason,
    )
    tainted = any(nodes.ours(taint) and taint.get("value") == wanted.code for taint in nodes.taints(node))
    return same and tainted and nodes.labels(node).get(TAINT) == wanted.code


def _others(node: Object) -> list[Object]:
    return [taint for taint in nodes.taints(node) if not nodes.ours(taint)]


def _who(node: Object) -> str:
    by = others.keeper(node) or nodes.cordoned_by(node)
    return by if by != FIELD_MANAGER else "medevac (a mark that was taken away)"


def _read(client: Client, name: str) -> Object | None:
    try:
        return client.get(url("api", "v1", "nodes", name))
    except Unreadable as error:
        # Nothing was written: the caller may simply ask again.
        raise NotSent(f"node {name} can't be read: {error}", retry_after_s=1.0) from None


def _patched(client: Client, name: str, node: Object, patch: Object) -> bool:
    """False where someone wrote in between. The taints are replaced as a whole, so this lock is what saves others'."""
    patch["metadata"]["resourceVersion"] = nodes.metadata(node)["resourceVersion"]
    answer = client.write("PATCH", url("api", "v1", "nodes", name), patch, MERGE)
    if answer.ok:
        return True
    if answer.code == 409:
        return False
    raise answer.error()


def _yield(attempt: int) -> None:
    time.sleep(random.uniform(0.0, 0.02 * 2**attempt))  # noqa: S311 - so that two writers don't meet again
