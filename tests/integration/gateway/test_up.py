"""`medevac up` as a user starts it: real Temporal server, worker, gateway and command line, in their own processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from medevac.fleet.node import Node
from simulation import senders
from simulation.layout import SKYLINE
from simulation.world import World

MEDEVAC = (sys.executable, "-m", "worker.cli")
LONG_S = 240.0


def until(said: Callable[[], Any], what: str, timeout_s: float = LONG_S) -> Any:
    """Waits for a truthy answer; the deadline only ends a test that would otherwise hang."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if found := said():
                return found
        except (httpx.HTTPError, OSError, ValueError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


@dataclass
class Up:
    home: Path
    process: subprocess.Popen[bytes]
    nodes: list[Node]

    @property
    def running(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "running.json").read_text())
        return found

    def token(self, whose: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / f'{whose}.token').read_text()}"}

    def get(self, path: str, **query: str) -> Any:
        answer = httpx.get(self.running["url"] + path, params=query, headers=self.token("ada"), timeout=90)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, whose: str, **options: Any) -> httpx.Response:
        headers = {**self.token(whose), **options.pop("headers", {})}
        return httpx.post(self.running["url"] + path, headers=headers, timeout=90, **options)

    def deliver(self, sent: senders.Delivery) -> httpx.Response:
        return self.post(sent.path, "sender", content=sent.body, headers=sent.headers)

    def incident(self, node: Node, *states: str) -> dict[str, Any]:
        """The node's incident, once it is in one of the states (or has ended in one)."""

        def there() -> dict[str, Any] | None:
            listed = self.get("/v1/incidents", open="false", node=node.name)
            fits = [i for i in listed if not states or i["state"] in states or i["end"] in states]
            return fits[0] if fits else None

        found: dict[str, Any] = until(there, f"{node.name} in {states or 'any state'}")
        return found

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "MEDEVAC_DATA_DIR": str(self.home)}
        return subprocess.run([*MEDEVAC, *arguments], env=env, capture_output=True, text=True, timeout=LONG_S)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("up") / "home"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MEDEVAC_", "TEMPORAL_"))}
    env |= {"MEDEVAC_DATA_DIR": str(home), "MEDEVAC_GATEWAY_PORT": "0", "MEDEVAC_WORKER_PORT": "0"}
    process = subprocess.Popen([*MEDEVAC, "up"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(lambda: (home / "running.json").exists() or process.poll() is not None, "up")
        assert process.poll() is None, process.stdout.read().decode() if process.stdout else ""
        world = World(home / "world.sqlite")
        # Virtual machines: an uncorrectable memory error is replaced there, which asks a person and waits.
        busy = [n for n in world.nodes() if n.machine.provider == SKYLINE and "medevac.dev/spare" not in n.labels]
        world.close()
        yield Up(home, process, busy)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.stdout:
            process.stdout.close()


def test_a_delivery_becomes_a_marked_incident_and_its_repeats_join_it(up: Up) -> None:
    node = up.nodes[0]
    sent = senders.kmsg_xid(node, 95, datetime.now(UTC))
    assert [part["outcome"] for part in up.deliver(sent).json()["parts"]] == ["accepted"]
    found = up.incident(node, "waiting_approval")
    assert [part["outcome"] for part in up.deliver(sent).json()["parts"]] == ["joined"]
    assert [i["id"] for i in up.get("/v1/incidents", open="false", node=node.name)] == [found["id"]]
    lines = [line["text"] for line in up.get(f"/v1/incidents/{found['id']}")["lines"]]
    assert "mark: done" in lines


def test_a_vote_is_once_only_and_a_late_one_is_told_so(up: Up) -> None:
    node = up.nodes[0]

    def asked() -> list[Any]:
        return [a for a in up.get("/v1/approvals") if node.name in {w["node"] for w in a["waiters"]}]

    [view] = until(asked, "the question")
    ballot = {"verdict": "reject", "shown_hash": view["shown_hash"], "reason": "not now"}
    path = f"/v1/approvals/{view['id']}/votes"
    first = until(lambda: (a := up.post(path, "grace", json=ballot)).status_code != 503 and a, "a vote taken")
    assert first.status_code == 200, first.text
    late = up.post(path, "ada", json={**ballot, "verdict": "approve"})
    assert late.status_code == 409
    assert "grace" in late.json()["error"]
    assert up.incident(node, "handed_over")["end"] is None


def test_the_command_line_reads_and_orders_as_a_person(up: Up) -> None:
    node = up.nodes[0]
    listed = json.loads(up.cli("incidents", "--json").stdout)
    assert node.name in {one["node"] for one in listed}
    assigned = up.cli("assign", node.name, "grace")
    assert (assigned.returncode, assigned.stdout.strip()) == (0, "assigned to grace"), assigned.stderr
    until(lambda: up.incident(node)["owner"] == "grace", "the owner in the ledger")
    unknown = up.cli("abort", "no-such-node", "--reason", "x")
    assert unknown.returncode == 2
    assert "no-such-node" in unknown.stderr
    assert "Traceback" not in unknown.stderr


def test_explain_touches_nothing(up: Up, tmp_path: Path) -> None:
    node = up.nodes[5]
    file = tmp_path / "line.log"
    file.write_bytes(senders.kmsg_xid(node, 79, datetime.now(UTC)).body)
    said = up.cli("explain", "--source", "kmsg", str(file))
    assert said.returncode == 0, said.stderr
    assert node.name in said.stdout
    assert "because" in said.stdout
    assert "would would" not in said.stdout
    assert up.get("/v1/incidents", open="false", node=node.name) == []


def test_doctor_looks_at_the_stack_that_runs_here(up: Up) -> None:
    said = up.cli("doctor")
    assert (said.returncode, said.stdout.count("BAD")) == (0, 0), said.stdout
    assert "workers: 1 worker(s) poll" in said.stdout


def test_without_temporal_nothing_is_claimed_to_be_held_and_it_comes_back(up: Up) -> None:
    node = up.nodes[7]
    sent = senders.kmsg_xid(node, 95, datetime.now(UTC))
    os.kill(up.running["pids"]["temporal"], signal.SIGKILL)
    down = up.deliver(sent)
    # It is restarted within a second or two; a delivery in between must not be lost either way.
    if down.status_code == 503:
        assert int(down.headers["retry-after"]) > 0
    until(lambda: up.deliver(sent).status_code == 202, "a delivery held again")
    assert up.incident(node, "waiting_approval")
    assert up.incident(up.nodes[0], "handed_over"), "what ran before is still there"


def test_a_stopped_worker_ends_in_order_and_another_goes_on(up: Up) -> None:
    node = up.nodes[9]
    os.kill(up.running["pids"]["worker"], signal.SIGTERM)
    sent = senders.kmsg_xid(node, 95, datetime.now(UTC))
    until(lambda: up.deliver(sent).status_code == 202, "a delivery held")
    assert up.incident(node, "waiting_approval")

    def another_polls() -> bool:
        _, stopped, after = (up.home / "logs" / "worker.log").read_text().rpartition("worker stops")
        return bool(stopped) and " polls " in after

    until(another_polls, "one worker has stopped in order, and another polls")


def test_a_second_stack_on_the_same_files_is_refused(up: Up) -> None:
    second = up.cli("up")
    assert second.returncode == 1
    assert "in use" in second.stderr
    assert up.get("/v1/incidents") != []


def test_doctor_finds_all_well(up: Up) -> None:
    said = up.cli("doctor", "--json")
    findings = json.loads(said.stdout)
    # Temporal's port is the stack's own choice here, which a doctor without its environment can't know.
    assert {f["what"] for f in findings if f["ok"]} >= {"configuration", "parts", "ledger", "policy"}


def test_ctrl_c_ends_everything(up: Up) -> None:
    pids = list(up.running["pids"].values())
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(LONG_S) == 0
    assert not (up.home / "running.json").exists()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all children gone")
