"""Cases at the gateway: read by everyone, ordered by those who may, told by their own ticket systems only."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from activities.secret import Secret
from activities.tickets.mail_text import id_of
from medevac.cases import course
from medevac.cases.case import Case, CaseState, Known, Subject, Ticket
from medevac.cases.letter import Letter
from medevac.cases.replies import Proposal
from tests.unit.worker.conftest import SIGNING, StubEngine, bearer, sha, signed
from worker.config import Replies, TicketSystem
from worker.gateway.app import create_app
from worker.gateway.case_replies import repliers
from worker.gateway.services import Services
from worker.speakers import Basic, Token
from worker.stores import Stores

NOW = datetime.now(UTC)
KEY = "case-0123456789ab"
DESK = bearer("desk-token-of-a-system")
BASIC = {"Authorization": "Basic " + base64.b64encode(b"mail:mail-password-of-it").decode()}


def case(**changes: Any) -> Case:
    given: dict[str, Any] = {
        "id": KEY,
        "system": "desk",
        "provider": "ironworks",
        "state": CaseState.WAITING,
        "letter": Letter(title="xid/79 on m-1", body="Machine: m-1"),
        "subjects": (Subject(incident="inc-1", cluster="sim-a", node="n-1", was=Known(machine_id="m-1")),),
        "opened_at": NOW,
        "updated_at": NOW,
        "ticket": Ticket(system="desk", id="T-1"),
    }
    return Case(**(given | changes))


def put(stores: Stores, one: Case) -> None:
    stores.cases.join("inc-1", "m-1", "ironworks", NOW, lambda about, same: one)


def now(stores: Stores) -> Case:
    found = stores.cases.get(KEY)
    assert found is not None
    return found


async def test_our_own_comment_that_is_sent_back_claims_nothing(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case().commenting("The fan was replaced by us.\nIt is in rack 4."))
    stores.cases.change(KEY, lambda one: course.commented(one, 1, one.comments[0].text, NOW), NOW)
    body = {"ticket": "T-1", "id": "r1", "text": "We look at it.\nThe fan was replaced by us."}
    assert (await client.post("/v1/case-replies/desk", json=body, headers=DESK)).status_code == 202
    assert [heard.proposal for heard in now(stores).heard] == [Proposal.READ]


@pytest.fixture
async def client(services: Services, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "hook").write_text("whsec_" + base64.b64encode(SIGNING).decode())
    systems = [
        TicketSystem(name="desk", kind="command", replies=Replies(bearer=Token(sha256=sha("desk-token-of-a-system")))),
        TicketSystem(
            name="mail",
            kind="mail",
            replies=Replies(basic=Basic(user="mail", password=Token(sha256=sha("mail-password-of-it")))),
        ),
        TicketSystem(name="jira", kind="jira", replies=Replies(hmac=Secret(file=tmp_path / "hook"))),
        TicketSystem(name="silent", kind="command"),
    ]
    app = create_app(dataclasses.replace(services, repliers=repliers(systems)))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


async def test_everyone_reads_them(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case())
    assert [one["id"] for one in (await client.get("/v1/cases", headers=bearer("vera-token"))).json()] == [KEY]
    shown = (await client.get(f"/v1/cases/{KEY}", headers=bearer("vera-token"))).json()
    assert shown["letter"]["title"] == "xid/79 on m-1"
    assert (await client.get("/v1/cases")).status_code == 401
    assert (await client.get("/v1/cases/case-none", headers=bearer("vera-token"))).status_code == 404


async def test_a_viewer_orders_nothing(client: httpx.AsyncClient, stores: Stores, engine: StubEngine) -> None:
    put(stores, case())
    for what, body in (("close", {}), ("retry", {}), ("comment", {"text": "x"})):
        answer = await client.post(f"/v1/cases/{KEY}/{what}", json=body, headers=bearer("vera-token"))
        assert answer.status_code == 403
    assert now(stores) == case()
    assert engine.woken == []


async def test_a_person_closes_it_and_the_ticket_is_told(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine
) -> None:
    put(stores, case())
    answer = await client.post(f"/v1/cases/{KEY}/close", json={"reason": "sold"}, headers=bearer("otto-token"))
    assert answer.status_code == 200, answer.text
    found = now(stores)
    assert (found.state, found.closed_by, found.why) == (CaseState.CLOSING, "otto", "otto: sold")
    assert len(found.comments) == 1
    assert engine.woken == [f"case/desk/{KEY}"]
    assert not found.settled, "a person's word proves nothing of a machine"
    again = await client.post(f"/v1/cases/{KEY}/close", json={}, headers=bearer("otto-token"))
    assert again.status_code == 409


async def test_one_without_a_ticket_is_closed_or_tried_again(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case(state=CaseState.FAILED, ticket=None, why="wrong credentials"))
    answer = await client.post(f"/v1/cases/{KEY}/retry", json={}, headers=bearer("otto-token"))
    assert answer.status_code == 200
    assert (now(stores).state, now(stores).tries) == (CaseState.ASKED, 2)
    assert (await client.post(f"/v1/cases/{KEY}/retry", json={}, headers=bearer("otto-token"))).status_code == 409
    await client.post(f"/v1/cases/{KEY}/close", json={}, headers=bearer("otto-token"))
    assert now(stores).state is CaseState.CLOSED


async def test_a_comment_of_a_person_holds_no_secret(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case())
    body = {"text": "the console says password=hunter2"}
    assert (await client.post(f"/v1/cases/{KEY}/comment", json=body, headers=bearer("otto-token"))).status_code == 200
    (comment,) = now(stores).comments
    assert "console says" in comment.text
    assert "hunter2" not in comment.text


async def test_a_posted_reply_is_shown_once_and_only_proposes(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine
) -> None:
    put(stores, case())
    body = {"ticket": "T-1", "id": "r1", "author": "support", "text": "The GPU has been replaced.\n> Machine: m-1"}
    for _ in range(2):
        answer = await client.post("/v1/case-replies/desk", json=body, headers=DESK)
        assert answer.status_code == 202, answer.text
    found = now(stores)
    (heard,) = found.heard
    assert (heard.proposal, heard.quote) == (Proposal.REPLACED, "The GPU has been replaced.")
    assert len(found.sayings) == 1
    assert found.state is CaseState.WAITING
    assert not found.settled
    assert engine.woken[0] == f"case/desk/{KEY}"


async def test_who_may_post_and_about_what(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case())
    body = {"ticket": "T-1", "text": "done"}
    assert (await client.post("/v1/case-replies/desk", json=body)).status_code == 401
    assert (await client.post("/v1/case-replies/desk", json=body, headers=bearer("otto-token"))).status_code == 401
    assert (await client.post("/v1/case-replies/desk", json=body, headers=BASIC)).status_code == 403
    assert (await client.post("/v1/case-replies/silent", json=body, headers=DESK)).status_code == 403
    other = await client.post("/v1/case-replies/mail", json=body, headers=BASIC)
    assert "no case" in other.json()["answer"], "another system's ticket of the same name"
    for bad in (b"{", b"[]", json.dumps({"ticket": "T-1"}).encode()):
        answer = await client.post("/v1/case-replies/desk", content=bad, headers=DESK)
        assert answer.status_code in (400, 422)
    too_large = await client.post("/v1/case-replies/desk", content=b" " * 1_100_000, headers=DESK)
    assert too_large.status_code == 413
    assert now(stores).heard == ()


async def test_a_whole_letter_is_read_and_its_automata_are_nothing(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case(system="mail"))

    async def post(text: str, id: str, **headers: str) -> Proposal:
        lines = [f"Subject: Re: xid/79 [{KEY}]", "From: Support <s@p.example>", f"Message-ID: <{id}>"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        letter = "\r\n".join([*lines, "", text])
        given = {**BASIC, "Content-Type": "message/rfc822"}
        answer = await client.post("/v1/case-replies/mail", content=letter.encode(), headers=given)
        assert answer.status_code == 202, answer.text
        return now(stores).heard[-1].proposal

    assert await post("Is it in rack 4?", "a@p") is Proposal.ANSWER
    assert await post("The GPU has been replaced.", "b@p", Auto_Submitted="auto-replied") is Proposal.NOTHING
    assert len(now(stores).sayings) == 1, "an automatic reply is said to nobody"


async def test_a_letter_with_a_subject_of_its_own_is_known_by_what_it_answers(
    client: httpx.AsyncClient, stores: Stores
) -> None:
    put(stores, case(system="mail"))
    ticket = now(stores).ticket
    assert ticket is not None
    letter = (
        "Subject: [#4711] Your request\r\nFrom: Support <s@p.example>\r\nMessage-ID: <a@p>\r\n"
        f"References: <{ticket.id}> <b@p>\r\nIn-Reply-To: <b@p>\r\n\r\nIs it in rack 4?"
    )
    given = {**BASIC, "Content-Type": "message/rfc822"}
    await client.post("/v1/case-replies/mail", content=letter.encode(), headers=given)
    assert [heard.proposal for heard in now(stores).heard] == [Proposal.ANSWER]


async def test_our_own_letter_that_comes_back_is_no_reply(
    client: httpx.AsyncClient, services: Services, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stores, case(system="mail"))
    ours = SimpleNamespace(name="mail", own="fleet@us.example")
    monkeypatch.setattr(services.registry, "ticket_systems", lambda: [ours])
    text = "The GPU has been replaced."
    head = f"Subject: xid/79 [{KEY}]\r\nFrom: Fleet <fleet@us.example>\r\n"
    given = {**BASIC, "Content-Type": "message/rfc822"}
    letter = f"{head}Message-ID: <{id_of(KEY, 'fleet@us.example')}>\r\n\r\n{text}"
    answer = await client.post("/v1/case-replies/mail", content=letter.encode(), headers=given)
    assert answer.status_code == 202
    assert now(stores).heard == ()
    forged = f"{head}Message-ID: <{id_of(KEY, 'fleet@elsewhere.example')}>\r\n\r\n{text}"
    await client.post("/v1/case-replies/mail", content=forged.encode(), headers=given)
    assert [one.text for one in now(stores).heard] == [text], "our address in From, anybody can write"


async def test_jiras_event_only_says_where_to_look(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine
) -> None:
    put(stores, case(system="jira", ticket=Ticket(system="jira", id="OPS-1")))
    event = {"webhookEvent": "comment_created", "issue": {"key": "OPS-1"}, "comment": {"body": "replaced"}}
    body = json.dumps(event).encode()
    assert (await client.post("/v1/case-replies/jira", content=body)).status_code == 401
    answer = await client.post("/v1/case-replies/jira", content=body, headers=signed(body))
    assert answer.status_code == 202, answer.text
    assert engine.woken == [f"case/jira/{KEY}"]
    assert now(stores).heard == ()
