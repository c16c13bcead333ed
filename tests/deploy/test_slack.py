"""The Slack app's manifest asks for what the code needs and no more; the page's configuration is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from activities.chat.options import SlackOptions
from tests.deploy.compose import ROOT
from worker.config import Person
from worker.gateway.slack import router

MANIFEST: dict[str, Any] = YAML(typ="safe").load(ROOT / "deploy" / "slack" / "manifest.yaml")
NEEDS = {
    "chat.postMessage": {"chat:write"},
    "chat.update": {"chat:write"},
    "chat.postEphemeral": {"chat:write"},
    "conversations.history": {"channels:history", "groups:history"},
    "conversations.replies": {"channels:history", "groups:history"},
    "auth.test": set(),
    "views.open": set(),
    "views.update": set(),
}
"""Scopes of a bot's token by method, from Slack's reference."""


def test_the_manifest_asks_for_the_scopes_of_the_methods_that_are_called() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "activities" / "chat").glob("slack*.py"))
    called = set(re.findall(r'"((?:auth|chat|views|conversations|users|usergroups)\.[a-zA-Z.]+)"', source))
    assert called == set(NEEDS)
    needed = {"commands"}.union(*(NEEDS[method] for method in called))
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == needed
    assert "user" not in MANIFEST["oauth_config"]["scopes"]


def test_its_urls_are_the_gateways_routes() -> None:
    paths = {route.path for route in router.routes if hasattr(route, "path")}
    urls = [MANIFEST["settings"]["interactivity"]["request_url"], MANIFEST["features"]["slash_commands"][0]["url"]]
    assert {re.sub(r"https://[^/]+", "", url) for url in urls} == paths
    assert "event_subscriptions" not in MANIFEST["settings"]


def test_the_pages_configuration_is_one() -> None:
    page = (ROOT / "docs" / "slack.md").read_text(encoding="utf-8")
    [snippet] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    given = YAML(typ="safe").load(snippet)
    options = SlackOptions.model_validate(given["chat"]["options"])
    assert options.app_token is None
    assert options.drill is False
    [person] = given["people"]
    assert Person.model_validate(person).slack is not None
    with pytest.raises(ValueError, match="drills"):
        SlackOptions.model_validate(given["chat"]["options"] | {"drills": True})
