"""What Slack shows follows the ledger: one message for each, changed in place, whatever fails on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.chat.options import Route
from activities.chat.pacing import Pacing
from activities.chat.slack import SlackChat
from activities.storage.posts import Post
from medevac.approvals.approval import ApprovalResult, ApprovalState, ApprovalView
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, Line, State, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from medevac.telling.asking import APPROVE, DETAILS, REJECT
from tests.integration.slack.far_slack import FarSlack
from tests.unit.worker.conftest import view_of
from tests.unit.worker.test_orders import asked
from worker.chat_desk import Mirror
from worker.mirroring import places
from worker.stores import Stores

NOW = datetime.now(UTC)


def incident(node: Node, n: int = 1, **changed: object) -> IncidentView:
    given: dict[str, object] = {
        "id": f"inc-{n}",
        "fault": "xid/79",
        "faults": ("xid/79",),
        "fault_class": FaultClass.CRITICAL,
        "rung": "reboot",
        "rev": 1,
    }
    return view_of(node, **(given | changed))


def question(view: IncidentView, **changed: object) -> ApprovalView:
    waiter = asked().waiters[0].model_copy(update={"cluster": view.cluster, "node": view.node, "incident": view.id})
    given: dict[str, object] = {"waiters": (waiter,), "rev": 1}
    return asked(**(given | changed))


def decided(view: ApprovalView, state: ApprovalState = ApprovalState.APPROVED) -> ApprovalView:
    result = ApprovalResult(id=view.id, state=state, by=("ada",), reason="go on", decided_at=NOW)
    # One is withdrawn when all who waited have left.
    waiters = () if state is ApprovalState.WITHDRAWN else view.waiters
    return view.model_copy(update={"state": state, "result": result, "waiters": waiters, "rev": view.rev + 1})


def settle(mirror: Mirror, passes: int = 3) -> None:
    for _ in range(passes):
        mirror.once()


def test_an_incident_is_one_message_that_says_what_is_true(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    view = incident(node)
    stores.ledger.upsert_incident(view)
    settle(mirror)
    [message] = slack.roots("C0FLEET")
    assert node.name in message.says()
    assert "fallen off the bus" in message.says()
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.VERIFYING, "rev": 2}))
    settle(mirror)
    assert "verifying" in message.says()
    ended = view.model_copy(update={"state": State.ENDED, "end": End.RETURNED, "rev": 3})
    stores.ledger.upsert_incident(ended)
    settle(mirror)
    assert "returned" in message.says()
    assert len(slack.messages) == 1
    # What says the same isn't sent again.
    versions = message.versions
    settle(mirror, 5)
    assert message.versions == versions


def test_a_question_has_its_buttons_until_it_is_decided(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    view = question(incident(node))
    stores.ledger.upsert_incident(incident(node))
    stores.ledger.upsert_approval(view)
    settle(mirror)
    [message] = slack.roots("C0ASKED")
    assert set(message.buttons()) == {APPROVE, REJECT, DETAILS}
    assert message.buttons()[APPROVE]["confirm"]
    stores.ledger.upsert_approval(decided(view))
    settle(mirror)
    assert not message.buttons()
    assert "approved by ada" in message.says()


@pytest.mark.parametrize("state", [ApprovalState.REJECTED, ApprovalState.EXPIRED, ApprovalState.WITHDRAWN])
def test_every_end_takes_the_buttons_away(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, state: ApprovalState
) -> None:
    view = question(incident(node))
    stores.ledger.upsert_approval(view)
    settle(mirror)
    stores.ledger.upsert_approval(decided(view, state))
    settle(mirror)
    [message] = slack.roots("C0ASKED")
    assert not message.buttons()
    assert state in message.says()


def test_a_slack_that_is_down_delays_and_loses_nothing(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    slack.down = True
    view, asks = incident(node), question(incident(node))
    stores.ledger.upsert_incident(view)
    stores.ledger.upsert_approval(asks)
    calls = sum(slack.calls.values())
    assert mirror.once() > 1.0, "it waits longer where nobody answers"
    assert sum(slack.calls.values()) <= calls + 2, "one call tells that it is down"
    stores.ledger.upsert_approval(decided(asks))
    settle(mirror)
    slack.down = False
    settle(mirror, 6)
    [message] = slack.roots("C0FLEET")
    assert node.name in message.says()
    # Decided while nobody could see it: nothing is asked any more.
    assert all(not one.buttons() for one in slack.roots())


def test_a_post_whose_answer_was_lost_is_found_and_not_sent_twice(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(incident(node))
    slack.trouble.append("after")
    settle(mirror, 4)
    assert len(slack.roots()) == 1
    stores.ledger.upsert_incident(incident(node, state=State.HELD, rev=2))
    settle(mirror)
    [message] = slack.roots()
    assert "held" in message.says()


def test_another_process_goes_on_where_one_has_died(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, chat: SlackChat
) -> None:
    stores.ledger.upsert_incident(incident(node))
    settle(mirror)
    mirror._shown.clear()  # as the next process knows nothing
    versions = slack.roots()[0].versions
    settle(mirror)
    assert [m.versions for m in slack.roots()] == [versions]


def test_one_that_cannot_be_made_keeps_nobody_waiting(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("what nobody thought of")

    monkeypatch.setattr(mirror._facts, "of", broken)
    slack.trouble.append("invalid_blocks")
    stores.ledger.upsert_approval(question(incident(node)))
    stores.ledger.upsert_incident(incident(node))
    stores.ledger.upsert_incident(incident(node, 2, fault="xid/80"))
    settle(mirror)
    assert len(slack.roots("C0FLEET")) == 1, "one is refused by Slack, one can't be made, the third is told"
    calls = sum(slack.calls.values())
    settle(mirror)
    assert sum(slack.calls.values()) == calls, "what is refused isn't tried again at once"


def test_who_does_not_lead_any_more_says_nothing(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.ledger.upsert_incident(incident(node))
    monkeypatch.setattr(mirror, "_leads", lambda: False)
    settle(mirror)
    assert not slack.messages


def test_a_deleted_message_is_told_anew_once(mirror: Mirror, slack: FarSlack, stores: Stores, node: Node) -> None:
    stores.ledger.upsert_incident(incident(node))
    settle(mirror)
    slack.roots()[0].deleted = True
    stores.ledger.upsert_incident(incident(node, state=State.VERIFYING, rev=2))
    settle(mirror, 4)
    assert len(slack.roots()) == 1
    assert "verifying" in slack.roots()[0].says()


def test_a_storm_is_one_message(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [incident(node.model_copy(update={"name": f"gpu-{n:03}"}), n) for n in range(400)]
    for view in views:
        stores.ledger.upsert_incident(view)
    settle(mirror, 4)
    [storm] = slack.roots("C0FLEET")
    assert "400 nodes" in storm.says()
    for view in views[:399]:
        ended = view.model_copy(update={"state": State.ENDED, "end": End.RETURNED, "rev": 2})
        stores.ledger.upsert_incident(ended)
    later = datetime.now(UTC) + timedelta(minutes=1)
    monkeypatch.setattr(mirror, "_now", lambda: later)
    settle(mirror, 4)
    assert "1 open" in storm.says()
    assert "399 returned" in storm.says()
    last = views[399].model_copy(update={"state": State.ENDED, "end": End.RETURNED, "rev": 2})
    stores.ledger.upsert_incident(last)
    monkeypatch.setattr(mirror, "_now", lambda: later + timedelta(minutes=1))
    settle(mirror, 4)
    assert "0 open" in storm.says()
    assert len(slack.messages) == 1
    assert storm.versions <= 4
    # One more of the same fault, long after, is an incident of its own.
    stores.ledger.upsert_incident(incident(node, 1_000))
    monkeypatch.setattr(mirror, "_now", lambda: later + timedelta(hours=1))
    settle(mirror)
    assert len(slack.roots()) == 2
    # The members' lines are told in the storm's thread.
    assert places(stores, "slack")("inc-7").reference == storm.ts  # type: ignore[union-attr]


def test_the_pace_of_a_channel_is_kept_and_429_obeyed(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, chat: SlackChat
) -> None:
    clock = [0.0]
    chat.api.pacing = Pacing(lambda: clock[0])
    for n in range(3):
        stores.ledger.upsert_incident(incident(node, n, fault=f"xid/{n + 70}"))
    mirror.once()
    mirror.once()
    assert len(slack.roots()) == 1, "one a second in a channel"
    clock[0] += 1.0
    slack.trouble.append("429")
    mirror.once()
    calls = slack.calls["chat.postMessage"]
    clock[0] += 6.0
    mirror.once()
    assert slack.calls["chat.postMessage"] == calls, "seven seconds were asked for"
    for _ in range(2):
        clock[0] += 1.1
        mirror.once()
    assert len(slack.roots()) == 3


def test_routes_lead_by_pool_severity_and_team(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, chat: SlackChat
) -> None:
    route = Route(classes=(FaultClass.CRITICAL,), clusters=(node.cluster,), channel="C0ONCALL", approvals="C0TEAM")
    chat.options = chat.options.model_copy(update={"routes": (route,)})
    view = incident(node)
    stores.ledger.upsert_incident(view)
    stores.ledger.upsert_incident(incident(node, 2, fault_class=FaultClass.UNKNOWN, fault="xid/13"))
    stores.ledger.upsert_approval(question(view))
    settle(mirror, 4)
    assert [len(slack.roots(c)) for c in ("C0ONCALL", "C0FLEET", "C0TEAM", "C0ASKED")] == [1, 1, 1, 0]


def test_a_team_has_its_own_channel(mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat) -> None:
    cluster = mirror._facts._registry.cluster("sim-a")
    node, owner = next((n, w.owner) for n in cluster.nodes() if n.gpus for w in cluster.workloads(n.name) if w.owner)
    chat.options = chat.options.model_copy(update={"routes": (Route(teams=(owner,), channel="C0TEAM"),)})
    chat.tells_owners = True
    stores.ledger.upsert_incident(incident(node, state=State.HELD))
    stores.ledger.upsert_approval(question(incident(node)))
    settle(mirror, 4)
    assert len(slack.roots("C0TEAM")) == 2
    assert not slack.roots("C0FLEET")


def test_a_jobs_owner_is_told_before_it_is_evicted_and_when_it_has_left(
    mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat, registry: object
) -> None:
    cluster = mirror._facts._registry.cluster("sim-a")
    node, owner = next((n, w.owner) for n in cluster.nodes() if n.gpus for w in cluster.workloads(n.name) if w.owner)
    chat.options = chat.options.model_copy(update={"owners": {owner: "C0TEAM"}})
    chat.tells_owners = True
    view = incident(node, state=State.WAITING_LEASE)
    stores.ledger.upsert_incident(view)
    settle(mirror)
    [before] = slack.roots("C0TEAM")
    assert "will be emptied" in before.says()
    result = {"outcome": "done", "reason": "nothing is left; job-7: requeued, it waits in its queue"}
    line = Line(
        key=StepKey(incident=view.id, step="evacuate"), at=NOW, kind="step", text="evacuate: done",
        data={"step": "evacuate", "result": result},
    )  # fmt: skip
    stores.ledger.add_lines([line])
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.ACTING, "rev": 2}))
    settle(mirror)
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.PROVING, "rev": 3}))
    settle(mirror)
    [_, after] = slack.roots("C0TEAM")
    assert "requeued" in after.says()


def told_of_owner(mirror: Mirror, chat: SlackChat) -> Node:
    """A node whose job's owner is told in C0TEAM."""
    cluster = mirror._facts._registry.cluster("sim-a")
    node, owner = next((n, w.owner) for n in cluster.nodes() if n.gpus for w in cluster.workloads(n.name) if w.owner)
    chat.options = chat.options.model_copy(update={"owners": {owner: "C0TEAM"}})
    chat.tells_owners = True
    return node


