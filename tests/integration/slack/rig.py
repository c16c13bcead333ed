"""Two gateways and a worker over a real Temporal server and one ledger; people in Slack and with tokens."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client

from medevac.approvals import tally
from medevac.approvals.approval import ApprovalRequest, ApprovalView, Waiter
from medevac.policy.plan import ApprovalNeed
from tests.integration.intake.rig import Process, Rig
from tests.integration.slack.far_slack import SECRET, TEAM, TOKEN, FarSlack, options
from worker.installation import find_config
from worker.vote_keys import public_keys
from workflows.messages import APPROVAL, ApprovalInput

IN_SLACK = {"ada": "U0ADA", "kim": "U0KIM"}
"""`grace` has a token only."""
ENV = {"TEST_SLACK_BOT": TOKEN, "TEST_SLACK_SECRET": SECRET}


class PeopleRig:
    def __init__(self, path: Path) -> None:
        self.rig = Rig(path)
        self.slack = FarSlack(strict=False).start()
        config = self.rig.home.config
        text = config.read_text()
        for who, user in IN_SLACK.items():
            text = text.replace(f"  - id: {who}\n", f"  - id: {who}\n    slack: {{team: {TEAM}, user: {user}}}\n")
        chat = {"name": "slack", "kind": "slack", "options": options(self.slack)}
        config.write_text(text + f"chat: {json.dumps(chat)}\n")
        self.keys = public_keys(find_config(self.rig.settings))
        self.gateways: list[Process] = []
        self.client: Client | None = None

    async def start(self, gateways: int = 2) -> None:
        await self.rig.start_temporal()
        self.client = await self.rig.client()
        keys = {"MEDEVAC_VOTE_KEY_FILE": str(self.rig.home.vote_key)}
        self.gateways = [Process(self.rig, "gateway", f"gateway-{n}", **ENV, **keys) for n in range(gateways)]
        self.worker = Process(self.rig, "worker", "worker", **ENV)
        await asyncio.gather(*(one.up() for one in (*self.gateways, self.worker)))

    async def close(self) -> None:
        await self.rig.close()
        self.slack.stop()

    def token(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.rig.home.token(who)}"}

    async def ask(self, id: str, threshold: int) -> ApprovalView:
        """A question as an incident puts it: in the ledger first, then with its workflow."""
        assert self.client is not None
        now = datetime.now(UTC)
        request = ApprovalRequest(
            id=id,
            title=f"reboot {id}",
            need=ApprovalNeed(groups=("approver",), threshold=threshold, expires_s=3_600, why=("a test asks",)),
            requested_by="medevac",
            requested_at=now,
            expires_at=now + timedelta(hours=1),
            policy_version=1,
            waiter=Waiter(
                incident=id, workflow_id=f"node/none/{id}", cluster="sim-a", node=id, plan_hash="p", text="x"
            ),
        )
        view = tally.join(None, request, f"approval/{id}")
        await asyncio.to_thread(self.rig.stores.ledger.upsert_approval, view)
        # As after continue-as-new: it stands from the workflow's first moment.
        await self.client.start_workflow(
            APPROVAL,
            ApprovalInput(id=id, vote_keys=tuple(self.keys), carried=view),
            id=f"approval/{id}",
            task_queue="medevac",
        )
        return view
