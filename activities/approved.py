"""Whether people really said yes: the votes in the ledger, counted again where something is about to be destroyed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from activities.failures import UNREADABLE_RETRY_S, Refused, unreadable, waits
from activities.storage.campaigns import Campaigns
from activities.storage.ledger import Ledger
from medevac.approvals import tally
from medevac.approvals.approval import ApprovalResult, ApprovalState, ApprovalView
from medevac.approvals.signing import Signatures
from medevac.fleet.order import Order

REMEMBERED = 200
"""Decided questions don't change; a fleet's may be long, and every call looks."""


class Approved:
    """A message that claims a yes is believed only as far as signed votes in the ledger bear it out."""

    def __init__(self, ledger: Ledger, campaigns: Campaigns, vote_keys: Sequence[str]) -> None:
        self._ledger = ledger
        self._campaigns = campaigns
        self._signatures = Signatures(vote_keys)
        self._results: OrderedDict[str, ApprovalResult] = OrderedDict()

    def check(self, approval: str, incident: str) -> None:
        """Raises `Refused`, or a retryable error while the ledger doesn't hold the decision."""
        result = self._results.get(approval)
        if result is None:
            result = self._counted(self._view(approval))
            self._results[approval] = result
            while len(self._results) > REMEMBERED:
                self._results.popitem(last=False)
        if incident not in result.covers:
            raise Refused(f"approval {approval} was not given for this incident")

    def check_order(self, order: Order, cluster: str, node: str) -> None:
        """A campaign's: agreed to by signed votes, and still wanted of this node."""
        self.check(order.approval, order.campaign)
        try:
            why_not = self._campaigns.why_not(order, cluster, node)
        except Exception as error:
            raise unreadable("the campaigns", error) from None
        if why_not:
            raise Refused(why_not)

    def _view(self, approval: str) -> ApprovalView:
        try:
            view = self._ledger.approval(approval)
        except Exception as error:
            raise unreadable("the ledger", error) from None
        if view is None or view.state is ApprovalState.PENDING:
            raise waits(f"the ledger doesn't hold the decision of approval {approval} yet", UNREADABLE_RETRY_S)
        return view

    def _counted(self, view: ApprovalView) -> ApprovalResult:
        if view.result is None or view.state is not ApprovalState.APPROVED:
            raise Refused(f"approval {view.id} is {view.state} in the ledger")
        genuine = tuple(vote for vote in view.votes if self._signatures.genuine(vote))
        again = view.model_copy(update={"votes": genuine, "result": None})
        counted = tally.result(again, view.result.decided_at)
        if counted is None or counted.state is not ApprovalState.APPROVED:
            raise Refused(
                f"approval {view.id}: {len(genuine)} of its {len(view.votes)} votes were signed by a known gateway,"
                f" {view.need.threshold} are needed; see `vote_keys` in the configuration"
            )
        return view.result
