"""PagerDuty by its Events API v2: one integration key of a service, one incident for each deduplication key."""

from __future__ import annotations

from typing import Any

from activities.paging.http import ASKED, PagerOptions, client, secret_of, send
from activities.ports import Page
from activities.secret import SafeUrl, Secret

MAX_SUMMARY = 1_024
MAX_TEXT = 8_000


class Options(PagerOptions):
    routing_key: Secret
    """The integration key of an "Events API v2" integration."""
    url: SafeUrl = "https://events.pagerduty.com"
    """EU accounts: `https://events.eu.pagerduty.com`."""


class PagerDuty:
    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.simulated = options.drill
        self._options = options
        self._http = client(options)

    def page(self, page: Page) -> None:
        shown = {
            "summary": page.title[:MAX_SUMMARY],
            "source": page.source,
            "severity": page.severity,
            "custom_details": {"text": page.text[:MAX_TEXT]},
        }
        self._send("trigger", page, payload=shown, client="medevac")

    def resolve(self, page: Page) -> None:
        self._send("resolve", page)

    def ask(self) -> str:
        self._send("resolve", Page(key=ASKED, title="", source="medevac"))
        return (
            "took an event that wakes nobody, so its key is one; of which service, and whom that wakes, it doesn't say:"
            " try by hand, with a `trigger` sent to /v2/enqueue by curl, and look where it arrives"
        )

    def _send(self, action: str, page: Page, **more: Any) -> None:
        key = secret_of(self.name, self._options.routing_key)
        body = {"routing_key": key, "event_action": action, "dedup_key": page.key, **more}
        send(self.name, self._http, f"{self._options.url.rstrip('/')}/v2/enqueue", body, {}, key)


def make(name: str, options: dict[str, Any]) -> PagerDuty:
    return PagerDuty(name, Options.model_validate(options))
