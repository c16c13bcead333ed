"""What claims to be approved is counted again, from signed votes, before anything is destroyed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.approved import Approved
from activities.failures import Refused
from activities.storage.campaigns import Campaigns
from medevac.approvals import tally
from medevac.approvals.approval import (
    ApprovalRequest,
    ApprovalResult,
    ApprovalState,
    ApprovalView,
    Verdict,
    Vote,
    Waiter,
)
from medevac.policy.plan import ApprovalNeed, Reminder
from tests.unit.activities.house import House
from tests.votes import KEYS, SIGNER

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ASKED = ApprovalRequest(
    id="inc-1-abc",
    title="reboot a/n1",
    need=ApprovalNeed(groups=("approver",), threshold=2, expires_s=600, why=("asked",)),
    requested_by="medevac",
    requested_at=NOW,
    expires_at=NOW + timedelta(minutes=10),
    policy_version=1,
    waiter=Waiter(incident="inc-1", workflow_id="node/a/n1", cluster="a", node="n1", plan_hash="p", text="reboot"),
)


def decided(*, signed: bool = True, voters: tuple[str, ...] = ("ada", "grace")) -> ApprovalView:
    view = tally.join(None, ASKED, "approval/inc-1-abc")
    for voter in voters:
        vote = Vote(
            approval=view.id,
            voter=voter,
            groups=("approver",),
            verdict=Verdict.APPROVE,
            shown_hash=view.shown_hash,
            via="api",
            at=NOW,
        )
        view, _ = tally.cast(view, SIGNER.sign(vote) if signed else vote, NOW)
    result = tally.result(view, NOW)
    return view if result is None else view.model_copy(update={"state": result.state, "result": result})


@pytest.fixture
def approved(house: House) -> Approved:
    return Approved(house.ledger, Campaigns(house.db), KEYS)


def test_signed_votes_are_a_yes_to_those_who_asked_and_nobody_else(house: House, approved: Approved) -> None:
    house.ledger.upsert_approval(decided())
    approved.check("inc-1-abc", "inc-1")
    with pytest.raises(Refused, match="not given for this incident"):
        approved.check("inc-1-abc", "inc-2")


def test_a_yes_that_no_gateway_signed_is_refused(house: House, approved: Approved) -> None:
    house.ledger.upsert_approval(decided(signed=False))
    with pytest.raises(Refused, match="0 of its 2 votes were signed"):
        approved.check("inc-1-abc", "inc-1")


def test_a_result_that_its_votes_do_not_bear_out_is_refused(house: House, approved: Approved) -> None:
    whole, half = decided(), decided(voters=("ada",))
    claimed = half.model_copy(update={"state": ApprovalState.APPROVED, "result": whole.result, "rev": 9})
    house.ledger.upsert_approval(claimed)
    with pytest.raises(Refused, match="2 are needed"):
        approved.check("inc-1-abc", "inc-1")


def test_a_decision_that_the_ledger_does_not_hold_yet_is_waited_for(house: House, approved: Approved) -> None:
    for known in (None, decided(voters=())):
        if known:
            house.ledger.upsert_approval(known)
        with pytest.raises(ApplicationError, match="doesn't hold the decision") as caught:
            approved.check("inc-1-abc", "inc-1")
        assert not caught.value.non_retryable


def test_who_voted_as_the_second_group_before_its_time_is_not_counted(house: House, approved: Approved) -> None:
    need = ASKED.need.model_copy(update={"reminder": Reminder(after_s=300, then=("oncall",))})
    view = tally.join(None, ASKED.model_copy(update={"need": need}), "approval/inc-1-abc")
    for voter, group, at in (("ada", "approver", NOW), ("olga", "oncall", NOW)):
        vote = Vote(approval=view.id, voter=voter, groups=(group,), verdict=Verdict.APPROVE, shown_hash=view.shown_hash,
                    via="api", at=at)  # fmt: skip
        view = view.model_copy(update={"votes": (*view.votes, SIGNER.sign(vote))})
    claimed = ApprovalResult(id=view.id, state=ApprovalState.APPROVED, by=("ada", "olga"), covers={"inc-1": "p"},
                             decided_at=NOW + timedelta(minutes=6))  # fmt: skip
    house.ledger.upsert_approval(view.model_copy(update={"state": ApprovalState.APPROVED, "result": claimed}))
    with pytest.raises(Refused, match="2 are needed"):
        approved.check("inc-1-abc", "inc-1")
