"""The node agent, run as it ships, against a real gateway; DCGM, metadata services and kernel log are stand-ins."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvicorn
from ruamel.yaml import YAML

from medevac.events.event import HealthEvent, Kind
from medevac.fleet.node import Node
from tests.deploy.servers import wait_until
from tests.deploy.test_senders import SENDERS, yaml_of
from tests.unit.worker.conftest import StubEngine, engine, node, registry, services, sha, stores, world  # noqa: F401
from worker.gateway.app import create_app
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.speakers import Sender, Token

AGENT = SENDERS / "daemonset" / "agent.py"
HEALTH = SENDERS / "daemonset" / "dcgm-health.sh"
TOKEN = "a-node-agent's-token"
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
HEALTHY = {"header": ["Health Monitor Report"], "body": {"Overall Health": {"value": "Healthy"}}}


def failing(system: str) -> dict[str, Any]:
    gpu = {"children": {system: {"value": "Failure"}}, "value": "Failure"}
    return {"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"3": gpu}}}}


@pytest.fixture
def gateway(services: Services) -> Iterator[str]:  # noqa: F811
    sender = Sender(
        name="node-agent",
        sources=("kmsg", "dcgm", "aws", "azure", "gcp", "generic"),
        clusters=("sim-a",),
        bearer=Token(sha256=sha(TOKEN)),
    )
    app = create_app(dataclasses.replace(services, senders=Senders((sender,))))
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until("gateway", lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@dataclasses.dataclass
class Rig:
    """One node's agent, run for one round at a time, and what the gateway made of it."""

    folder: Path
    env: dict[str, str]
    engine: StubEngine
    node: Node
    stderr: str = ""

    def once(self, **changed: str) -> int:
        done = subprocess.run(
            [sys.executable, AGENT, "--once"], env={**self.env, **changed}, capture_output=True, text=True, check=False
        )
        self.stderr += done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode

    def log(self, *lines: str, facility: int = 0, age_s: float = 1.0) -> None:
        at = time.clock_gettime(time.CLOCK_MONOTONIC) - age_s
        with (self.folder / "kernel.log").open("a", encoding="utf-8") as out:
            out.writelines(f"<{facility * 8 + 3}>[{at:12.6f}] {line}\n" for line in lines)

    def report(self, health: Any, exit_code: int = 0) -> None:
        (self.folder / "health").write_text(f"{exit_code}\n{json.dumps(health) if health else ''}\n")

    @property
    def said(self) -> list[HealthEvent]:
        """Everything that reached a workflow, in no particular order, by our node only."""
        heard = [*self.engine.reported, *self.engine.joined]
        assert {(cluster, name) for cluster, name, _ in heard} <= {("sim-a", self.node.name)}
        return [event for *_, event in heard]


