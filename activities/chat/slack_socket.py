"""Socket Mode: Slack's requests over a connection that we open, where Slack can't reach the gateway."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from slack_sdk import WebClient
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

log = logging.getLogger(__name__)

Hear = Callable[[str, str, Mapping[str, Any]], None]
"""Kind (`interactive`, `slash_commands`), envelope, payload; called on threads, must not block."""


class SlackSocket:
    """The connection is signed in by the app's own token, so what comes over it carries no signature."""

    def __init__(self, app_token: str, base: str, hear: Hear) -> None:
        self._client = SocketModeClient(app_token, web_client=WebClient(base_url=base), logger=log, concurrency=4)
        self._client.socket_mode_request_listeners.append(self._listen)
        self._hear = hear

    def open(self) -> None:
        """Connects, and again whenever the connection is lost. Blocking until it stands; raises what the SDK raises."""
        self._client.connect()

    def close(self) -> None:
        self._client.close()

    def _listen(self, client: BaseSocketModeClient, request: SocketModeRequest) -> None:
        # At once: Slack waits three seconds, and sends it again to another connection after that.
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        if request.type in ("interactive", "slash_commands"):
            self._hear(request.type, request.envelope_id, request.payload)
