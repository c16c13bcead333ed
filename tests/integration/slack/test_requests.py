"""What Slack sends: believed only with its signature, acknowledged at once, and every click and command answered."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from activities.chat.slack import SlackChat
from medevac.approvals.approval import Verdict
from medevac.approvals.signing import Signatures
from medevac.campaigns.listing import CampaignPlan, Member
from medevac.campaigns.progress import CampaignState, NodeState
from medevac.campaigns.spec import Act, Selector, Spec
from medevac.fleet.node import Node
from medevac.telling.asking import APPROVE, DETAILS, REJECT
from tests.integration.slack.conftest import SLACK
from tests.integration.slack.far_slack import TRIGGER_S, FarSlack, Json, Message, commanded, interactive, press, signed
from tests.integration.slack.test_mirror import decided, incident, question, settle
from tests.unit.worker.conftest import StubEngine, bearer
from tests.votes import KEYS
from worker.chat_desk import Mirror
from worker.gateway.services import Services
from worker.gateway.slack_desk import COMMANDS as REFUSED_HERE
from worker.stores import Stores

BUTTONS, COMMANDS = "/v1/slack/interactivity", "/v1/slack/commands"
ADA, VERA = SLACK["ada"], SLACK["vera"]


@pytest.fixture
def asked_message(mirror: Mirror, slack: FarSlack, stores: Stores, node: Node) -> Message:
    stores.ledger.upsert_incident(incident(node))
    stores.ledger.upsert_approval(question(incident(node)))
    settle(mirror)
    [message] = slack.roots("C0ASKED")
    return message


async def send(client: httpx.AsyncClient, payload: Json) -> httpx.Response:
    body = interactive(payload)
    answer = await client.post(BUTTONS, content=body, headers=signed(body))
    await settled(client)
    return answer


async def order(client: httpx.AsyncClient, slack: FarSlack, user: str, text: str) -> str:
    body = commanded(slack.command(user, text))
    told = len(slack.told(user))
    answer = await client.post(COMMANDS, content=body, headers=signed(body))
    assert (answer.status_code, answer.text) == (200, "")
    await settled(client)
    return "\n".join(slack.told(user)[told:])


async def settled(client: httpx.AsyncClient) -> None:
    transport: Any = client._transport
    await transport.app.state.slack.settled()


# -- who is believed -------------------------------------------------------------------------------------------


FORGED: tuple[Json, ...] = (
    {},
    {"at": -301},
    {"at": 400},
    {"secret": "another secret of the same length"},
    {"stamp": "now"},
    {"stamp": ""},
    {"stamp": "-1"},
    {"stamp": "1e9"},
    {"stamp": "1_7"},
    {"stamp": "9" * 400},
)


async def test_what_slack_has_not_just_signed_is_401_and_nothing_else(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    calls = sum(slack.calls.values())
    for path in (BUTTONS, COMMANDS):
        for forged in FORGED:
            body = commanded(slack.command(ADA, "freeze all now"))
            if path == BUTTONS:
                body = interactive(slack.pressed(asked_message, APPROVE, ADA))
            how = {key: time.time() + value if key == "at" else value for key, value in forged.items()}
            answer = await client.post(path, content=body, headers=signed(body, **how) if how else {})
            assert (answer.status_code, answer.content) == (401, b""), f"{path} {forged}"
    await settled(client)
    assert not engine.votes
    assert sum(slack.calls.values()) == calls
    assert not slack.whispers


async def test_another_workspace_and_another_app_are_401(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    for foreign in (
        {"team": {"id": "T0OTHER"}},
        {"team": None},
        {"api_app_id": "A0OTHER"},
        {"user": {"id": ADA, "team_id": "T0OTHER"}},
        {"user": {"team_id": "T0MEDEVAC"}},
        {"user": "U0ADA"},
    ):
        answer = await send(client, slack.pressed(asked_message, APPROVE, ADA) | foreign)
        assert (answer.status_code, answer.content) == (401, b""), foreign
    assert not engine.votes


async def test_one_request_twice_is_taken_once(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    body = interactive(slack.pressed(asked_message, APPROVE, ADA))
    headers = signed(body)
    assert (await client.post(BUTTONS, content=body, headers=headers)).status_code == 200
    assert (await client.post(BUTTONS, content=body, headers=headers)).status_code == 401
    await settled(client)
    assert len(engine.votes) == 1


async def test_signed_nonsense_is_401(client: httpx.AsyncClient) -> None:
    for body in (b"", b"payload=", b"payload=[]", b"payload=null", b"\xff\xfe", b"payload=%7B", b"x" * 300_000):
        answer = await client.post(BUTTONS, content=body, headers=signed(body))
        assert (answer.status_code, answer.content) == (401, b""), body[:20]


async def test_without_slack_the_way_in_is_shut(services: Services) -> None:
    import dataclasses

    from activities.registry import Registry
    from worker.gateway.app import create_app

    registry = services.registry
    plain = Registry(clusters=registry.clusters(), providers=registry.providers(), chat=_Silent())
    app = create_app(dataclasses.replace(services, registry=plain))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as client:
        body = b"payload={}"
        assert (await client.post(BUTTONS, content=body, headers=signed(body))).status_code == 401


class _Silent:
    simulated = True

    def find(self, key: str) -> str | None:
        return None

    def post(self, key: str, thread: str, text: str) -> str:
        return ""


# -- votes -----------------------------------------------------------------------------------------------------


async def test_a_yes_is_the_mapped_persons_own_signed_vote(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    answer = await send(client, slack.pressed(asked_message, APPROVE, ADA))
    assert (answer.status_code, answer.content) == (200, b"")
    [vote] = engine.votes
    # By our own record: the payload says that the user's name is `admin`.
    assert (vote.voter, vote.groups, vote.via, vote.verdict) == ("ada", ("approver",), "slack", Verdict.APPROVE)
    assert Signatures(KEYS).genuine(vote)
    assert slack.told(ADA) == ["recorded"]


async def test_a_no_asks_for_the_reason_first(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    await send(client, slack.pressed(asked_message, REJECT, ADA))
    assert not engine.votes
    [view] = slack.views.values()
    await send(client, slack.submitted(view, ADA, "the job ends in an hour"))
    [vote] = engine.votes
    assert (vote.voter, vote.verdict, vote.reason) == ("ada", Verdict.REJECT, "the job ends in an hour")
    assert slack.told(ADA) == ["recorded"]


async def test_a_form_that_slack_opens_too_late_is_said(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    payload = slack.pressed(asked_message, REJECT, ADA)
    slack._triggers[payload["trigger_id"]] = (time.monotonic() - TRIGGER_S - 1, False)
    await send(client, payload)
    [told] = slack.told(ADA)
    assert "expired_trigger_id" in told
    assert "Nothing is rejected yet" in told
    used = slack.pressed(asked_message, REJECT, ADA)
    await send(client, used)
    await send(client, used | {"response_url": slack.response_url(ADA)})
    assert "exchanged_trigger_id" in slack.told(ADA)[-1]
    assert not engine.votes


async def test_details_hold_the_question_whole(
    client: httpx.AsyncClient, slack: FarSlack, asked_message: Message, node: Node
) -> None:
    await send(client, slack.pressed(asked_message, DETAILS, VERA))
    [view] = slack.views.values()
    assert view["blocks"][0]["type"] == "section"
    assert f"machine {node.machine.id}" in str(view)
    assert "Reading" not in str(view)


async def test_a_late_click_is_answered_from_the_ledger(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message, stores: Stores, node: Node
) -> None:
    late = slack.pressed(asked_message, APPROVE, ADA)
    stores.ledger.upsert_approval(decided(question(incident(node))))
    engine.gone = True
    await send(client, late)
    [told] = slack.told(ADA)
    assert "was approved by ada" in told
    assert "too late" in told
    assert not engine.votes


async def test_a_stranger_is_told_alone_and_it_is_written_down(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message, stores: Stores
) -> None:
    said = asked_message.versions, len(slack.messages)
    for _ in range(3):
        await send(client, slack.pressed(asked_message, APPROVE, "U0MALLORY"))
    assert len(slack.told("U0MALLORY")) == 3
    assert "doesn't know you" in slack.told("U0MALLORY")[0]
    assert "user: U0MALLORY" in slack.told("U0MALLORY")[0]
    assert (asked_message.versions, len(slack.messages)) == said
    assert not engine.votes
    [line] = [line for line in stores.ledger.lines("inc-1/1") if line.kind == "refused"]
    assert "U0MALLORY" in line.text


async def test_who_may_not_is_told_alone_and_it_is_written_down(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message, stores: Stores
) -> None:
    engine.declines = "only members of approver may decide this; you are in viewer"
    await send(client, slack.pressed(asked_message, APPROVE, VERA))
    assert slack.told(VERA) == [engine.declines]
    [line] = [line for line in stores.ledger.lines("inc-1/1") if line.kind == "refused"]
    assert line.text == f"vera by slack: {engine.declines}"


async def test_a_click_while_temporal_is_down_is_answered(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    engine.down = True
    await send(client, slack.pressed(asked_message, APPROVE, ADA))
    [told] = slack.told(ADA)
    assert "try again" in told


async def test_an_answer_that_one_way_does_not_take_goes_the_other(
    client: httpx.AsyncClient, slack: FarSlack, asked_message: Message
) -> None:
    payload = slack.pressed(asked_message, APPROVE, ADA)
    slack._uses[payload["response_url"].rpartition("/")[2]] = 5
    await send(client, payload)
    assert slack.whispers[-1] == ("C0ASKED", ADA, "recorded")


async def test_no_answer_is_sent_anywhere_but_to_slack(
    client: httpx.AsyncClient, slack: FarSlack, asked_message: Message
) -> None:
    elsewhere = "http://169.254.169.254/latest", "https://hooks.slack.com.evil.example/x", "file:///etc/passwd"
    for n, url in enumerate(elsewhere):
        await send(client, slack.pressed(asked_message, APPROVE, ADA) | {"response_url": url})
        assert slack.whispers[n:] == [("C0ASKED", ADA, "recorded")], url


async def test_a_button_that_is_not_ours_votes_for_nothing(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    values = "", "{}", "[]", "null", '{"a":1}', '{"a":"inc-1/1","h":"x"}', "x" * 2_000
    for n, value in enumerate(values):
        button = {"action_id": APPROVE, "value": value}
        answer = await send(client, press(button, ADA, "C0ASKED", url=slack.response_url(ADA)))
        assert answer.status_code == 200, value
        assert len(slack.told(ADA)) == n + 1, value
    assert not engine.votes


# -- the command -----------------------------------------------------------------------------------------------


async def test_the_command_is_the_persons_own_order(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(incident(node))
    assert node.name in await order(client, slack, VERA, "status")
    assert "inc-1" in await order(client, slack, VERA, f"status {node.name}")
    assert await order(client, slack, VERA, f"hold {node.name} 2h look at the job first") == "hold done"
    workflow, update, told, _ = engine.told[-1]
    assert (workflow, update) == (f"node/{node.cluster}/{node.name}", "hold")
    hold = told.hold  # type: ignore[attr-defined]
    assert (hold.owner, hold.reason) == ("vera", "look at the job first")
    assert round((hold.until - datetime.now(UTC)).total_seconds() / 3_600) == 2
    # What starts things again takes more than what stops them.
    assert "may not resume" in await order(client, slack, VERA, "resume inc-1")
    assert await order(client, slack, SLACK["otto"], "resume inc-1 the job is over") == "resume done"
    assert "is frozen by vera" in await order(client, slack, VERA, 'freeze all "strange faults in all racks"')
    assert [fence.by for fence in stores.fences.active()] == ["vera"]
    assert "open incidents" in await order(client, slack, VERA, "status")


async def test_to_approve_by_command_shows_what_is_asked(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_approval(question(incident(node)))
    await order(client, slack, ADA, "approve inc-1/1")
    assert not engine.votes, "a yes is for what was seen"
    shown = slack.whispered[-1]
    assert (shown["user"], shown["channel"]) == (ADA, "C0FLEET")
    [buttons] = [b["elements"] for b in shown["blocks"] if b["type"] == "actions"]
    button = next(b for b in buttons if b["action_id"] == APPROVE)
    await send(client, press(button, ADA, "C0FLEET", url=slack.response_url(ADA)))
    assert [vote.voter for vote in engine.votes] == ["ada"]


async def test_a_campaign_tells_whom_people_left_out(
    client: httpx.AsyncClient, slack: FarSlack, stores: Stores, node: Node
) -> None:
    spec = Spec(
        id="driver", act=Act.REBOOT, reason="driver 580", requested_by="ada", selector=Selector(nodes=(node.name,))
    )
    member = Member(cluster=node.cluster, node=node.name, uid=None, machine_id="m", pool="train", rack="r1")
    now = datetime.now(UTC)
    plan = CampaignPlan(
        spec=spec, policy_version=1, made_at=now, members=(member,), skipped=(), at_once=1, estimate_s=60
    )
    stores.campaigns.put(plan, "campaign-driver", now)
    stores.campaigns.move("driver", CampaignState.PAUSED, "paused by ada", now)
    told = await order(client, slack, VERA, "campaign driver")
    assert told == "campaign driver is paused: paused by ada; 0 of 1 nodes are through"
    stores.campaigns.change("driver", {f"{node.cluster}/{node.name}": {"state": NodeState.SKIPPED, "by": "kim"}})
    told = await order(client, slack, VERA, "campaign driver")
    assert told.endswith("1 of 1 nodes are through, 1 left out by people (1 by kim)")
    await order(client, slack, VERA, "campaign driver halt smoke")
    assert [line.text for line in stores.campaigns.words("driver")] == ["halt by vera (slack): smoke"]


async def test_a_wrong_command_is_answered_with_what_to_write(client: httpx.AsyncClient, slack: FarSlack) -> None:
    for text, answered in (
        ("", "What I understand"),
        ("dance", "What I understand"),
        ("hold", "What I understand"),
        ("hold nowhere because", "no open incident"),
        ("freeze everything at once", "scope"),
        ("freeze all", "reason"),
        ("approve inc-9", "no approval is called"),
        ("campaign nope", "nope"),
        ('status "unclosed', "no open incident"),
    ):
        assert answered in await order(client, slack, ADA, text), text


async def test_a_stranger_orders_nothing(client: httpx.AsyncClient, slack: FarSlack, stores: Stores) -> None:
    assert "doesn't know you" in await order(client, slack, "U0MALLORY", "freeze all now")
    assert not stores.fences.active()
    [line] = stores.ledger.lines(REFUSED_HERE)
    assert (line.kind, "U0MALLORY: nobody we know tried /medevac freeze all now" in line.text) == ("refused", True)


async def test_an_order_that_is_not_ones_right_is_written_down(
    client: httpx.AsyncClient, slack: FarSlack, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(incident(node))
    assert "may not resume" in await order(client, slack, VERA, f"resume {node.name} now")
    [line] = stores.ledger.lines(REFUSED_HERE)
    assert line.text.startswith(f"vera by slack: /medevac resume {node.name} now")


@pytest.mark.parametrize("button", [DETAILS, REJECT])
async def test_a_stranger_opens_nothing(
    client: httpx.AsyncClient, slack: FarSlack, asked_message: Message, stores: Stores, button: str
) -> None:
    await send(client, slack.pressed(asked_message, button, "U0MALLORY"))
    assert not slack.views
    assert "doesn't know you" in slack.told("U0MALLORY")[0]
    [line] = [line for line in stores.ledger.lines("inc-1/1") if line.kind == "refused"]
    assert f"tried the button {button}" in line.text


async def test_the_form_of_a_no_says_what_a_no_does_there(
    client: httpx.AsyncClient, slack: FarSlack, asked_message: Message, stores: Stores, node: Node
) -> None:
    await send(client, slack.pressed(asked_message, REJECT, ADA))
    asked = question(incident(node))
    (one,) = asked.waiters
    campaign = one.model_copy(update={"workflow_id": "campaign/drv", "incident": "drv"})
    stores.ledger.upsert_approval(asked.model_copy(update={"waiters": (campaign,), "rev": asked.rev + 1}))
    await send(client, slack.pressed(asked_message, REJECT, ADA))
    first, second = slack.views.values()
    assert "it holds for 24 hours" in str(first)
    assert "24 hours" not in str(second)
    assert "the campaign ends" in str(second)


async def test_one_person_in_slack_and_with_a_token_is_one(
    client: httpx.AsyncClient, slack: FarSlack, engine: StubEngine, asked_message: Message
) -> None:
    await send(client, slack.pressed(asked_message, APPROVE, ADA))
    ballot = {"verdict": "approve", "shown_hash": engine.votes[0].shown_hash}
    await client.post("/v1/approvals/inc-1/1/votes", json=ballot, headers=bearer("ada-token"))
    assert [vote.voter for vote in engine.votes] == ["ada", "ada"]


def test_a_slack_user_is_one_person_only(chat: SlackChat) -> None:
    from worker.config import Cluster, Config, Person, Provider, SlackUser
    from worker.speakers import Token

    same = SlackUser(team="T0MEDEVAC", user="U0ADA")
    people = [Person(id=who, groups=("viewer",), token=Token(sha256="0" * 64), slack=same) for who in ("ada", "bob")]
    with pytest.raises(ValueError, match="T0MEDEVAC:U0ADA is there twice"):
        Config(
            installation="test",
            clusters=(Cluster(name="a", kind="simulation"),),
            providers=(Provider(name="p", kind="simulation"),),
            people=tuple(people),
        )
