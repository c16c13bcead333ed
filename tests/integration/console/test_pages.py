"""The console over HTTP, without a browser: who may see and do what, and what no page may ever hold."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import httpx
import pytest

from medevac.approvals.approval import Verdict, Voided, Vote
from medevac.campaigns.listing import CampaignPlan, Member, Skipped
from medevac.campaigns.progress import CampaignState, NodeState
from medevac.campaigns.spec import Act, Care, Selector, Spec
from medevac.cases.case import CaseState
from medevac.faults.classes import FaultClass
from medevac.fleet.census import Census
from medevac.fleet.lease import LeaseAnswer, LeaseRequest
from medevac.fleet.node import Node
from medevac.incident import Line, StepKey
from medevac.policy.plan import Drain
from simulation.world import World
from tests.integration.console.conftest import asked, incident_of
from tests.unit.worker.conftest import StubEngine, bearer
from worker.config import Console, TrustedProxy
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

PAGES = ("/", "/incidents", "/approvals", "/campaigns", "/guard", "/silences", "/cases", "/providers", "/audit")


def csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert found, page
    return found[1]


async def sign_in(client: httpx.AsyncClient, who: str) -> str:
    """The `csrf` of their pages."""
    form = {"csrf": csrf((await client.get("/login")).text), "token": f"{who}-token", "next": "/guard"}
    answer = await client.post("/login", data=form)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == "/guard"
    return csrf((await client.get("/guard")).text)


async def test_nobody_sees_a_page_who_is_not_signed_in(client: httpx.AsyncClient, sick: Node) -> None:
    for path in (*PAGES, "/incidents/inc-1", "/audit/export", "/approvals/inc-1-0123abcd"):
        answer = await client.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?next=%2F"), path
        assert sick.name not in answer.text
    assert (await client.get("/console/events", headers={"X-Part": "x"})).status_code == 401
    assert (await client.post("/guard/freeze", data={"scope": "all", "reason": "x"})).status_code == 401


async def test_a_wrong_token_or_a_foreign_form_signs_nobody_in(client: httpx.AsyncClient) -> None:
    page = (await client.get("/login")).text
    wrong = await client.post("/login", data={"csrf": csrf(page), "token": "nobodys-token"})
    assert wrong.status_code == 401
    assert "no person has this token" in wrong.text
    assert "nobodys-token" not in wrong.text
    client.cookies.clear()
    foreign = await client.post("/login", data={"csrf": csrf(page), "token": "ada-token"})
    assert foreign.status_code == 403
    assert "medevac_session" not in client.cookies


async def test_the_session_is_a_strict_cookie_that_can_be_ended_and_not_forged(
    client: httpx.AsyncClient, services: Services
) -> None:
    page = (await client.get("/login")).text
    answer = await client.post(
        "/login", data={"csrf": csrf(page), "token": "vera-token"}, headers={"X-Forwarded-Proto": "https"}
    )
    cookie = answer.headers["set-cookie"].split("medevac_login")[0]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Secure", "Max-Age=43200"))
    client.cookies.clear()
    await sign_in(client, "vera")
    good = client.cookies["medevac_session"]
    assert "vera-token" not in good
    form = {"csrf": csrf((await client.get("/guard")).text)}
    for forged in (good.replace("vera~", "ada~"), good[:-1] + ("0" if good[-1] != "0" else "1"), "a~b~c~d", "~~~", ""):
        fresh = httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(services)), base_url="http://gateway")
        async with fresh:
            assert (await fresh.get("/", headers={"Cookie": f"medevac_session={forged}"})).status_code == 303, forged
            assert (await fresh.get("/", headers={"Cookie": f"medevac_session={good}"})).status_code == 200
    later = dataclasses.replace(services, now=lambda: datetime.now(UTC) + timedelta(hours=13))
    old = httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(later)), base_url="http://gateway")
    async with old:
        assert (await old.get("/", headers={"Cookie": f"medevac_session={good}"})).status_code == 303
    assert (await client.post("/logout", data=form)).status_code == 303
    assert (await client.get("/", headers={"Cookie": f"medevac_session={good}"})).status_code == 303


async def test_after_signing_in_only_pages_of_ours_follow(client: httpx.AsyncClient) -> None:
    for path in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\nb"):
        form = {"csrf": csrf((await client.get("/login")).text), "token": "vera-token", "next": path}
        assert (await client.post("/login", data=form)).headers["location"] == "/", path


async def test_every_page_says_what_it_must_and_no_page_holds_a_secret(
    client: httpx.AsyncClient, sick: Node, services: Services
) -> None:
    await sign_in(client, "ada")
    for path in (*PAGES, "/incidents/inc-1", "/approvals/inc-1-0123abcd", "/approvals/inc-1-0123abcd?verdict=approve"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert len(re.findall("<h1", answer.text)) == 1
        # A runbook is a link to follow; nothing is fetched from elsewhere.
        bare = re.sub(r'<a href="https://[^"]+">', "", answer.text)
        assert not re.search(r"<style| style=|<script>| on[a-z]+=|https?://", bare), path
        assert "ada-token" not in answer.text
        assert services.session_key.hex() not in answer.text


async def test_an_incident_is_a_timeline_with_plan_and_what_was_passed_over(
    client: httpx.AsyncClient, sick: Node
) -> None:
    await sign_in(client, "vera")
    listed = (await client.get("/incidents")).text
    assert sick.name in listed
    assert "waits for the yes of an approver" in listed
    assert "is critical" in listed
    told = (await client.get("/incidents/inc-1")).text
    assert told.index("kmsg: xid/79 new") < told.index("mark: done")
    # A payload's words stay words.
    assert "reset_gpu: &lt;b&gt;not known&lt;/b&gt; to mend xid/79" in told
    assert "job-7 (8 GPUs)" in told
    assert "inc-1-0123abcd" in told
    assert (await client.get("/incidents/inc-9")).status_code == 404


async def test_a_long_timeline_shows_its_end(client: httpx.AsyncClient, stores: Stores, sick: Node) -> None:
    at = datetime.now(UTC)
    stores.ledger.add_lines(
        [
            Line(key=StepKey(incident="inc-1", step="look", n=n), at=at, kind="event", text=f"look {n} of it")
            for n in range(1_003)
        ]
    )
    await sign_in(client, "vera")
    told = (await client.get("/incidents/inc-1")).text
    assert "6 earlier ones are left out" in told
    assert told.count(" of it</p>") == 1_000
    assert "look 1002 of it" in told
    # Its plan stands there though the decision is far back.
    assert "reboot for xid/79" in told


async def test_providers_are_compared_by_what_they_did(client: httpx.AsyncClient, sick: Node) -> None:
    await sign_in(client, "vera")
    told = (await client.get("/providers")).text
    assert f'<th scope="row">{sick.machine.provider}</th>' in told
    assert (await client.get("/providers", params={"days": "-1"})).status_code == 422


async def test_a_part_of_a_page_is_that_part_alone(client: httpx.AsyncClient, sick: Node) -> None:
    await sign_in(client, "ada")
    for path, part, words in (
        ("/", "map", sick.name),
        ("/incidents", "list", sick.name),
        ("/incidents/inc-1", "now", "mark: done"),
        ("/guard", "fences", "Nothing."),
        ("/guard", "waiting", "1 waits for you"),
    ):
        answer = await client.get(path, headers={"X-Part": part})
        assert answer.status_code == 200, answer.text
        assert words in answer.text
        assert "<h1" not in answer.text
        assert "<html" not in answer.text
    assert (await client.get("/", headers={"X-Part": "nothing"})).status_code == 404


async def test_a_vote_counts_once_for_the_person_of_the_session(
    client: httpx.AsyncClient, engine: StubEngine, sick: Node
) -> None:
    form = {"csrf": await sign_in(client, "ada"), "verdict": "approve", "shown_hash": "0123456789abcdef"}
    answer = await client.post("/approvals/inc-1-0123abcd", data={**form, "reason": "go", "voter": "grace"})
    assert answer.status_code == 303, answer.text
    assert [(v.voter, v.via, v.verdict, v.reason) for v in engine.votes] == [("ada", "console", "approve", "go")]
    assert engine.votes[0].signature
    assert "recorded" in (await client.get("/approvals")).text
    assert "recorded" not in (await client.get("/approvals")).text
    engine.declines = "the list has changed"
    refused = await client.post("/approvals/inc-1-0123abcd", data=form)
    assert refused.status_code == 409
    assert "the list has changed" in refused.text
    assert (await client.post("/approvals/inc-1-0123abcd", data={**form, "verdict": "maybe"})).status_code == 422


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/approvals/inc-1-0123abcd", {"verdict": "approve", "shown_hash": "0123456789abcdef"}),
        ("/guard/freeze", {"scope": "all", "reason": "x"}),
        ("/incidents/inc-1/hold", {"reason": "x", "hours": "1"}),
        ("/silences", {"node": "n1", "reason": "x", "hours": "1", "mark": "on"}),
        ("/silences/s-1/end", {}),
        ("/cases/case-0123456789ab/close", {"words": "x"}),
        ("/logout", {}),
    ],
)
async def test_no_form_counts_that_another_site_made(
    client: httpx.AsyncClient, engine: StubEngine, stores: Stores, sick: Node, path: str, form: dict[str, str]
) -> None:
    own = await sign_in(client, "ada")
    for sent, headers in (
        (form, {}),
        ({**form, "csrf": ""}, {}),
        ({**form, "csrf": "0" * 64}, {}),
        ({**form, "csrf": own}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert (await client.post(path, data=sent, headers=headers)).status_code == 403
    assert not engine.votes
    assert not engine.told
    assert not stores.fences.active()
    assert not stores.silences.latest()
    assert (await client.get("/")).status_code == 200


async def test_a_case_is_read_by_everyone_and_ordered_by_an_operator(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine, sick: Node
) -> None:
    path = "/cases/case-0123456789ab"
    viewer = {"csrf": await sign_in(client, "vera")}
    listed = (await client.get("/cases")).text
    assert f'<a href="{path}">xid/79 on m-1</a>' in listed
    assert f"sim-a/{sick.name}" in listed
    assert "they have it" in listed
    assert f'<a href="{path}">' in (await client.get("/incidents/inc-1")).text
    told = (await client.get(path)).text
    assert '<a href="https://desk.example/T-1">T-1</a>' in told
    assert "It was &lt;b&gt;not&lt;/b&gt; replaced" in told
    assert "Their word was due" in told
    assert "nothing yet" in told
    assert "formaction" not in told
    assert (await client.post(f"{path}/close", data=viewer | {"words": "x"})).status_code == 403
    assert (await client.get("/cases/case-none")).status_code == 404
    client.cookies.clear()
    own = {"csrf": await sign_in(client, "otto")}
    assert re.findall(r'formaction="/cases/case-0123456789ab/(\w+)"', (await client.get(path)).text) == [
        "comment",
        "close",
    ]
    assert (await client.post(f"{path}/comment", data=own | {"words": ""})).status_code == 422
    assert (await client.post(f"{path}/comment", data=own | {"words": "any news?"})).status_code == 303
    assert (await client.post(f"{path}/retry", data=own)).status_code == 409
    assert (await client.post(f"{path}/forget", data=own)).status_code == 404
    assert (await client.post(f"{path}/close", data=own | {"words": "sold"})).status_code == 303
    found = stores.cases.get("case-0123456789ab")
    assert found is not None
    assert found.comments[0].text == "any news?"
    assert found.state is CaseState.CLOSING
    assert "otto: sold" in (await client.get(path)).text
    assert engine.woken


async def test_budgets_in_use_and_who_waits_for_them(client: httpx.AsyncClient, stores: Stores, world: World) -> None:
    now = datetime.now(UTC)
    policy = stores.policies.active().policy
    rack = [policy.place(one) for one in world.nodes("sim-a") if one.topology["rack"] == "a-r01"]
    census = Census.of("sim-a", map(policy.place, world.nodes("sim-a")), domains=policy.domains)
    limit = policy.limits.at_once["rack"].of(len(rack))

    def ask(n: int, at: datetime) -> LeaseAnswer:
        one = rack[n]
        request = LeaseRequest(
            lease_id=f"lease-{n}", incident=f"inc-{n}", workflow_id=f"node/sim-a/{one.name}", cluster="sim-a",
            node=one.name, pool=one.pool, domains=policy.domains(one), fault="xid/79", fault_class=FaultClass.CRITICAL,
            plan_hash="h", asked_at=at, job_running=False,
        )  # fmt: skip
        return stores.guard.acquire(request, at, census)

    for n in range(limit + 1):
        answer = ask(n, now)
        assert answer.kind == ("granted" if n < limit else "waiting"), answer
    await sign_in(client, "vera")
    told = (await client.get("/guard")).text
    full = rf"rack:sim-a/a-r01</th><td>{limit} \(full\)</td><td>{limit}</td><td>{len(rack)}</td>"
    assert re.search(full, told), told
    line = told[told.index("Longest waiting first") :]
    assert f"sim-a/{rack[limit].name}</a></th><td>no single limit; its incident says</td>" in line
    assert f"sim-a/{rack[0].name}</a>" in told[told.index("Who may disrupt") : told.index("Longest waiting first")]
    assert "sim-a/level</strong>" in told
    breaker = {"cluster": "sim-a", "cause": "level"}
    assert (await client.post("/guard/breaker", data={"csrf": csrf(told), **breaker})).status_code == 403
    client.cookies.clear()
    own = {"csrf": await sign_in(client, "otto")}
    assert (await client.post("/guard/breaker", data={**own, **breaker})).status_code == 303
    told = (await client.get("/guard")).text
    assert "1 of 2 people want to close it" in told
    assert "To be closed, says otto" in told
    ask(limit + 1, datetime.now(UTC))
    told = html.unescape((await client.get("/guard")).text)
    assert "To be closed, says" not in told
    assert re.search(r"otto's word of [0-9:]+ UTC no longer counts: 1 more node showed a fault since", told), told


async def test_a_silence_is_made_with_an_end_listed_with_what_it_fits_and_ended_early(
    client: httpx.AsyncClient, stores: Stores, sick: Node
) -> None:
    own = {"csrf": await sign_in(client, "otto")}
    offered = (await client.get("/incidents/inc-1")).text
    link = re.search(r'href="(/silences\?[^"]+)"', offered)
    assert link, offered
    form = (await client.get(html.unescape(link[1]))).text
    assert f'name="node" value="{sick.name}"' in form
    given = {**own, "node": sick.name, "fault": "xid/79", "reason": "we debug it", "destructive": "on", "notify": "on"}
    for wrong in (
        {"hours": ""},
        {"hours": "169"},
        {"hours": "4", "reason": ""},
        {"hours": "4", "node": "", "fault": ""},
    ):
        assert (await client.post("/silences", data=given | wrong)).status_code == 422, wrong
    assert (await client.post("/silences", data={**own, "node": "n", "reason": "x", "hours": "1"})).status_code == 422
    assert not stores.silences.latest()
    assert (await client.post("/silences", data=given | {"hours": "4"})).status_code == 303
    (made,) = stores.silences.latest()
    assert (made.by, made.holds, made.until - made.at) == ("otto", ("notify", "destructive"), timedelta(hours=4))
    page = (await client.get("/silences")).text
    for words in (
        "we debug it",
        "notify, destructive",
        "otto",
        f">sim-a/{sick.name}</a>",
    ):
        assert words in page, words
    client.cookies.clear()
    viewer = {"csrf": await sign_in(client, "vera")}
    seen = (await client.get("/silences")).text
    assert "we debug it" in seen
    assert "<button>End now" not in seen
    assert (await client.post("/silences", data=given | viewer | {"hours": "4"})).status_code == 403
    assert (await client.post(f"/silences/{made.id}/end", data=viewer)).status_code == 403
    client.cookies.clear()
    assert (
        await client.post(f"/silences/{made.id}/end", data={"csrf": await sign_in(client, "ada")})
    ).status_code == 303
    assert not stores.silences.standing(datetime.now(UTC))
    assert "ended by ada" in (await client.get("/silences")).text


async def test_rights_are_those_of_the_api(client: httpx.AsyncClient, stores: Stores, engine: StubEngine) -> None:
    own = {"csrf": await sign_in(client, "vera")}
    frozen = await client.post("/guard/freeze", data={**own, "scope": "cluster/sim-a", "reason": "smoke"})
    assert frozen.status_code == 303
    assert [(f.scope, f.by, f.reason) for f in stores.fences.active()] == [("cluster/sim-a", "vera", "smoke")]
    page = (await client.get("/guard")).text
    assert "cluster/sim-a is frozen by vera" in page
    thawed = await client.post("/guard/thaw", data={**own, "scope": "cluster/sim-a"})
    assert thawed.status_code == 403
    assert "vera may not thaw" in thawed.text
    assert (await client.post("/guard/freeze", data={**own, "scope": "", "reason": "x"})).status_code == 422
    client.cookies.clear()
    for who, left in (("otto", 1), ("ada", 0)):
        own = {"csrf": await sign_in(client, who)}
        assert (await client.post("/guard/thaw", data={**own, "scope": "cluster/sim-a"})).status_code == 303
        assert len(stores.fences.active()) == left
        client.cookies.clear()


async def test_a_campaign_is_shown_and_stopped(
    client: httpx.AsyncClient, stores: Stores, engine: StubEngine, node: Node
) -> None:
    spec = Spec(
        id="driver", act=Act.REINSTALL, reason="driver 580", requested_by="grace",
        selector=Selector(nodes=(node.name,)), image="https://images.example/driver.iso", drain=Drain.NOW,
        care=Care(soak=0.0),
    )  # fmt: skip
    member = Member(
        cluster=node.cluster, node=node.name, uid=None, machine_id="m", pool="train", rack="r1",
        jobs=("train-1-0",), destroys=("instance store",),
    )  # fmt: skip
    skipped = Skipped(cluster="c", node="n9", why="ada has cordoned it")
    now = datetime.now(UTC)
    plan = CampaignPlan(
        spec=spec, policy_version=1, made_at=now, members=(member,), skipped=(skipped,), at_once=1, estimate_s=60
    )
    stores.campaigns.put(plan, "campaign-driver", now)
    stores.campaigns.move("driver", CampaignState.RUNNING, "stage 1", now)
    own = {"csrf": await sign_in(client, "vera")}
    assert "driver 580" in (await client.get("/campaigns")).text
    shown = (await client.get("/campaigns/driver")).text
    assert node.name in shown
    assert "0 of 1 nodes are through" in shown
    assert "left out by" not in shown
    for told in (
        "drain now, reinstall with image https://images.example/driver.iso", "soak 0 s (shipped 65 min)",
        "train-1-0</td>", "instance store</td>", "c/n9</th><td>ada has cordoned it</td>",
    ):  # fmt: skip
        assert told in shown, told
    left_out = {"state": NodeState.SKIPPED, "by": "kim", "why": "left out by kim: mine"}
    stores.campaigns.change("driver", {f"{node.cluster}/{node.name}": left_out})
    shown = (await client.get("/campaigns/driver")).text
    assert "1 skipped, of them 1 left out by people (1 by kim)" in shown
    assert "left out by kim: mine</td>" in shown
    halted = await client.post("/campaigns/driver/halt", data={**own, "reason": "wrong image"})
    assert halted.status_code == 303
    row = stores.campaigns.get("driver")
    assert row is not None
    assert (row.state, row.why) == (CampaignState.HALTED, "halted by vera: wrong image")
    assert (await client.post("/campaigns/driver/resume", data=own)).status_code == 403
    stores.campaigns.move("driver", CampaignState.HALTED, "what came next", now)
    for path in ("/campaigns/driver", "/audit?person=vera"):
        assert "halt by vera (console): wrong image" in (await client.get(path)).text, path
    assert '<a href="/campaigns/driver">driver</a>' in (await client.get("/audit?person=vera")).text
    exported = await client.get("/audit/export", params={"format": "jsonl", "text": "halt by vera"})
    (line,) = (json.loads(one) for one in exported.text.splitlines())
    assert (line["kind"], line["subject"], line["data"]["via"]) == ("campaign", "driver", "console")
    assert (await client.post("/campaigns/driver/explode", data=own)).status_code == 404


async def test_the_audit_finds_by_text_node_person_and_time(
    client: httpx.AsyncClient, stores: Stores, sick: Node
) -> None:
    now = datetime.now(UTC)
    stores.ledger.add_lines(
        [
            Line(key=StepKey(incident="inc-1", step="hold"), at=now, kind="hold", text="held by otto: 100%_sure"),
            Line(
                key=StepKey(incident="inc-1", step="old"),
                at=now - timedelta(days=30),
                kind="hold",
                text="held long ago",
            ),
        ]
    )
    stores.fences.freeze("all", "grace", "=cmd()", at=now)
    await sign_in(client, "vera")

    async def rows(**query: str) -> list[dict[str, str]]:
        answer = await client.get("/audit/export", params={"format": "jsonl", **query})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    assert {row["text"] for row in await rows(person="otto")} == {"held by otto: 100%_sure"}
    assert {row["text"] for row in await rows(text="%_")} == {"held by otto: 100%_sure"}
    assert {row["kind"] for row in await rows(node=sick.name)} == {"event", "decision", "step", "hold"}
    assert await rows(node="no-such-node") == []
    assert [row["text"] for row in await rows(until=(now - timedelta(days=20)).isoformat(), since="2000-01-01")] == [
        "held long ago"
    ]
    assert [row["kind"] for row in await rows(person="grace")] == ["freeze"]
    page = (await client.get("/audit", params={"person": "grace"})).text
    assert "frozen by grace: =cmd()" in page
    exported = await client.get("/audit/export", params={"format": "csv"})
    found = list(csv.DictReader(io.StringIO(exported.text)))
    assert len(found) == 5
    assert not any(value.startswith(("=", "+", "@")) for row in found for value in row.values())
    assert (await client.get("/audit", params={"since": "yesterday"})).status_code == 422
    assert (await client.get("/audit", params={"since": "2026-01-02", "until": "2026-01-01"})).status_code == 422


async def test_votes_stand_in_the_audit(client: httpx.AsyncClient, stores: Stores, node: Node) -> None:
    vote = Vote(
        approval="inc-1-0123abcd", voter="grace", groups=("approver",), verdict=Verdict.REJECT, reason="not now",
        shown_hash="0123456789abcdef", via="slack", at=datetime.now(UTC),
    )  # fmt: skip
    stores.ledger.upsert_incident(incident_of(node))
    stores.ledger.upsert_approval(asked(node, votes=(vote,)))
    await sign_in(client, "vera")
    assert "reject by grace (slack)" in (await client.get("/audit", params={"person": "grace"})).text
    assert "reject by grace (slack): not now" in (await client.get("/incidents/inc-1")).text


async def test_a_vote_that_became_void_and_silences_stand_in_the_audit(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    now = datetime.now(UTC)
    vote = Vote(
        approval="inc-1-0123abcd", voter="grace", groups=("approver",), verdict=Verdict.APPROVE, reason="go",
        shown_hash="0123456789abcdef", via="slack", at=now,
    )  # fmt: skip
    lost = Voided(vote=vote, at=now, why="1 more waits for it now: gpu-2")
    stores.ledger.upsert_approval(asked(node, voided=(lost,)))
    own = {"csrf": await sign_in(client, "otto")}
    wish = {"node": "n1", "hours": "2", "reason": "we debug it", "mark": "on"}
    assert (await client.post("/silences", data={**own, **wish})).status_code == 303
    (silence,) = stores.silences.standing(datetime.now(UTC))
    assert (await client.post(f"/silences/{silence.id}/end", data=own)).status_code == 303

    async def rows(**query: str) -> list[dict[str, str]]:
        answer = await client.get("/audit/export", params={"format": "jsonl", **query})
        return [json.loads(line) for line in answer.text.splitlines()]

    (voided,) = await rows(person="grace")
    assert voided["text"].endswith(": go; it counts no longer: 1 more waits for it now: gpu-2")
    assert {row["text"].partition(":")[0] for row in await rows(person="otto")} == {
        "silenced by otto (console)", "ended early by otto (console)"
    }  # fmt: skip
    page = (await client.get("/audit", params={"node": "n1"})).text
    assert "silenced by otto (console)" in page


async def test_older_pages_of_the_audit_leave_out_no_decision(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    now = datetime.now(UTC)
    lines = [
        Line(key=StepKey(incident="inc-1", step="hold", n=n), at=now - timedelta(minutes=500 - n), kind="hold",
             text=f"line {n}")
        for n in range(450)
    ]  # fmt: skip
    stores.ledger.add_lines(lines)
    for hours in (0.5, 4, 7, 20):
        stores.fences.freeze("all", "grace", f"stop {hours}", at=now - timedelta(hours=hours))
    await sign_in(client, "vera")
    found, path = "", "/audit"
    for _ in range(5):
        page = (await client.get(path)).text
        assert "Newest first" in page, page
        found += page
        if (older := re.search(r'<a href="(\?[^"]*before=\d+)">Older', page)) is None:
            break
        path = "/audit" + html.unescape(older[1])
    assert [found.count(f"stop {hours}<") for hours in (0.5, 4, 7, 20)] == [1] * 4
    assert found.count("line ") == 450


async def test_an_address_that_no_page_can_mean_is_refused_and_never_fails(client: httpx.AsyncClient) -> None:
    own = {"csrf": await sign_in(client, "otto")}
    for path in (
        "/audit?before=99999999999999999999",
        "/audit?since=0001-01-01T00:00%2B14:00",
        "/audit?until=9999-12-31T23:59-14:00",
        "/audit/export?since=0001-01-01T00:00%2B14:00",
        "/audit?text=a%00b",
        "/incidents?q=%00",
        "/incidents/a%00b",
        "/v1/incidents?node=%00",
        "/v1/incidents?limit=99999999999999999999",
    ):
        headers = bearer("otto-token") if path.startswith("/v1/") else {}
        assert (await client.get(path, headers=headers)).status_code == 422, path
    for path in ("/audit?since=0001-01-01T00:00", "/audit?until=9999-12-31T23:59"):
        assert (await client.get(path)).status_code == 200, path
    silence = {**own, "node": "n1", "reason": "x", "mark": "on", "hours": "9" * 5_000}
    assert (await client.post("/silences", data=silence)).status_code == 422


async def test_who_thaws_says_why_and_all_see_it(client: httpx.AsyncClient, stores: Stores) -> None:
    stores.fences.freeze("all", "vera", "smoke")
    own = {"csrf": await sign_in(client, "otto")}
    assert (await client.post("/guard/thaw", data={**own, "scope": "all", "reason": "<gone>"})).status_code == 303
    assert re.search(
        r"To be thawed, says otto \(console\) at \d{4}-\d\d-\d\d \d\d:\d\d UTC: &lt;gone&gt;",
        (await client.get("/guard")).text,
    )
    client.cookies.clear()
    own = {"csrf": await sign_in(client, "ada")}
    assert (await client.post("/guard/thaw", data={**own, "scope": "all", "reason": "I looked"})).status_code == 303
    audit = (await client.get("/audit", params={"person": "otto"})).text
    assert "to be thawed, says otto (console): &lt;gone&gt;" in audit
    assert re.search(
        r"thawed by otto \(console\) at [\d -]+:\d\d UTC: &lt;gone&gt; and ada \(console\) at [\d -]+:\d\d UTC: "
        r"I looked",
        audit,
    )


async def test_a_trusted_proxy_signs_in_and_nobody_else_may_say_so(services: Services) -> None:
    proxy = TrustedProxy(addresses=(ip_network("10.1.0.0/24"),))
    trusting = create_app(dataclasses.replace(services, console=Console(proxy=proxy)))
    default = create_app(services)

    async def look(app: object, peer: str, *headers: tuple[str, str]) -> int:
        transport = httpx.ASGITransport(app=app, client=(peer, 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return (await client.get("/", headers=list(headers))).status_code

    ada = ("X-Forwarded-User", "ada")
    assert await look(trusting, "10.1.0.7", ada) == 200
    assert await look(trusting, "10.1.0.7") == 303
    assert await look(trusting, "10.1.0.7", ("X-Forwarded-User", "mallory")) == 403
    assert await look(trusting, "10.1.0.7", ada, ("X-Forwarded-User", "grace")) == 403
    assert await look(trusting, "10.2.0.7", ada) == 303
    assert await look(trusting, "10.2.0.7", ada, ("X-Forwarded-For", "10.1.0.7")) == 303
    assert await look(default, "10.1.0.7", ada) == 303


async def test_a_vote_for_a_list_that_got_shorter_counts_and_is_said_to(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    def vote(voter: str, shown: str) -> Vote:
        at = datetime.now(UTC) - timedelta(minutes=1)
        return Vote(
            approval="inc-1-0123abcd", voter=voter, groups=("approver",), verdict=Verdict.APPROVE, shown_hash=shown,
            via="cli", at=at,
        )  # fmt: skip

    need = asked(node).need.model_copy(update={"threshold": 3})
    votes = (vote("ada", "a-longer-list"), vote("kim", "0123456789abcdef"))
    stores.ledger.upsert_approval(asked(node, need=need, votes=votes, also_requested_by=("kim",), rev=2))
    await sign_in(client, "ada")
    said = re.sub(r"<[^>]+>", "", (await client.get("/approvals/inc-1-0123abcd")).text)
    assert "approve (of a longer list; counts)" in said
    assert "approve (doesn't count)" in said, "kim asked for it as well"
    assert "It does not wait for you" in said
    assert "none waits for you" in (await client.get("/approvals")).text
