"""The gateway as its own OpenAPI describes it, under random requests: whatever is sent, never a 5xx.

503 is an answer that some requests deserve (`Retry-After` says so); none of these do, nothing is down here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from medevac.events.registry import sources
from tests.unit.events.test_any_bytes import SEEDS
from tests.unit.worker.conftest import SENDER, bearer, sha
from worker.children import free_port
from worker.gateway.app import create_app
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.speakers import Sender, Token

FEW = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def url(services: Services) -> Iterator[str]:
    """A gateway that really listens, on which every source may be posted."""
    everything = Sender(
        name="everything", sources=sources(), clusters=("sim-a",), bearer=Token(sha256=sha("prometheus-token"))
    )
    port = free_port()
    app = create_app(replace(services, senders=Senders([everything])))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def test_no_operation_answers_5xx(url: str) -> None:
    operations = [found.ok() for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations()]
    assert len(operations) > 15
    for operation in operations:
        under_random_requests(operation)


def under_random_requests(operation: Any) -> None:
    headers = SENDER if operation.path.startswith("/v1/events") else bearer("grace-token")

    @FEW
    @given(case=operation.as_strategy())
    def random_requests(case: Any) -> None:
        case.call_and_validate(checks=[not_a_server_error], headers=headers)

    random_requests()


@pytest.mark.parametrize("source", sources())
def test_no_body_answers_5xx(url: str, source: str) -> None:
    """Payloads of several senders with a piece cut out, doubled, or overwritten; and bytes of no meaning."""

    def spoilt(drawn: tuple[bytes, int, int, bytes]) -> bytes:
        body, at, length, other = drawn
        at %= len(body) + 1
        return body[:at] + other + body[at + length :]

    bodies = st.one_of(
        st.binary(max_size=200),
        st.tuples(st.sampled_from(SEEDS), st.integers(0, 10_000), st.integers(0, 50), st.binary(max_size=20)).map(
            spoilt
        ),
    )

    with httpx.Client(base_url=url) as client:

        @FEW
        @given(
            body=bodies, kind=st.sampled_from(["application/json", "text/plain", "application/cloudevents+json", ""])
        )
        def random_bodies(body: bytes, kind: str) -> None:
            answer = client.post(f"/v1/events/{source}", content=body, headers={**SENDER, "Content-Type": kind})
            assert answer.status_code < 500, answer.text

        random_bodies()