@pytest.fixture
def rig(gateway: str, engine: StubEngine, node: Node, tmp_path: Path) -> Rig:  # noqa: F811
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "kernel.log").write_text("<6>[    0.000000] Linux version 6.8\n")
    (tmp_path / "boot_id").write_text(f"{node.machine.boot_id}\n")
    env = {
        "PATH": os.environ["PATH"],
        "BOOT_ID_FILE": str(tmp_path / "boot_id"),
        "NODE_NAME": node.name,
        "CLUSTER": "sim-a",
        "MEDEVAC_URL": gateway,
        "MEDEVAC_PLAINTEXT": "yes",
        "MEDEVAC_TOKEN_FILE": str(tmp_path / "token"),
        "KERNEL_LOG": str(tmp_path / "kernel.log"),
        "METADATA": "none",
        "STATE_FILE": str(tmp_path / "state.json"),
    }
    return Rig(tmp_path, env, engine, node)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def answering(status: int, **headers: str) -> Iterator[str]:
    """A server that gives every POST this answer, and everything else 200. Yields its address."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value.format(here=here))
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            got.append(self.headers.get("Authorization"))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    got: list[str | None] = []
    with serving(Service) as here:
        yield here
    assert not got, "a redirect was followed"


# --- kernel log ------------------------------------------------------------------------------------------------------


def test_an_xid_reaches_its_node_once_with_its_boot(rig: Rig) -> None:
    rig.log("usb 1-1: new device", XID)
    assert rig.once() == 0
    (event,) = rig.said
    assert (event.fault, event.cluster, event.boot_id) == ("xid/79", "sim-a", rig.node.machine.boot_id)
    assert event.sender == "node-agent"
    assert rig.once() == 0
    assert len(rig.said) == 1, "what was said is not said again"
    rig.log(XID.replace("79", "119").replace("GPU has fallen off the bus.", "Timeout"))
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["xid/79", "xid/119"]


def test_nothing_is_lost_while_the_gateway_or_what_is_behind_it_is_away(rig: Rig) -> None:
    rig.log(XID)
    assert rig.once(MEDEVAC_URL="http://127.0.0.1:9") == 1
    with answering(503) as overloaded:
        assert rig.once(MEDEVAC_URL=overloaded) == 1
    assert "503" in rig.stderr
    (rig.folder / "token").write_text("of-somebody-else-entirely\n")
    assert rig.once() == 1, "a wrong token is a mistake that someone will mend, not a reason to drop faults"
    (rig.folder / "token").write_text(TOKEN)
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["xid/79"]


def test_what_the_gateway_can_never_read_does_not_hold_up_the_rest(rig: Rig) -> None:
    rig.env["DCGM_FILE"] = str(rig.folder / "health")
    rig.report({"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"0": "no object"}}}})
    rig.once()
    assert "400" in rig.stderr
    rig.report(failing("PCIe system"))
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["dcgm-health/PCIe system"]


def test_the_first_start_tells_news_and_no_history(rig: Rig) -> None:
    rig.log(XID, age_s=3_600)
    assert rig.once() == 0
    assert not rig.said
    rig.log(XID.replace("79", "48"))
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["xid/48"]


def test_after_a_boot_everything_in_the_log_is_news(rig: Rig) -> None:
    rig.log(XID)
    assert rig.once() == 0
    state = json.loads((rig.folder / "state.json").read_text())
    (rig.folder / "state.json").write_text(json.dumps({**state, "boot_id": "an-earlier-one"}))
    (rig.folder / "kernel.log").write_text("")
    rig.log(XID.replace("79", "48"), age_s=1_000)
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["xid/79", "xid/48"]


def test_a_line_that_a_process_wrote_into_the_kernels_log_is_nothing(rig: Rig) -> None:
    rig.log(XID, facility=1)
    assert rig.once() == 0
    assert not rig.said


def test_a_long_log_goes_in_parts_that_each_count(rig: Rig) -> None:
    rig.log(*(f"NVRM: noise {i}" for i in range(700)), XID, *(f"NVRM: noise {i}" for i in range(700)))
    assert rig.once() == 0
    assert [e.fault for e in rig.said] == ["xid/79"]


@pytest.fixture
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("node_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["node_agent"] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def test_the_kernels_own_log_is_read_by_its_call(module: ModuleType) -> None:
    try:
        lines = module.kernel_lines("syslog")
    except PermissionError as error:
        pytest.skip(str(error))
    assert len(lines) > 10
    assert lines == module.kernel_lines("syslog")[: len(lines)], "reading takes nothing out"


# --- DCGM ------------------------------------------------------------------------------------------------------------


def test_a_bad_report_is_a_fault_and_a_good_one_takes_it_back(rig: Rig) -> None:
    rig.env["DCGM_FILE"] = str(rig.folder / "health")
    rig.report(failing("NVLINK system"))
    assert rig.once() == 0
    (fault,) = (e for e in rig.said if e.kind is Kind.FAULT)
    assert (fault.fault, fault.entities) == ("dcgm-health/NVLINK system", ("gpu:3",))
    before = len(rig.said)
    assert rig.once() == 0
    assert len(rig.said) == before
    rig.report(HEALTHY)
    assert rig.once() == 0
    (clear,) = (e for e in rig.said if e.dedupe_key == fault.series)
    assert clear.kind is Kind.RECOVERED
    assert clear.sender == fault.sender


@pytest.mark.parametrize("how", ["absent", "failed", "stale"])
def test_dcgm_that_does_not_answer_is_the_monitors_fault_until_it_does(rig: Rig, how: str) -> None:
    rig.env["DCGM_FILE"] = str(rig.folder / "health")
    if how == "failed":
        rig.report(None, exit_code=226)
    if how == "stale":
        rig.report(HEALTHY)
        os.utime(rig.folder / "health", (0, 0))
    assert rig.once() == 0
    (fault,) = rig.said
    assert (fault.fault, fault.kind) == ("monitor/dcgm-unreachable", Kind.FAULT)
    if how == "failed":
        assert "226" in fault.summary
    rig.report(HEALTHY)
    assert rig.once() == 0
    assert (fault.dedupe_key, Kind.RECOVERED) in {(e.dedupe_key, e.kind) for e in rig.said}


def test_the_exit_code_goes_beside_the_report(rig: Rig, module: ModuleType) -> None:
    given: list[str | None] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            given.append(self.headers["X-Medevac-Exit-Code"])
            self.send_response(202)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    rig.env["DCGM_FILE"] = str(rig.folder / "health")
    with serving(Taking) as url:
        for exit_code, posts in ((0, ["0", None]), (226, ["226"]), (226, [])):
            rig.report(HEALTHY, exit_code)
            given.clear()
            assert rig.once(MEDEVAC_URL=url) == 0
            assert given == posts, "the report, then that DCGM answers; said anew when either changes"


def test_what_still_holds_is_said_again_and_what_changed_at_once(module: ModuleType, tmp_path: Path) -> None:
    posts: list[tuple[str, str]] = []

    class Taker:
        takes = True

        def post(self, source: str, body: str) -> bool:
            posts.append((source, body))
            return self.takes

    gateway, state = Taker(), module.State(str(tmp_path / "state"), "boot")
    held = {"dcgm/health": ("dcgm", "bad", None, True), "dcgm/answers": ("generic", "ok", None, False)}
    assert module.say(state, gateway, held, "dcgm", 0.0)
    assert module.say(state, gateway, held, "dcgm", module.AGAIN_S - 1)
    assert posts == [("dcgm", "bad"), ("generic", "ok")]
    assert module.say(state, gateway, held, "dcgm", module.AGAIN_S)
    assert posts[2:] == [("dcgm", "bad")], "a fault is repeated, a recovery isn't"
    gateway.takes = False
    assert not module.say(state, gateway, {"dcgm/health": ("dcgm", "worse", None, True)}, "dcgm", module.AGAIN_S + 1)
    gateway.takes = True
    again = module.State(str(tmp_path / "state"), "boot")
    assert module.say(again, gateway, {"dcgm/health": ("dcgm", "worse", None, True)}, "dcgm", module.AGAIN_S + 2)
    assert posts[3:] == [("dcgm", "worse"), ("dcgm", "worse")]


DCGMI = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in *"-c -j"*) cat {folder}/answer; exit $(cat {folder}/code);; esac
exit 0
"""


