"""The notice on a pod: given, taken back, and answered. An answer counts for the notice that it was given to.

What a pod has said before is taken away in the write that gives the notice, so a plain `true` beside a notice was said
after it. Nothing takes one away from the workload, nor from pods of a gang elsewhere: there only the notice's own time
is an answer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities.kubernetes import pods
from activities.kubernetes.client import FIELD_MANAGER, MERGE, Client, Object
from activities.kubernetes.names import EVACUATE_BY, READY_TO_EVICT
from activities.kubernetes.nodes import metadata, notes
from activities.kubernetes.options import Options
from activities.ports import NotSent, Unclear, Unreadable

STANDS = timedelta(minutes=10)
"""After its time: a drain ends soon after it. What is older was left by one that could not take it back."""
TRIES = 5
"""The job writes to its pod too; who loses a race reads again."""


def give(client: Client, node: str, by: datetime, options: Options) -> list[str]:
    """Each pod that will be evicted is told; those that can't be told, in words. Raises `Unreadable`."""
    text, failed = _written(by), list[str]()
    for thing in pods.on_node(client, node):
        pod = pods.read(thing, "", {}, options)
        if pod.tier != "workload" or pod.terminating or notes(thing).get(EVACUATE_BY) == text:
            continue
        # With its UID: a successor of its name elsewhere is told nothing.
        patch = {"metadata": {"uid": pod.uid, "annotations": {EVACUATE_BY: text, READY_TO_EVICT: None}}}
        try:
            answer = client.write("PATCH", pods.path(pod), patch, MERGE)
        except (NotSent, Unclear) as error:
            failed.append(f"{pod.namespace}/{pod.name}: {error}")
            continue
        if not answer.ok and answer.code not in (404, 409):
            failed.append(f"{pod.namespace}/{pod.name}: {answer.message}")
    return failed


def take_back(client: Client, node: str, by: datetime | None, options: Options) -> list[str]:
    """From the pods that stay, with what they answered: the notice for `by`, or any of ours. Those from which it can't
    be taken, in words. Raises `Unreadable`.
    """
    failed = list[str]()
    for thing in pods.on_node(client, node):
        try:
            _taken_back(client, thing, None if by is None else _written(by), options)
        except (NotSent, Unclear, Unreadable) as error:
            failed.append(f"{metadata(thing)['namespace']}/{metadata(thing)['name']}: {error}")
    return failed


def _taken_back(client: Client, thing: Object, text: str | None, options: Options) -> None:
    for _ in range(TRIES):
        pod = pods.read(thing, "", {}, options)
        if pod.terminating or not _is_ours(thing, text):
            return
        # By its version: a notice that another drain has given meanwhile stands.
        patch = {
            "metadata": {
                "uid": pod.uid,
                "resourceVersion": metadata(thing)["resourceVersion"],
                "annotations": {EVACUATE_BY: None, READY_TO_EVICT: None},
            }
        }
        answer = client.write("PATCH", pods.path(pod), patch, MERGE)
        if answer.ok or answer.code == 404:
            return
        if answer.code != 409:
            raise answer.error()
        found = client.get(pods.path(pod))
        if found is None or metadata(found).get("uid") != pod.uid:
            return
        thing = found
    raise NotSent(f"written by others {TRIES} times in between")


def _is_ours(thing: Object, text: str | None) -> bool:
    said = notes(thing).get(EVACUATE_BY)
    return said is not None and text in (None, said) and _writer(thing) in ("", FIELD_MANAGER)


def _writer(thing: Object) -> str:
    """Who set the notice as it stands, as the API server keeps it; empty where nobody says."""
    for entry in metadata(thing).get("managedFields") or ():
        if f"f:{EVACUATE_BY}" in (entry.get("fieldsV1") or {}).get("f:metadata", {}).get("f:annotations", {}):
            return str(entry.get("manager", ""))
    return ""


def answered(workload: Object | None, members: list[Object], now: datetime) -> bool:
    """Whether the workload, or each of its pods, has answered a notice that stands on one of them."""
    standing = {by for pod in members if (by := _notice(pod, now)) is not None}
    if not standing:
        return False
    return _moment(notes(workload or {}).get(READY_TO_EVICT)) in standing or all(
        (notes(pod).get(READY_TO_EVICT) == "true" and _notice(pod, now) is not None)
        or _moment(notes(pod).get(READY_TO_EVICT)) in standing
        for pod in members
    )


def _notice(pod: Object, now: datetime) -> datetime | None:
    by = _moment(notes(pod).get(EVACUATE_BY))
    return by if by is not None and now < by + STANDS else None


def _moment(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _written(by: datetime) -> str:
    return by.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
