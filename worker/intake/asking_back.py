"""An Alertmanager is asked for the alerts that a webhook of it held back (`max_alerts`).

Of those only what the webhook itself would have said: alerts of its receiver and its group that are active. One that
somebody silenced there, or that another inhibits, was kept from us on purpose. What is resolved it no longer lists.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx

from activities.ports import NotAllowed
from medevac.events.alertmanager import VERSION
from medevac.events.parsing import Payload
from worker.intake.delivery import More
from worker.intake.poller import JSON, read_bounded
from worker.speakers import Alertmanager, Sender

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEPT = ("labels", "annotations", "startsAt", "fingerprint", "generatorURL")

Client = Callable[[Alertmanager], httpx.AsyncClient]


def asks_back(sender: Sender, client: Client | None = None) -> More | None:
    """How the alerts are had that this sender's webhooks held back; None where it isn't configured."""
    if sender.alertmanager is None:
        return None
    return partial(_more, sender.alertmanager, client or _client)


async def _more(there: Alertmanager, client: Client, webhook: Payload) -> Payload:
    """Raises `OSError` or `ValueError`."""
    said = json.loads(webhook.body)
    if said.get("version") != VERSION:
        raise ValueError("its webhook isn't Alertmanager's, so Alertmanager isn't asked")
    url = there.url.rstrip("/") + "/api/v2/alerts"
    try:
        headers, auth = _signed_in(there)
        async with client(there) as asking:
            body = await read_bounded(asking, url, params=question(said), headers=headers, auth=auth)
    except NotAllowed as error:
        raise OSError(f"{url} can't be asked: {error}") from error
    except httpx.HTTPError as error:
        why = (
            f"status {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else type(error).__name__
        )
        raise OSError(f"{url} does not answer: {why}") from error
    return Payload(json.dumps(as_webhook(json.loads(body), receiver_of(said))).encode(), JSON)


def question(webhook: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is asked for: no more than the webhook was about. Raises `ValueError` for one that names no receiver."""
    asked = [("active", "true"), ("silenced", "false"), ("inhibited", "false"), ("unprocessed", "false")]
    asked.append(("receiver", re.escape(receiver_of(webhook))))  # it is matched as a whole
    labels = webhook.get("groupLabels")
    for name, value in labels.items() if isinstance(labels, dict) else ():
        asked.append(("filter", f"{name if _BARE.fullmatch(name) else _quoted(name)}={_quoted(str(value))}"))
    return asked


def receiver_of(webhook: Mapping[str, Any]) -> str:
    receiver = webhook.get("receiver")
    if not isinstance(receiver, str) or not receiver:
        raise ValueError("the webhook names no receiver, so nobody knows whose alerts to ask for")
    return receiver


def as_webhook(alerts: Any, receiver: str) -> dict[str, Any]:
    """Active alerts of this receiver, as Alertmanager's API lists them, in the shape of its webhook. Raises
    `ValueError`."""
    if not isinstance(alerts, list):
        raise ValueError("Alertmanager's answer is no list of alerts")
    return {
        "version": VERSION,
        "groupKey": "asked",
        "status": "firing",
        "alerts": [
            {"status": "firing", **{key: alert[key] for key in KEPT if key in alert}}
            for alert in alerts
            if isinstance(alert, dict) and _is_meant(alert, receiver)
        ],
    }


def _is_meant(alert: Mapping[str, Any], receiver: str) -> bool:
    """Looked at here too: what stands between may answer without having understood the question."""
    status, receivers = alert.get("status"), alert.get("receivers")
    if not isinstance(status, dict) or status.get("state") != "active":
        return False
    return not isinstance(receivers, list) or {"name": receiver} in receivers


def _quoted(text: str) -> str:
    """As Alertmanager's matchers write it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _signed_in(there: Alertmanager) -> tuple[dict[str, str], httpx.BasicAuth | None]:
    """Headers and credentials, read anew each time. Raises `NotAllowed`."""
    if there.bearer is not None:
        return {"Authorization": f"Bearer {there.bearer.value()}"}, None
    if there.basic is not None:
        return {}, httpx.BasicAuth(there.basic.user, there.basic.password.value())
    return {}, None


def _client(there: Alertmanager) -> httpx.AsyncClient:
    """Raises `OSError`."""
    return httpx.AsyncClient(verify=ssl.create_default_context(cafile=str(there.ca.expanduser())) if there.ca else True)