def test_dcgmis_answer_is_written_whole_with_its_exit_code(tmp_path: Path) -> None:
    fake = tmp_path / "dcgmi"
    fake.write_text(DCGMI.format(folder=tmp_path))
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DCGM_FILE": str(tmp_path / "health"), "EVERY_S": "0"}
    for answer, code, host in ((json.dumps(HEALTHY), 0, ""), ("Error: unable to connect", 226, "10.0.0.1")):
        (tmp_path / "answer").write_text(answer)
        (tmp_path / "code").write_text(str(code))
        subprocess.run(["sh", HEALTH], env={**env, "DCGM_HOST": host}, check=True, timeout=240)
        assert (tmp_path / "health").read_text() == f"{code}\n{answer}\n"
    assert (tmp_path / "calls").read_text().splitlines() == [
        "health -s a", "health -c -j", "health --host 10.0.0.1 -s a", "health --host 10.0.0.1 -c -j",
    ]  # fmt: skip


# --- metadata services -----------------------------------------------------------------------------------------------

Answer = tuple[int, str]


@pytest.fixture
def metadata(rig: Rig) -> Iterator[dict[str, str]]:
    """Paths to answers, changed by the test; each cloud's own demands are made. Other paths are 404."""
    answers: dict[str, str] = {}
    demands: tuple[tuple[str, Callable[[dict[str, str]], bool]], ...] = (
        ("/latest/meta-data/", lambda h: h.get("x-aws-ec2-metadata-token") == "imds-token"),
        ("/metadata/", lambda h: h.get("metadata") == "true"),
        ("/computeMetadata/", lambda h: h.get("metadata-flavor") == "Google"),
    )

    class Service(BaseHTTPRequestHandler):
        def answer(self) -> None:
            headers = {k.lower(): v for k, v in self.headers.items()}
            assert "authorization" not in headers, "the sender's token is for the gateway alone"
            body = answers.get(f"{self.command} {self.path}", answers.get(self.path))
            status = 404 if body is None else 200
            if any(self.path.startswith(start) and not met(headers) for start, met in demands):
                status, body = 401, None
            self.send_response(status)
            self.end_headers()
            self.wfile.write((body or "").encode())

        do_GET = do_PUT = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    rig.env |= {"METADATA": "auto", "METADATA_URL": f"http://127.0.0.1:{server.server_port}"}
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