def decision(view: IncidentView, n: int = 1, **data: object) -> Line:
    key = StepKey(incident=view.id, step="plan", n=n)
    said: dict[str, object] = {"hash": view.plan_hash, "drain": None, "approval": None}
    return Line(key=key, at=NOW, kind="decision", text="wait", data={**said, **data})  # type: ignore[dict-item]


@pytest.mark.parametrize("drain", ["job_end", None])
def test_an_owner_is_told_of_a_drain_before_a_providers_event_and_of_no_wait_that_keeps_the_work(
    mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat, drain: str | None
) -> None:
    node = told_of_owner(mirror, chat)
    view = incident(node, rung="wait", plan_hash="h1", state=State.WAITING_LEASE)
    stores.ledger.upsert_incident(view)
    settle(mirror)
    assert not slack.roots("C0TEAM"), "what the plan does isn't written yet"
    stores.ledger.add_lines([decision(view, drain=drain)])
    stores.ledger.upsert_incident(view.model_copy(update={"rev": 2}))
    settle(mirror)
    assert ["will be emptied" in one.says() for one in slack.roots("C0TEAM")] == ([True] if drain else [])


@pytest.mark.parametrize("state", [State.HANDED_OVER, State.OBSERVED])
def test_an_owner_hears_that_the_job_stays_after_a_no_and_of_the_next_plan_anew(
    mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat, state: State
) -> None:
    node = told_of_owner(mirror, chat)
    view = incident(node, state=State.WAITING_APPROVAL, plan_hash="h1")
    stores.ledger.upsert_incident(view)
    settle(mirror)
    [asked] = slack.roots("C0TEAM")
    assert "as soon as people have said yes" in asked.says()
    assert "will be emptied" not in asked.says(), "nobody has agreed to that yet"
    # The plan that hands over names no rung.
    said = "ada said no: the team needs it until Friday"
    stores.ledger.upsert_incident(view.model_copy(update={"state": state, "rung": None, "summary": said, "rev": 2}))
    settle(mirror)
    [_, stays] = slack.roots("C0TEAM")
    assert "your jobs stay on it after all" in stays.says()
    assert said in stays.says()
    stores.ledger.upsert_incident(view.model_copy(update={"state": state, "rung": None, "rev": 3}))
    settle(mirror)
    assert len(slack.roots("C0TEAM")) == 2, "once"
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.WAITING_LEASE, "rev": 4}))
    settle(mirror)
    assert "will be emptied" in slack.roots("C0TEAM")[2].says()
    ended = view.model_copy(update={"state": State.ENDED, "end": End.WITHDRAWN, "rev": 5})
    stores.ledger.upsert_incident(ended)
    settle(mirror)
    assert "stay on it after all" in slack.roots("C0TEAM")[3].says()


