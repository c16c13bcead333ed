"""Every other notifier (ntfy, Teams, Matrix, SMS gateways, …), through Apprise. They know no deduplication.

An Apprise address holds its secrets, so it stands in a file or variable.
"""

from __future__ import annotations

from typing import Any

from activities.paging.http import PagerOptions, secret_of
from activities.ports import Page, Unclear
from activities.registry import ConfigurationError
from activities.secret import Secret


class Options(PagerOptions):
    url: Secret
    """One Apprise address: `ntfys://...`, `msteams://...`. Another address is another pager."""


class Apprise:
    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.simulated = options.drill
        self._options = options
        try:
            import apprise
        except ImportError:
            raise ConfigurationError(f"pager {name}: needs the extra `notify`: pip install 'medevac[notify]'") from None
        self._apprise = apprise
        if self._to() is None:
            raise ConfigurationError(f"pager {name}: its address is none that Apprise knows")

    def page(self, page: Page) -> None:
        kind = "failure" if page.severity == "critical" else "warning"
        self._tell(page.title, page.text or page.title, kind)

    def resolve(self, page: Page) -> None:
        self._tell(f"resolved: {page.title}", "This doesn't need anybody any more.", "success")

    def ask(self) -> str:
        return (
            "its address can be read, and nothing was sent, as every message to it wakes somebody: try it by hand, with"
            " `apprise -t test -b test ADDRESS`"
        )

    def _to(self) -> Any:
        made = self._apprise.Apprise.instantiate(secret_of(self.name, self._options.url), suppress_exceptions=True)
        if made is not None:
            made.socket_connect_timeout = made.socket_read_timeout = self._options.timeout_s
        return made

    def _tell(self, title: str, text: str, kind: str) -> None:
        to = self._to()
        # It doesn't say why, nor whether the message went out.
        if to is None or not to.notify(title=title, body=text, notify_type=kind):
            raise Unclear(f"pager {self.name}: its address did not take the message")


def make(name: str, options: dict[str, Any]) -> Apprise:
    return Apprise(name, Options.model_validate(options))
