"""Opsgenie (and Jira Service Management's alerts, where they keep its API): one alert for each alias."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from activities.paging.http import ASKED, PagerOptions, client, secret_of, send
from activities.ports import Page
from activities.secret import SafeUrl, Secret

MAX_MESSAGE = 130
MAX_TEXT = 15_000
Priority = Literal["P1", "P2", "P3", "P4", "P5"]


class Options(PagerOptions):
    api_key: Secret
    """Of an API integration that may create and update."""
    url: SafeUrl = "https://api.opsgenie.com"
    """EU accounts: `https://api.eu.opsgenie.com`."""
    critical: Priority = "P1"
    warning: Priority = "P3"


class Opsgenie:
    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.simulated = options.drill
        self._options = options
        self._http = client(options)

    def page(self, page: Page) -> None:
        body = {
            "message": page.title[:MAX_MESSAGE],
            "alias": page.key,
            "description": f"{page.title}\n\n{page.text}"[:MAX_TEXT],
            "entity": page.source[:512],
            "source": "medevac",
            "tags": ["medevac"],
            "priority": self._options.critical if page.severity == "critical" else self._options.warning,
        }
        self._send("", body)

    def resolve(self, page: Page) -> None:
        # Answered 202 whether or not such an alert is open.
        self._send(f"/{quote(page.key, safe='')}/close?identifierType=alias", {"source": "medevac"})

    def ask(self) -> str:
        self.resolve(Page(key=ASKED, title="", source="medevac"))
        return (
            "key accepted, by closing an alert that isn't there; whom an alert wakes it doesn't say: create one by hand"
            " at the integration's team, with priority P5, and look where it arrives"
        )

    def _send(self, where: str, body: dict[str, Any]) -> None:
        key = secret_of(self.name, self._options.api_key)
        url = f"{self._options.url.rstrip('/')}/v2/alerts{where}"
        send(self.name, self._http, url, body, {"Authorization": f"GenieKey {key}"}, key)


def make(name: str, options: dict[str, Any]) -> Opsgenie:
    return Opsgenie(name, Options.model_validate(options))
