"""`medevac case`, over the gateway's own routes."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from medevac.cases import course
from medevac.cases.case import CaseState, Heard
from medevac.cases.replies import Proposal
from tests.unit.worker.conftest import bearer
from tests.unit.worker.test_cases import KEY, NOW, case, now, put
from worker.cli import case as commands
from worker.cli.app import run
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores


class Api:
    def __init__(self, services: Services) -> None:
        self._transport = httpx.ASGITransport(app=create_app(services))

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        async def ask() -> Any:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://gateway") as client:
                answer = await client.request(method, path, headers=bearer("otto-token"), **given)
                return answer.raise_for_status().json()

        return asyncio.run(ask())

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, params={name: value for name, value in query.items() if value is not None})

    def post(self, path: str, body: Any, patience: Any = None) -> Any:
        return self._ask("POST", path, json=body)


@pytest.fixture(autouse=True)
def api(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(services)
    monkeypatch.setattr(commands, "_api", lambda: api)


def test_a_case_is_listed_shown_answered_and_closed(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    due = NOW - timedelta(days=2)
    put(stores, case(due_at=due))
    assert run(["case", "list"]) == 0
    assert run(["case", "show", KEY]) == 0
    assert capsys.readouterr().out.count(f"{due:%Y-%m-%d %H:%M} UTC") == 2, "it is overdue"
    reply = Heard(id="r", at=NOW, author="support", text="t", proposal=Proposal.REPLACED, quote="was replaced")
    stores.cases.change(KEY, lambda one: course.hear(one, [reply], NOW), NOW)
    assert run(["case", "list"]) == 0
    assert run(["case", "show", KEY]) == 0
    said = capsys.readouterr().out
    for words in (KEY, "T-1", "xid/79 on m-1", "Machine: m-1", "replaced", "was replaced", "nothing yet"):
        assert words in said
    assert run(["case", "comment", KEY, "rack 4"]) == 0
    assert [comment.text for comment in now(stores).comments] == ["rack 4"]
    assert run(["case", "close", KEY, "-r", "sold"]) == 0
    assert now(stores).state is CaseState.CLOSING
    assert "stay as they are" in capsys.readouterr().out
    assert run(["case", "list", "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [KEY]
