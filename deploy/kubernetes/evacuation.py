"""For training scripts: when this pod will be evicted, and what medevac may know of its checkpoints.

Copy this file beside the script; it needs nothing but Python. In the training loop:

    import evacuation

    asked = evacuation.due()                  # when, if someone wants the node
    if asked or step % every == 0:
        save_checkpoint()
        evacuation.checkpointed()             # complete, on storage that outlives the node
        if asked:
            evacuation.ready(asked)           # nothing is lost if this pod goes now

Say `checkpointed()` after every checkpoint, not only when somebody wants the node: a critical fault leaves a job that
has told of one half of the drain's time (7.5 min as shipped), any other that mounts its annotations at most three
minutes, of which the notice may take one to arrive. It is also what voters are shown as the loss.

The pod's manifest mounts its own annotations, and its account may patch pods in its namespace (docs/kubernetes.md):

    volumes: [{name: podinfo, downwardAPI: {items: [{path: annotations, fieldRef: {fieldPath: metadata.annotations}}]}}]
    volumeMounts: [{name: podinfo, mountPath: /etc/podinfo}]
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

PODINFO = Path("/etc/podinfo/annotations")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 5.0
PAST_S = 600.0
"""So long after its time a notice still stands: older ones were left by somebody who could not take them back."""


def due(podinfo: Path = PODINFO) -> datetime | None:
    """When this pod will be evicted; None while nobody wants it to go. A small file is read, no call is made.

    The kubelet brings the file up to date about once a minute, also when the notice is taken back.
    """
    try:
        lines = podinfo.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name == "medevac.dev/evacuate-by":
            # Before Python 3.11 fromisoformat doesn't know the Z.
            by = datetime.fromisoformat(json.loads(value).replace("Z", "+00:00"))
            return by if time.time() < by.timestamp() + PAST_S else None
    return None


def checkpointed(at: datetime | None = None, account: Path = ACCOUNT) -> None:
    """The last *complete* checkpoint was taken at `at` (now). Only who knows that it is complete may say so."""
    at = at or datetime.now(timezone.utc)  # noqa: UP017 - scripts may run on an older Python than medevac
    if at.tzinfo is None:
        raise ValueError("the checkpoint's time has no zone; give it one, e.g. timezone.utc")
    _say(account, "medevac.dev/checkpointed-at", at.isoformat(timespec="seconds"))


def ready(
    notice: datetime | None = None, account: Path = ACCOUNT, podinfo: Path = PODINFO, *, yes: bool = True
) -> None:
    """Nothing is lost if this pod goes now; `yes=False` takes it back.

    It answers `notice`, as `due` gave it, and no other; None = the one that this pod carries, and nothing is said where
    it carries none. Pods of a gang on other nodes carry none: hand them the notice of the one that does.
    """
    answer = notice or due(podinfo)
    if yes and answer is None:
        return
    _say(account, "medevac.dev/ready-to-evict", answer.isoformat() if yes and answer else None)


def _say(account: Path, name: str, value: str | None) -> None:
    """On this very pod. Raises `OSError` when the API server can't be reached or doesn't allow it."""
    namespace, token = ((account / part).read_text(encoding="utf-8").strip() for part in ("namespace", "token"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    pod = os.environ.get("POD_NAME") or socket.gethostname()
    request = urllib.request.Request(
        f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/namespaces/{namespace}/pods/{pod}",
        method="PATCH",
        data=json.dumps({"metadata": {"annotations": {name: value}}}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
    )
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    # The cluster's own address: never by a proxy.
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S):
        pass
