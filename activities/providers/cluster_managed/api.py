"""The owning API: objects are read with one meaning for each answer, and changed only as the ones that were read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from activities.kubernetes.client import MERGE, Answer, Client, Forbidden, Object, url
from activities.kubernetes.nodes import conditions, metadata
from activities.kubernetes.options import Options
from activities.last_look import last_look
from activities.ports import NotAllowed, NotSent
from activities.recent import Recent
from medevac.fleet.node import Node

INCIDENT = "medevac.dev/incident"
"""Annotation of what was made for an incident."""
LISTED_S = 5.0
"""How old a listing may be, of those that proofs go by."""


class Api:
    """Thread-safe. `kubeconfig` may be that of a management cluster."""

    def __init__(self, options: Options) -> None:
        self.client = Client(options)
        self._listed = Recent[list[Object]](LISTED_S)
        self._versions: dict[str, str] = {}

    def version(self, group: str) -> str:
        """That which the API server prefers. Raises `Unreadable`, as `NotAllowed` where it has no such API."""
        if group not in self._versions:
            found = self.get(url("apis", group))
            if found is None:
                raise NotAllowed(f"{group} isn't served by this cluster: is it the one that owns the machines?")
            self._versions[group] = str(found["preferredVersion"]["version"])
        return self._versions[group]

    def path(self, group: str, plural: str, name: str = "", namespace: str = "") -> str:
        """Raises `Unreadable`."""
        place = ("namespaces", namespace) if namespace else ()
        return url("apis", group, self.version(group), *place, plural, *((name,) if name else ()))

    def get(self, path: str) -> Object | None:
        """Raises `Unreadable`."""
        try:
            return self.client.get(path)
        except Forbidden as error:
            raise NotAllowed(str(error)) from None

    def listed(self, path: str) -> list[Object]:
        """Raises `Unreadable`."""
        found = self._listed.get(path)
        return self._listed.ask(lambda: self._all(path), path) if found is None else found

    def _all(self, path: str) -> list[Object]:
        try:
            return list(self.client.list(path))
        except Forbidden as error:
            raise NotAllowed(str(error)) from None

    # -- writing -----------------------------------------------------------------------------------------------

    def create(self, path: str, thing: Object) -> bool:
        """False where one of its name is there already. Raises `NotSent` or `Unclear`."""
        last_look()
        answer = self.client.write("POST", path, thing)
        if answer.code == 409:
            return False
        _accepted(answer)
        return True

    def annotate(self, path: str, thing: Object, notes: Mapping[str, str]) -> None:
        """Only the object that was read: another one of its name is told nothing. Raises `NotSent` or `Unclear`."""
        patch = {"metadata": {"uid": metadata(thing)["uid"], "annotations": dict(notes)}}
        last_look()
        _accepted(self.client.write("PATCH", path, patch, MERGE))

    def delete(self, path: str, thing: Object) -> str:
        """What became of it, in words. Raises `NotSent` or `Unclear`."""
        name = metadata(thing)["name"]
        if ending(thing):
            return f"{name} is being deleted already"
        options = {
            "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": metadata(thing)["uid"]},
        }  # fmt: skip
        last_look()
        answer = self.client.write("DELETE", path, options)
        if answer.code == 404:
            return f"{name} is gone already"
        if answer.code == 409:
            raise NotSent(f"{name} is another one by now", final=True)
        _accepted(answer)
        return f"{name} is deleted"


def _accepted(answer: Answer) -> None:
    if answer.ok:
        return
    error = answer.error()
    if answer.code == 403 and isinstance(error, NotSent) and "denied" not in answer.message:
        # A right that is missing: a person must give it.
        raise NotSent(str(error), final=True)
    raise error


def ending(thing: Object) -> bool:
    return "deletionTimestamp" in metadata(thing)


def is_true(thing: Object, condition: str) -> bool:
    return conditions(thing).get(condition, {}).get("status") == "True"


def name_of(node: Node, tag: str) -> str:
    """Of what is asked for: the same for the same incident and machine, and fit for a name."""
    digest = hashlib.sha256("\0".join((tag, node.machine.id)).encode()).hexdigest()
    return f"medevac-{digest[:16]}"
