"""Who is needed is woken once, at every pager, and told when it is over; whatever the pager did in between."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from activities.paging import opsgenie, others, pagerduty
from activities.ports import CanBeAsked, NotSent, Page, Pager, Unclear
from activities.storage.tables import breakers
from medevac.approvals.approval import ApprovalResult, ApprovalState, ApprovalView, Waiter
from medevac.campaigns.listing import CampaignPlan, Member
from medevac.campaigns.progress import CampaignState, ordered
from medevac.campaigns.spec import Act, Selector, Spec
from medevac.events.parsing import Payload
from medevac.events.registry import read
from medevac.faults.faultset import FaultSet
from medevac.fleet.node import Node
from medevac.incident import End, State
from medevac.policy.loading import load, preset
from medevac.policy.plan import ApprovalNeed, Reminder
from tests.integration.paging.far_side import GENIE_KEY, ROUTING_KEY, FarSide, far_side
from tests.unit.worker.conftest import node as node
from tests.unit.worker.conftest import stores as stores
from tests.unit.worker.conftest import view_of
from tests.unit.worker.conftest import world as world
from worker.intake.resolving import opens
from worker.paging import ALONE, Pages
from worker.stores import Stores

NOW = datetime.now(UTC)
PAGE = Page(key="medevac/test/incident/1", title="medevac: c/n1: xid/79: handed over", source="c/n1")


@pytest.fixture
def far() -> Iterator[FarSide]:
    with far_side() as far:
        yield far


@pytest.fixture(params=["pagerduty", "opsgenie"])
def pager(request: pytest.FixtureRequest, far: FarSide, monkeypatch: pytest.MonkeyPatch) -> Pager:
    monkeypatch.setenv("PAGER_KEY", ROUTING_KEY if request.param == "pagerduty" else GENIE_KEY)
    if request.param == "pagerduty":
        return pagerduty.make("oncall", {"routing_key": {"env": "PAGER_KEY"}, "url": far.url})
    return opsgenie.make("oncall", {"api_key": {"env": "PAGER_KEY"}, "url": far.url})


@pytest.fixture
def pages(stores: Stores, pager: Pager) -> Pages:
    return Pages(stores, [pager], "test")


def look(pages: Pages, stores: Stores, at: datetime = NOW) -> None:
    pages.look(stores.ledger.incidents(limit=1_000), at)


def put(stores: Stores, node: Node, **changed: object) -> None:
    stores.ledger.upsert_incident(view_of(node, **changed))


# -- the systems ---------------------------------------------------------------------------------------------------


def test_a_page_stands_once_and_is_resolved_by_its_key(pager: Pager, far: FarSide) -> None:
    pager.page(PAGE)
    pager.page(PAGE)
    assert list(far.open) == [PAGE.key]
    pager.resolve(PAGE)
    assert not far.open
    pager.resolve(PAGE)


def test_asked_whether_it_would_be_heard_it_wakes_nobody(pager: Pager, far: FarSide) -> None:
    assert isinstance(pager, CanBeAsked)
    assert "by hand" in pager.ask()
    assert not far.open
    assert all("trigger" not in json.dumps(body) and path != "/v2/alerts" for path, body in far.calls)
    far.failing = True
    with pytest.raises(Unclear, match="503"):
        pager.ask()


def test_the_longest_page_is_taken(pager: Pager, far: FarSide) -> None:
    pager.page(PAGE.model_copy(update={"title": "x" * 5_000, "text": "y" * 50_000}))
    assert list(far.open) == [PAGE.key]


def test_a_wrong_key_is_said_without_the_key(pager: Pager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER_KEY", "a-wrong-key-that-nobody-knows")
    with pytest.raises(NotSent) as caught:
        pager.page(PAGE)
    assert caught.value.final
    assert "a-wrong-key" not in str(caught.value)


def test_a_throttled_call_says_when_to_come_again(pager: Pager, far: FarSide) -> None:
    far.throttled = 1
    with pytest.raises(NotSent) as caught:
        pager.page(PAGE)
    assert caught.value.retry_after_s == 7
    assert not caught.value.final


@pytest.mark.filterwarnings("ignore:.*imghdr:DeprecationWarning")
def test_other_notifiers_are_told_both(far: FarSide, tmp_path: Path) -> None:
    address = tmp_path / "address"
    address.write_text(far.url.replace("http://", "json://"))
    pager = others.make("team", {"url": {"file": str(address)}})
    pager.page(PAGE)
    pager.resolve(PAGE)
    assert [body["title"] for _, body in far.calls] == [PAGE.title, f"resolved: {PAGE.title}"]


# -- what stands follows the ledger --------------------------------------------------------------------------------


def test_handed_over_pages_once_and_is_resolved_when_it_is_over(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    put(stores, node, state=State.HANDED_OVER, fault="xid/79", rev=1)
    for _ in range(3):
        look(pages, stores)
    assert list(far.open) == ["medevac/test/incident/inc-1"]
    assert len(far.calls) == 1
    assert node.name in json.dumps(far.open)
    put(stores, node, state=State.VERIFYING, rev=2)
    look(pages, stores)
    assert not far.open
    put(stores, node, state=State.HANDED_OVER, fault="xid/79", rev=3)
    look(pages, stores)
    assert len(far.open) == 1, "handed over again wakes somebody again"
    put(stores, node, state=State.ENDED, end=End.RETURNED, rev=4)
    look(pages, stores)
    assert not far.open


def test_an_order_that_nobody_could_plan_for_wakes_somebody_only_where_a_drain_had_begun(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    ordered = {"state": State.HANDED_OVER, "fault": "campaign/drv", "faults": ("campaign/drv",)}
    put(stores, node, **ordered)
    put(stores, node, id="inc-2", drained=True, **ordered)
    look(pages, stores)
    assert list(far.open) == ["medevac/test/incident/inc-2"]


def test_a_pager_that_was_down_is_told_what_is_true_when_it_is_back(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    far.failing = True
    put(stores, node, state=State.HANDED_OVER, rev=1)
    put(stores, node, id="inc-2", state=State.HANDED_OVER, rev=1)
    look(pages, stores)
    assert len(far.calls) == 1, "one that is down is not hammered"
    put(stores, node, state=State.ENDED, end=End.RETURNED, rev=2)
    far.failing = False
    look(pages, stores)
    assert list(far.open) == ["medevac/test/incident/inc-2"]


def test_a_throttling_pager_is_left_alone_as_long_as_it_wishes(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    far.throttled = 1
    put(stores, node, state=State.HANDED_OVER)
    look(pages, stores)
    look(pages, stores, NOW + timedelta(seconds=6))
    assert len(far.calls) == 1
    look(pages, stores, NOW + timedelta(seconds=8))
    assert len(far.open) == 1


def test_two_workers_make_one_page(pages: Pages, stores: Stores, node: Node, far: FarSide, pager: Pager) -> None:
    put(stores, node, state=State.HANDED_OVER)
    pager.page(Page(key="medevac/test/incident/inc-1", title="the other worker's", source="x"))
    look(pages, stores)
    assert len(far.open) == 1


def test_a_storm_does_not_wake_everybody_for_each_node(pages: Pages, stores: Stores, node: Node, far: FarSide) -> None:
    for number in range(60):
        put(stores, node, id=f"inc-{number:02}", state=State.HANDED_OVER)
    look(pages, stores)
    assert len(far.open) == ALONE + 1


def question(state: ApprovalState, incident: str, id: str = "q-1") -> ApprovalView:
    waiter = Waiter(incident=incident, workflow_id="w", cluster="sim-a", node="n", plan_hash="h", text="reboot n")
    return ApprovalView(
        id=id, workflow_id="approval/q", title="reboot n?", state=state, fleet_wide=False,
        need=ApprovalNeed(groups=("approver",), expires_s=60, why=("it asks",)), requested_by="medevac",
        requested_at=NOW - timedelta(hours=1), expires_at=NOW, waiters=(waiter,), shown_hash="h",
        result=ApprovalResult(id=id, state=state, decided_at=NOW),
    )  # fmt: skip


def test_an_unanswered_question_pages_under_its_incident_or_by_itself(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    put(stores, node, state=State.OBSERVED, rev=1)
    stores.ledger.upsert_approval(question(ApprovalState.EXPIRED, "inc-1"))
    stores.ledger.upsert_approval(question(ApprovalState.EXPIRED, "a-campaign", "q-2"))
    stores.ledger.upsert_approval(question(ApprovalState.REJECTED, "another-campaign", "q-3"))
    look(pages, stores)
    assert set(far.open) == {"medevac/test/incident/inc-1", "medevac/test/approval/q-2"}
    put(stores, node, state=State.ENDED, end=End.WITHDRAWN, rev=2)
    look(pages, stores, NOW + timedelta(hours=25))
    assert not far.open


def test_an_open_breaker_pages_until_it_closes(pages: Pages, stores: Stores, far: FarSide) -> None:
    row = {"cluster": "sim-a", "cause": "xid/79", "opened_at": NOW, "reason": "5 nodes in 30 minutes", "votes": []}
    with stores.database.transaction() as connection:
        connection.execute(sa.insert(breakers).values(**{c.name: row[c.name] for c in breakers.c if c.name in row}))
    look(pages, stores)
    assert list(far.open) == ["medevac/test/breaker/sim-a/xid/79"]
    with stores.database.transaction() as connection:
        connection.execute(sa.update(breakers).values(closed_at=NOW))
    look(pages, stores)
    assert not far.open


def test_an_open_question_pages_from_its_reminder_on_where_the_policy_says_so(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    def ask(id: str, reminder: Reminder | None) -> ApprovalView:
        view = ApprovalView(
            id=id, workflow_id=f"approval/{id}", title=f"reboot {id}?", state=ApprovalState.PENDING, fleet_wide=False,
            need=ApprovalNeed(groups=("approver",), expires_s=7_200, why=("asked",), reminder=reminder),
            requested_by="medevac", requested_at=NOW, expires_at=NOW + timedelta(hours=2), shown_hash="h",
            waiters=(Waiter(incident="i", workflow_id="w", cluster="c", node="n", plan_hash="p", text="t"),), rev=1,
        )  # fmt: skip
        stores.ledger.upsert_approval(view)
        return view

    view = ask("a-1", Reminder(after_s=3_600, then=("oncall",), page=True))
    ask("a-2", Reminder(after_s=3_600, then=("oncall",)))
    ask("a-3", None)
    look(pages, stores, NOW + timedelta(minutes=59))
    assert not far.open
    look(pages, stores, NOW + timedelta(hours=1))
    assert list(far.open) == ["medevac/test/approval/a-1"]
    assert "approver or oncall may vote" in json.dumps(far.open)
    result = ApprovalResult(id="a-1", state=ApprovalState.APPROVED, by=("ada",), decided_at=NOW)
    stores.ledger.upsert_approval(view.model_copy(update={"state": result.state, "result": result, "rev": 2}))
    look(pages, stores, NOW + timedelta(minutes=61))
    assert not far.open


def test_an_order_for_which_nothing_could_be_planned_wakes_nobody(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    order = {"fault": "campaign/driver", "faults": ("campaign/driver",), "state": State.HANDED_OVER}
    put(stores, node, **order)
    look(pages, stores)
    assert not far.open, "its campaign notes it as left out"
    put(stores, node, **order, rung="reboot", rev=1)
    look(pages, stores)
    assert len(far.open) == 1, "what was begun and stays with a person is that person's"


def test_a_campaign_that_halts_by_itself_pages_until_people_go_on(
    pages: Pages, stores: Stores, node: Node, far: FarSide
) -> None:
    spec = Spec(
        id="driver", act=Act.REBOOT, reason="driver 580", requested_by="ada", selector=Selector(pools=("train",))
    )
    member = Member(cluster=node.cluster, node=node.name, uid=None, machine_id="m", pool="train", rack="r1")
    plan = CampaignPlan(
        spec=spec, policy_version=1, made_at=NOW, members=(member,), skipped=(), at_once=1, estimate_s=60
    )
    stores.campaigns.put(plan, "campaign-driver", NOW)
    stores.campaigns.move("driver", CampaignState.HALTED, "it failed on 2 of 3 nodes; 2% would be usual", NOW)
    look(pages, stores)
    assert list(far.open) == ["medevac/test/campaign/driver"]
    assert "failed on 2 of 3 nodes" in json.dumps(far.open)
    stores.campaigns.move("driver", CampaignState.RUNNING, "running by ada", NOW)
    look(pages, stores)
    assert not far.open
    stores.campaigns.move("driver", CampaignState.HALTED, ordered(CampaignState.HALTED, "ada", "wrong image"), NOW)
    look(pages, stores)
    assert not far.open, "who halts it knows"


def test_one_page_that_is_never_taken_does_not_stop_the_others(
    stores: Stores, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    taken = []

    class Picky:
        name, simulated = "picky", False

        def page(self, page: Page) -> None:
            if page.key.endswith("inc-1"):
                raise NotSent("HTTP 400", final=True)
            taken.append(page.key)

        def resolve(self, page: Page) -> None: ...

    put(stores, node, state=State.HANDED_OVER, opened_at=NOW - timedelta(hours=1))
    put(stores, node, id="inc-2", state=State.HANDED_OVER)
    with caplog.at_level(logging.CRITICAL):
        look(Pages(stores, [Picky()], "test"), stores)
    assert taken == ["medevac/test/incident/inc-2"]


# -- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["pagerduty", "opsgenie"])
def test_our_own_pages_come_back_as_nobodys_fault(system: str) -> None:
    title = "medevac: sim-a/gpu-node-07: xid/79: handed over to a person"
    key = "medevac/test/incident/inc-1"
    if system == "pagerduty":
        data = {"type": "incident", "id": "PT4KHLK", "title": title, "incident_key": key}
        body: dict[str, object] = {
            "event": {
                "id": "01", "event_type": "incident.triggered", "occurred_at": NOW.isoformat(), "data": data,
            }
        }  # fmt: skip
    else:
        alert = {
            "alertId": "1",
            "message": title,
            "alias": key,
            "entity": "sim-a/gpu-node-07",
            "updatedAt": 1,
            "tags": [],
        }
        body = {"action": "Create", "alert": alert}
    (event,) = read(system, Payload(body=json.dumps(body).encode(), headers={})).events
    assert event.marker
    assert not opens(event, load(preset("default"))), "opens no incident"
    assert FaultSet().observe(event, NOW).faults == FaultSet(), "joins none"
