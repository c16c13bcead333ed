"""A question holds the same facts in the console as in chat and in a terminal, and waits for whom it should."""

from __future__ import annotations

import html
import re

import httpx

from medevac.fleet.node import Node
from medevac.policy.plan import Reminder
from medevac.telling.card import plain
from tests.integration.console.conftest import asked
from tests.integration.console.test_pages import sign_in
from worker.gateway.services import Services
from worker.stores import Stores

ID = "inc-1-0123abcd"


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_the_page_of_a_question_is_its_card(client: httpx.AsyncClient, services: Services, sick: Node) -> None:
    card = services.cards.of(asked(sick), services.now(), "/incidents/{incident}")
    await sign_in(client, "ada")
    page = (await client.get(f"/approvals/{ID}")).text
    for field in card.fields:
        for part in (field.label, *(part for part in field.words if isinstance(part, str))):
            assert words(part) in words(page), part
    assert f"Where cluster sim-a, node {sick.name}, rack " in words(page)
    assert "reboot, attempt 1 of 2" in words(page)
    assert '<a href="https://docs.nvidia.com/deploy/xid-errors/">runbook</a>' in page
    assert '<a href="/incidents/inc-1">all of it</a>' in page
    assert "Jobs hit" in plain(card)


async def test_only_the_part_that_shows_them_reads_facts(
    client: httpx.AsyncClient, services: Services, sick: Node
) -> None:
    await sign_in(client, "ada")
    assert "Evidence" not in (await client.get(f"/approvals/{ID}", headers={"X-Part": "rest"})).text
    assert "Evidence" in (await client.get(f"/approvals/{ID}", headers={"X-Part": "approval"})).text


async def test_from_the_reminder_on_it_waits_for_the_second_group(
    client: httpx.AsyncClient, stores: Stores, sick: Node
) -> None:
    def remind(after_s: float) -> None:
        need = asked(sick).need.model_copy(update={"reminder": Reminder(after_s=after_s, then=("operator",))})
        stores.ledger.upsert_approval(asked(sick, need=need))

    await sign_in(client, "otto")
    remind(40_000)
    assert "none waits for you" in (await client.get("/approvals")).text
    assert "later also operator" in (await client.get("/approvals")).text
    assert "It does not wait for you" in (await client.get(f"/approvals/{ID}")).text
    remind(60)
    assert "1 waits for you" in (await client.get("/approvals")).text
    assert "Yes, approve" in (await client.get(f"/approvals/{ID}?verdict=approve")).text
