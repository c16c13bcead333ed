"""Eviction of one pod, and only of that one: its UID goes along, and every refusal is told by its cause."""

from __future__ import annotations

import math

from activities.kubernetes import pods
from activities.kubernetes.client import Answer, Client, Object
from activities.kubernetes.nodes import metadata
from activities.last_look import last_look
from activities.ports import Eviction, NotSent, Pod, Unclear, Unreadable

TERMINATING_RETRY_S = 5.0
AGAIN_S = 1.0


def evict(client: Client, pod: Pod, grace_s: float) -> Eviction:
    body: Object = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": _options(pod, grace_s),
    }
    last_look()
    try:
        answer = client.write("POST", pods.path(pod, "eviction"), body)
    except Unclear as error:
        return _look(client, pod, str(error))
    return Eviction.EVICTED if answer.ok else _refused(client, pod, answer)


def delete(client: Client, pod: Pod, grace_s: float) -> Eviction:
    """Goes around disruption budgets."""
    body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(pod, grace_s)}
    last_look()
    try:
        answer = client.write("DELETE", pods.path(pod), body)
    except Unclear as error:
        return _look(client, pod, str(error))
    return Eviction.EVICTED if answer.ok else _refused(client, pod, answer)


def _options(pod: Pod, grace_s: float) -> Object:
    """The pod's own grace unless less is allowed; never longer than the pod asked for."""
    grace = min(grace_s, pod.grace_s) if pod.grace_s is not None else grace_s
    return {"gracePeriodSeconds": max(0, math.ceil(grace)), "preconditions": {"uid": pod.uid}}


def _refused(client: Client, pod: Pod, answer: Answer) -> Eviction:
    said = answer.message
    if answer.code == 404:
        if answer.details.get("kind") == "pods" or answer.details.get("name") == pod.name:
            return Eviction.GONE
        raise NotSent(f"this cluster has no Eviction API (policy/v1): {said}", final=True)
    if answer.code == 429 and "DisruptionBudget" in answer.causes:
        if "still being processed" in answer.causes["DisruptionBudget"]:
            # A new or changed budget that its controller hasn't looked at yet: not a refusal.
            wait_s = answer.retry_after_s or float(answer.details.get("retryAfterSeconds") or AGAIN_S)
            raise NotSent(f"{pod.budget or 'a disruption budget'} is still being processed", retry_after_s=wait_s)
        return Eviction.BUDGET
    if answer.code == 403 and answer.details.get("kind") == "poddisruptionbudget":
        return Eviction.BUDGET  # its allowance is negative, or too many disrupted pods are on its list
    if answer.code == 403 and "NamespaceTerminating" in answer.causes:
        return _look(client, pod, f"namespace {pod.namespace} is being deleted", TERMINATING_RETRY_S)
    if answer.code == 500 and "more than one PodDisruptionBudget" in said:
        return Eviction.BUDGET  # no eviction can satisfy two of them; `Pod.budget` names both
    if answer.code == 409 or answer.code >= 500:
        return _look(client, pod, said)
    error = answer.error()
    if isinstance(error, NotSent) and error.final:
        # An admission policy's word, in whatever code it chose: it may change its mind, and people can read it.
        raise NotSent(str(error))
    raise error


def _look(client: Client, pod: Pod, said: str, retry_s: float = AGAIN_S) -> Eviction:
    """What became of the pod, where the answer doesn't tell. With its UID along, evicting it again is harmless."""
    try:
        found = client.get(pods.path(pod))
    except Unreadable as error:
        raise NotSent(f"{said}; and the pod can't be read: {error}", retry_after_s=retry_s) from None
    if found is None or metadata(found)["uid"] != pod.uid:
        return Eviction.GONE
    if "deletionTimestamp" in metadata(found):
        return Eviction.EVICTED
    raise NotSent(said, retry_after_s=retry_s)