AWS = {"PUT /latest/api/token": "imds-token"}
SCHEDULED = {
    "Code": "system-reboot", "Description": "scheduled reboot", "State": "active", "EventId": "instance-event-0a1",
    "NotBefore": "21 Mar 2026 09:00:43 GMT", "NotAfter": "21 Mar 2026 09:17:23 GMT",
}  # fmt: skip


def test_aws_notices(rig: Rig, metadata: dict[str, str]) -> None:
    metadata.update(AWS)
    assert rig.once() == 0
    assert not rig.said, "404 is: nothing is announced"
    metadata["/latest/meta-data/spot/instance-action"] = '{"action": "terminate", "time": "2026-03-01T08:02:00Z"}'
    metadata["/latest/meta-data/events/maintenance/scheduled"] = json.dumps([SCHEDULED])
    assert rig.once() == 0
    assert {(e.kind, e.fault) for e in rig.said} == {
        (Kind.PLANNED, "spot-interruption"),
        (Kind.PLANNED, "maintenance/system-reboot"),
    }
    planned = next(e for e in rig.said if e.fault == "maintenance/system-reboot")
    metadata["/latest/meta-data/events/maintenance/scheduled"] = "[]"
    assert rig.once() == 0
    over = next(e for e in rig.said if e.kind is Kind.RECOVERED)
    assert (over.fault, over.dedupe_key) == (planned.fault, planned.dedupe_key)


def test_a_service_that_can_not_be_read_takes_nothing_back(rig: Rig, metadata: dict[str, str]) -> None:
    metadata.update(AWS, **{"/latest/meta-data/events/maintenance/scheduled": json.dumps([SCHEDULED])})
    assert rig.once() == 0
    del metadata["PUT /latest/api/token"]
    rig.once(METADATA="aws")
    assert [e.kind for e in rig.said] == [Kind.PLANNED]
    assert "metadata:" in rig.stderr


def test_azure_notices_are_this_machines_only(rig: Rig, metadata: dict[str, str]) -> None:
    document: dict[str, Any] = {
        "DocumentIncarnation": 4,
        "Events": [
            {"EventId": "A1", "EventStatus": "Scheduled", "EventType": "Redeploy", "ResourceType": "VirtualMachine",
             "Resources": ["gpus_3"], "NotBefore": "Sat, 21 Mar 2026 09:00:00 GMT", "Description": ""},
            {"EventId": "B2", "EventStatus": "Scheduled", "EventType": "Reboot", "ResourceType": "VirtualMachine",
             "Resources": ["gpus_4"], "NotBefore": "Sat, 21 Mar 2026 09:00:00 GMT", "Description": ""},
        ],
    }  # fmt: skip
    metadata["/metadata/instance/compute/name?api-version=2021-02-01&format=text"] = "gpus_3"
    where = "/metadata/scheduledevents?api-version=2020-07-01"
    metadata[where] = json.dumps(document)
    assert rig.once() == 0
    (planned,) = rig.said
    assert (planned.kind, planned.fault) == (Kind.PLANNED, "maintenance/Redeploy")
    assert planned.not_before is not None
    metadata[where] = json.dumps({"DocumentIncarnation": 5, "Events": document["Events"][1:]})
    assert rig.once() == 0
    assert [(e.kind, e.dedupe_key) for e in rig.said if e.kind is not Kind.PLANNED] == [
        (Kind.RECOVERED, planned.dedupe_key)
    ]