def test_a_drain_that_is_over_before_slack_is_back_is_told_by_its_end_alone(
    mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat
) -> None:
    node = told_of_owner(mirror, chat)
    view = incident(node, state=State.WAITING_LEASE)
    stores.ledger.upsert_incident(view)
    slack.down = True
    settle(mirror)
    result = {"outcome": "done", "reason": "job-7: requeued"}
    key = StepKey(incident=view.id, step="evacuate")
    data = {"step": "evacuate", "result": result}
    stores.ledger.add_lines([Line(key=key, at=NOW, kind="step", text="evacuate: done", data=data)])  # type: ignore[dict-item]
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.ACTING, "rev": 2}))
    settle(mirror)
    slack.down = False
    settle(mirror, 5)
    [only] = slack.roots("C0TEAM")
    assert "your jobs have left it" in only.says()


WARM = {"fault": "thermal/gpu-temp", "faults": ("thermal/gpu-temp",), "fault_class": FaultClass.TRANSIENT}


def silenced(stores: Stores, node: Node) -> None:
    matcher = Matcher(node=node.name)
    at, until = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    silence = Silence(id="s-1", by="otto", reason="r", at=at, until=until, matcher=matcher, holds=(Holds.NOTIFY,))
    stores.silences.add(silence)


def later(mirror: Mirror, span: timedelta) -> None:
    mirror._now = lambda: datetime.now(UTC) + span


