"""Slack obeys what every chat obeys, on a server that behaves as Slack's API does."""

from __future__ import annotations

import pytest

from activities.chat import slack as adapter
from activities.chat.pacing import Pacing
from activities.chat.slack import SlackChat
from activities.messaging import HANDOVER
from activities.ports import NotSent, Place, Unclear, Unreadable
from activities.registry import ConfigurationError
from tests.contracts.chat import ChatContract
from tests.contracts.rigs import Trouble
from tests.integration.slack.far_slack import SECRET, TOKEN, FarSlack, options

HOW = {
    Trouble.REFUSE: "is_archived",
    Trouble.THROTTLE: "429",
    Trouble.TIMEOUT_BEFORE: "before",
    Trouble.TIMEOUT_AFTER: "after",
}


class SlackRig:
    def __init__(self, slack: FarSlack) -> None:
        self.slack = slack
        self.chat = chat_of(slack)
        root = self.chat.api.send("chat.postMessage", channel="C0FLEET", text="inc-1")
        self.chat.know(lambda thread: Place("C0FLEET", root["ts"]) if thread == "inc-1" else None)

    def trouble(self, kind: Trouble) -> None:
        self.slack.trouble.append(HOW[kind])

    def posted(self) -> int:
        return len([message for message in self.slack.messages if message.thread])

    def pass_time(self) -> None: ...


def chat_of(slack: FarSlack, **more: object) -> SlackChat:
    chat = adapter.make("slack", options(slack, **more))
    chat.api.pacing = Pacing(scale=0.0)
    return chat


class TestSlack(ChatContract):
    @pytest.fixture
    def rig(self, slack: FarSlack) -> SlackRig:
        return SlackRig(slack)


@pytest.mark.parametrize("error", ["invalid_auth", "not_in_channel", "invalid_blocks", "msg_too_long"])
def test_what_cannot_help_is_final(slack: FarSlack, error: str) -> None:
    slack.trouble.append(error)
    with pytest.raises(NotSent, match=error) as refusal:
        chat_of(slack).post("k/s/1", "medevac-sweep", "text")
    assert refusal.value.final


@pytest.mark.parametrize("trouble", ["500", "internal_error"])
def test_what_may_have_been_taken_is_unclear(slack: FarSlack, trouble: str) -> None:
    slack.trouble.append(trouble)
    with pytest.raises(Unclear):
        chat_of(slack).post("k/s/1", "medevac-sweep", "text")


def test_a_line_waits_for_its_incidents_message_but_not_for_ever(slack: FarSlack) -> None:
    chat = chat_of(slack)
    with pytest.raises(NotSent, match="isn't there yet") as waits:
        chat.post("inc-9/notify/1", "inc-9", "text")
    assert not waits.value.final
    chat._patience_s = 0.0
    chat.post("inc-9/notify/1", "inc-9", "text")
    assert [m.channel for m in slack.messages] == ["C0FLEET"]
    chat.post("messages/x/1", "medevac-sweep", "@here stuck")
    assert slack.messages[-1].channel == "C0ONCALL"


def test_a_hand_over_has_a_channel_and_waits_for_no_message_of_an_incident(slack: FarSlack) -> None:
    chat_of(slack).post("medevac-handover/shift/1", HANDOVER, "text")
    channels = {"everyday": "C0FLEET", "person_needed": "C0ONCALL", "approvals": "C0ASKED", "handover": "C0TEAM"}
    chat_of(slack, channels=channels).post("medevac-handover/shift/2", HANDOVER, "text")
    assert [m.channel for m in slack.messages] == ["C0ONCALL", "C0TEAM"]
    assert chat_of(slack, channels=channels).find("medevac-handover/shift/2") == slack.messages[-1].ts


def test_people_are_called_as_who_they_are_in_this_workspace(slack: FarSlack) -> None:
    chat = chat_of(slack)
    chat.know(lambda _: None, {"ada": (chat.options.team, "U0ADA"), "kim": ("T0OTHER", "U0KIM")})
    chat.post("k/notify/1", "k", "@here @ada @kim look again")
    assert slack.messages[-1].text == "<!here> <@U0ADA> @kim look again"


def test_groups_are_called_by_the_names_that_slack_has_for_them(slack: FarSlack) -> None:
    chat = chat_of(slack, groups={"oncall": "S0ONCALL"})
    chat.post("a/notify/1", "medevac-x", "@here @oncall @nobody still waiting for @oncall & others")
    assert slack.messages[-1].text == "<!here> <!subteam^S0ONCALL> @nobody still waiting for @oncall &amp; others"
    chat.post("a/notify/2", "medevac-x", "@oncall said a payload")
    assert slack.messages[-1].text == "@oncall said a payload"


def test_a_search_that_slack_refuses_is_unreadable(slack: FarSlack) -> None:
    slack.trouble.append("429")
    with pytest.raises(Unreadable):
        chat_of(slack).find("inc-1/notify/1")


def test_tiers_are_obeyed_and_the_wait_is_slacks(slack: FarSlack) -> None:
    slack.strict = True
    api, refused = chat_of(slack).api, []
    for n in range(10):
        try:
            api.send("chat.postMessage", channel="C0ONCALL", text=f"line {n}")
        except NotSent as error:
            refused.append(error)
    assert 3 <= len(slack.messages) < 10
    assert len(refused) == 10 - len(slack.messages)
    assert all(error.retry_after_s and not error.final for error in refused)
    assert slack.refused["ratelimited"] < len(refused), "it isn't even asked before the time is over"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"team": "medevac"}, "team"),
        ({"channels": {"everyday": "#gpu-fleet", "person_needed": "C0X", "approvals": "C0X"}}, "channels.everyday"),
        ({"bot_token": {"env": "NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE"),
        ({"bot_token": {}}, "exactly one of"),
        ({"routes": [{"channel": "C0FLEET"}]}, "empty route"),
        ({"token": "xoxb-in-the-file"}, "token"),
    ],
)
def test_a_wrong_configuration_says_what_to_change(slack: FarSlack, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        adapter.make("slack", options(slack, **wrong))
    assert TOKEN not in str(error.value)
    assert SECRET not in str(error.value)
    assert "xoxb-in" not in str(error.value)


def test_the_doctor_is_told_what_the_app_lacks(slack: FarSlack) -> None:
    assert chat_of(slack).missing_rights() == []
    [lacks] = chat_of(slack, owners={"research": "C0ELSEWHERE"}).missing_rights()
    assert "C0ELSEWHERE" in lacks
    assert "channel_not_found" in lacks
    [other] = chat_of(slack, team="T0OTHER").missing_rights()
    assert "T0OTHER" in other
