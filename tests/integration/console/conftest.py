"""A gateway that really listens, over a real ledger and a simulated fleet; only the workflow engine is a stub."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import uvicorn

from medevac.approvals.approval import ApprovalState, ApprovalView, Waiter
from medevac.cases.case import Case, Heard, Known, Subject, Ticket
from medevac.cases.replies import Proposal
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import IncidentView, Line, State, StepKey
from medevac.policy.plan import ApprovalNeed
from tests.unit.worker.conftest import (  # noqa: F401 - its fixtures
    engine,
    node,
    registry,
    services,
    stores,
    world,
)
from tests.unit.worker.test_cases import case
from worker.children import free_port
from worker.gateway.app import create_app
from worker.gateway.services import Services
from worker.stores import Stores

NOW = datetime.now(UTC)
ENDING: dict[str, Callable[[], object]] = {}
"""What a stopping gateway does first, by its URL."""


def incident_of(node: Node, **changed: object) -> IncidentView:  # noqa: F811
    view = IncidentView(
        id="inc-1",
        workflow_id=f"node/{node.cluster}/{node.name}",
        cluster=node.cluster,
        node=node.name,
        pool=node.pool,
        fault="xid/79",
        fault_class=FaultClass.CRITICAL,
        faults=("xid/79",),
        state=State.WAITING_APPROVAL,
        opened_at=NOW - timedelta(minutes=5),
        updated_at=NOW - timedelta(minutes=4),
        waiting_for="the yes of an approver",
        summary="xid/79 (GPU has fallen off the bus) is critical",
        rung="reboot",
    )
    return view.model_copy(update=changed)


def lines_of(incident: str) -> list[Line]:
    at = NOW - timedelta(minutes=4)
    return [
        Line(key=StepKey(incident=incident, step="event"), at=at, kind="event", text="kmsg: xid/79 new"),
        Line(
            key=StepKey(incident=incident, step="decision"),
            at=at + timedelta(seconds=1),
            kind="decision",
            text="reboot for xid/79\nxid/79 is critical",
            data={"passed_over": ["reset_gpu: <b>not known</b> to mend xid/79"], "destroys": ["job-7 (8 GPUs)"]},
        ),
        Line(
            key=StepKey(incident=incident, step="mark"),
            at=at + timedelta(seconds=2),
            kind="step",
            text="mark: done",
            data={"result": {"outcome": "done"}},
        ),
    ]


def case_of(node: Node) -> Case:  # noqa: F811
    """A ticket that was answered, with a hostile word in it."""
    return case(
        subjects=(Subject(incident="inc-1", cluster=node.cluster, node=node.name, was=Known(machine_id="m-1")),),
        ticket=Ticket(system="desk", id="T-1", url="https://desk.example/T-1"),
        why="they have it",
        heard=(Heard(id="r1", at=NOW, author="desk", text="It was <b>not</b> replaced", proposal=Proposal.READ),),
        due_at=NOW - timedelta(minutes=1),
    )


def asked(node: Node, **changed: object) -> ApprovalView:  # noqa: F811
    view = ApprovalView(
        id="inc-1-0123abcd",
        workflow_id="approval/inc-1-0123abcd",
        title=f"reboot {node.name} for xid/79",
        state=ApprovalState.PENDING,
        fleet_wide=False,
        need=ApprovalNeed(groups=("approver",), expires_s=3_600, why=("the pool asks first",)),
        requested_by="medevac",
        requested_at=NOW - timedelta(minutes=3),
        expires_at=NOW + timedelta(hours=24),
        waiters=(
            Waiter(
                incident="inc-1",
                workflow_id=f"node/{node.cluster}/{node.name}",
                cluster=node.cluster,
                node=node.name,
                plan_hash="h",
                text="reboot for xid/79",
                destroys=("job-7 (8 GPUs)",),
            ),
        ),
        shown_hash="0123456789abcdef",
        rev=1,
    )
    return view.model_copy(update=changed)


@pytest.fixture
def sick(stores: Stores, node: Node) -> Node:  # noqa: F811
    """A node with an open incident that waits for a yes."""
    stores.ledger.upsert_incident(incident_of(node))
    stores.ledger.add_lines(lines_of("inc-1"))
    stores.ledger.upsert_approval(asked(node))
    stores.cases.join("inc-1", "m-1", "ironworks", NOW, lambda about, same: case_of(node))
    return node


@pytest.fixture
def gateway(services: Services) -> Iterator[str]:  # noqa: F811
    port = free_port()
    app = create_app(services)
    server = uvicorn.Server(
        uvicorn.Config(
            app, host="127.0.0.1", port=port, log_level="critical", lifespan="off", proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
    )  # fmt: skip
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    url = f"http://127.0.0.1:{port}"
    loop = server.servers[0].get_loop()
    ENDING[url] = lambda: loop.call_soon_threadsafe(app.state.console.close)
    yield url
    server.should_exit = True
    ENDING.pop(url)()
    thread.join()


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx.AsyncClient]:  # noqa: F811
    transport = httpx.ASGITransport(app=create_app(services), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as found:
        yield found