def test_a_silence_keeps_an_incident_out_of_the_channel_until_it_ends(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    silenced(stores, node)
    view = incident(node, **WARM, state=State.HANDED_OVER)
    stores.ledger.upsert_incident(view)
    stores.ledger.upsert_approval(question(view))
    stores.ledger.upsert_incident(incident(node, 2, state=State.HANDED_OVER))
    settle(mirror)
    assert [one.says() for one in slack.roots("C0FLEET") if "thermal" in one.says()] == []
    assert len(slack.roots("C0FLEET")) == 1, "what is latched is told all the same"
    assert len(slack.roots("C0ASKED")) == 1, "and what people must answer"
    stores.ledger.upsert_incident(view.model_copy(update={"summary": "warmer", "rev": 2}))
    settle(mirror)
    assert len(slack.roots("C0FLEET")) == 1
    stores.silences.end("s-1", "otto", NOW)
    later(mirror, timedelta(minutes=1))
    settle(mirror)
    assert any("warmer" in one.says() for one in slack.roots("C0FLEET")), "it is open still, so it is told now"


def test_what_was_told_before_the_silence_goes_on_saying_what_is_true(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node
) -> None:
    view = incident(node, **WARM)
    stores.ledger.upsert_incident(view)
    settle(mirror)
    silenced(stores, node)
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.ENDED, "end": End.WITHDRAWN, "rev": 2}))
    settle(mirror)
    [message] = slack.roots("C0FLEET")
    assert "withdrawn" in message.says()