def test_google_notices(rig: Rig, metadata: dict[str, str]) -> None:
    at = "/computeMetadata/v1/instance/"
    metadata.update({f"{at}maintenance-event": "NONE", f"{at}preempted": "FALSE"})
    assert rig.once() == 0
    assert not rig.said
    window = {"can_reschedule": "FALSE", "latest_window_start_time": "2026-03-22T09:00:00+00:00",
              "maintenance_status": "PENDING", "type": "SCHEDULED", "window_end_time": "2026-03-21T12:00:00+00:00",
              "window_start_time": "2026-03-21T09:00:00+00:00"}  # fmt: skip
    metadata[f"{at}upcoming-maintenance?alt=json"] = json.dumps(window)
    assert rig.once() == 0
    (planned,) = rig.said
    assert planned.kind is Kind.PLANNED
    metadata[f"{at}maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    del metadata[f"{at}upcoming-maintenance?alt=json"]
    assert rig.once() == 0
    assert {(e.kind, e.fault) for e in rig.said} == {
        (Kind.PLANNED, planned.fault),
        (Kind.RECOVERED, planned.fault),
        (Kind.PLANNED, "maintenance/TERMINATE_ON_HOST_MAINTENANCE"),
    }


# --- the token -------------------------------------------------------------------------------------------------------


def test_the_token_goes_over_tls_unless_said_otherwise_and_follows_no_redirect(rig: Rig) -> None:
    assert rig.once(MEDEVAC_PLAINTEXT="") != 0
    assert "https" in rig.stderr
    rig.log(XID)
    with answering(302, Location="{here}/elsewhere") as somewhere:
        assert rig.once(MEDEVAC_URL=somewhere) == 1


# --- manifests -------------------------------------------------------------------------------------------------------

KUSTOMIZATION = yaml_of(SENDERS / "daemonset" / "kustomization.yaml")


@pytest.fixture
def pod() -> Any:
    text = (SENDERS / "daemonset" / "daemonset.yaml").read_text(encoding="utf-8")
    account, daemonset = YAML(typ="safe").load_all(text)
    assert account["automountServiceAccountToken"] is False
    assert (
        daemonset["spec"]["selector"]["matchLabels"].items()
        <= daemonset["spec"]["template"]["metadata"]["labels"].items()
    )
    return daemonset["spec"]["template"]["spec"]


def test_the_pod_has_the_rights_that_are_explained_and_no_others(pod: Any) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {v for volume in pod["volumes"] for v in volume if v != "name"} == {"configMap", "secret", "emptyDir"}
    assert not any(pod.get(key) for key in ("hostPID", "hostIPC", "runtimeClassName", "initContainers"))
    added = {c["name"]: c["securityContext"]["capabilities"].get("add", []) for c in pod["containers"]}
    assert added == {"agent": ["SYSLOG"], "dcgm": []}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert "privileged" not in context
        assert "ports" not in container
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
        if container["name"] == "dcgm":
            assert context["runAsNonRoot"] is True
            assert "token" not in {mount["name"] for mount in container["volumeMounts"]}


def test_its_namespace_lets_it_in_and_is_nobody_elses() -> None:
    from tests.deploy.test_kubernetes import things

    (space,) = YAML(typ="safe").load_all((SENDERS / "daemonset" / "namespace.yaml").read_text(encoding="utf-8"))
    assert KUSTOMIZATION["namespace"] == space["metadata"]["name"]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert {"namespace.yaml", "daemonset.yaml"} == set(KUSTOMIZATION["resources"])
    assert space["metadata"]["name"] not in {
        one["metadata"].get("namespace")
        for name in ("worker.yaml", "gateway.yaml", "checks.yaml")
        for one in things(name)
    }


def test_it_stays_on_marked_nodes(pod: Any) -> None:
    from activities.kubernetes.names import TAINT

    assert {"key": TAINT, "operator": "Exists"} in pod["tolerations"]


def test_what_the_pod_is_told_is_what_the_programs_read(pod: Any) -> None:
    for container, script in zip(pod["containers"], (AGENT, HEALTH), strict=True):
        text = script.read_text(encoding="utf-8")
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert container["command"][1] == f"{mounted['code']}/{script.name}"
        for one in container["env"]:
            assert one["name"] in text or one["name"] in ("PYTHONDONTWRITEBYTECODE", "NVIDIA_VISIBLE_DEVICES")
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert env["DCGM_FILE"] == next(o["value"] for o in pod["containers"][1]["env"] if o["name"] == "DCGM_FILE")
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert set(generated["files"]) == {AGENT.name, HEALTH.name}
    (volume,) = (v for v in pod["volumes"] if v["name"] == "code")
    assert volume["configMap"]["name"] == generated["name"]


def test_the_patches_hit_what_they_say(pod: Any) -> None:
    for change in YAML(typ="safe").load(KUSTOMIZATION["patches"][0]["patch"]):
        *way, last = change["path"].removeprefix("/spec/template/spec/").split("/")
        at = pod
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        assert last == "value"
        assert at["name"] == {"main": "CLUSTER"}.get(change["value"], "MEDEVAC_URL")


def test_the_units_run_the_same_programs() -> None:
    for name, program in (("medevac-node-agent", AGENT.name), ("medevac-dcgm-health", HEALTH.name)):
        text = (SENDERS / "systemd" / f"{name}.service").read_text(encoding="utf-8")
        assert f"/usr/local/lib/medevac/{program}" in text
        assert "DynamicUser=yes" in text
        assert "ProtectKernelLogs" not in text, "it would take the kernel log away again"