def test_an_owner_is_not_told_of_what_is_silenced_until_that_ends(
    mirror: Mirror, slack: FarSlack, stores: Stores, chat: SlackChat
) -> None:
    node = told_of_owner(mirror, chat)
    view = incident(node, **WARM, state=State.WATCHING)
    stores.ledger.upsert_incident(view)
    settle(mirror)
    silenced(stores, node)
    stores.ledger.upsert_incident(view.model_copy(update={"state": State.WAITING_LEASE, "rev": 2}))
    settle(mirror)
    assert not slack.roots("C0TEAM")
    assert "waiting_lease" in slack.roots("C0FLEET")[0].says()
    stores.silences.end("s-1", "otto", NOW)
    later(mirror, timedelta(minutes=1))
    settle(mirror)
    assert len(slack.roots("C0TEAM")) == 1


def test_lines_are_told_in_the_incidents_thread(
    mirror: Mirror, slack: FarSlack, stores: Stores, node: Node, chat: SlackChat
) -> None:
    stores.ledger.upsert_incident(incident(node))
    settle(mirror)
    [root] = slack.roots()
    ref = chat.post("inc-1/notify/1", "inc-1", "xid/79 → reboot <!channel> & more")
    chat.post("inc-1/notify/2", "inc-1", "@here handed over")
    first, second = slack.messages[1:]
    assert (first.thread, first.broadcast, first.text) == (
        root.ts,
        False,
        "xid/79 → reboot &lt;!channel&gt; &amp; more",
    )
    assert (second.thread, second.broadcast, second.text) == (root.ts, True, "<!here> handed over")
    assert chat.find("inc-1/notify/1") == ref
    assert chat.find("inc-1/notify/9") is None


def test_a_campaign_asks_for_itself(mirror: Mirror, slack: FarSlack, stores: Stores, node: Node) -> None:
    waiter = (
        asked()
        .waiters[0]
        .model_copy(
            update={
                "incident": "driver-570",
                "cluster": "sim-a, sim-b",
                "node": "64 nodes",
                "text": "reboot of 64 nodes",
            }
        )
    )
    stores.ledger.upsert_approval(asked(id="campaign-driver-570", waiters=(waiter,), fleet_wide=True))
    settle(mirror)
    [message] = slack.roots("C0ASKED")
    assert "cluster sim-a, sim-b, node 64 nodes" in message.says()
    assert "reboot of 64 nodes" in message.says()


def test_takings_and_old_posts_are_forgotten(stores: Stores) -> None:
    old = NOW - timedelta(days=40)
    gone = Post(key="incident/old", system="slack", channel="C", reference="1", digest="d", at=old, over=True)
    stores.posts.put([gone, gone.model_copy(update={"key": "incident/open", "over": False})])
    assert stores.posts.take("T", "request/1", NOW - timedelta(hours=1))
    assert not stores.posts.take("T", "request/1", NOW)
    assert stores.posts.forget(NOW - timedelta(days=30), taken_before=NOW - timedelta(minutes=15)) == 2
    assert set(stores.posts.standing("slack")) == {"incident/open"}
