"""What deploy/senders ships: valid to the program that it is for, and what it sends is understood by medevac."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hcl2
import pytest
from moto.events.models import EventPattern
from ruamel.yaml import YAML

from medevac.events.event import Kind
from medevac.events.normal import read
from medevac.events.parsing import Payload
from medevac.events.registry import sources
from medevac.faults.catalogue import lookup, rows
from medevac.faults.classes import FaultClass
from medevac.policy.loading import load, preset
from medevac.policy.routing import Route, classified, route
from tests.deploy.compose import ROOT
from tests.deploy.servers import wait_until
from worker.children import free_port
from worker.speakers import Poller, Queue, Sender, Watcher

SENDERS = ROOT / "deploy" / "senders"
PROMETHEUS = SENDERS / "prometheus"


def yaml_of(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def events_of(source: str, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    parsed = read(source, Payload(raw, {name.replace("_", "-"): value for name, value in headers.items()}))
    assert not parsed.refused
    return parsed.events


# --- Prometheus ------------------------------------------------------------------------------------------------------

RULES = [rule for group in yaml_of(PROMETHEUS / "rules.yaml")["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
TESTS = ("rules_test.yaml", "fabric_test.yaml")
FIRING = [
    {"alertname": case["alertname"], **alert["exp_labels"], "summary": alert["exp_annotations"]["summary"]}
    for name in TESTS
    for test in yaml_of(PROMETHEUS / name)["tests"]
    for case in test.get("alert_rule_test", ())
    for alert in case["exp_alerts"]
]
NOTIFY_ONLY = {"GpuHotterThanPeers", "GpuBusyWithoutTensorWork", "GpuReservedMemoryDrift"}
BY_NUMBER = {"GpuXid", "GpuXidCounted"}


def program(*names: str, package: str) -> str:
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"{names[0]} is not installed (Debian and Ubuntu: apt-get install {package})")
    return path


@pytest.mark.parametrize("arguments", [["check", "rules", "rules.yaml"], ["test", "rules", *TESTS]], ids=" ".join)
def test_promtool_agrees(arguments: list[str]) -> None:
    promtool = program("promtool", package="prometheus")
    done = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_way_a_meaning_and_both_tests(rule: dict[str, Any]) -> None:
    name, labels = rule["alert"], rule["labels"]
    assert not name.startswith("Medevac"), "those are medevac's alerts about itself, which never open an incident"
    assert labels["receiver"] == "medevac"
    assert labels["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    quiet = "".join((PROMETHEUS / test).read_text(encoding="utf-8") for test in TESTS)
    assert re.search(rf"alertname: {name}, exp_alerts: \[\]", quiet), "a case where it must not fire"
    assert any(alert["alertname"] == name for alert in FIRING), "a case where it must"
    if name in NOTIFY_ONLY | BY_NUMBER:
        assert "medevac_fault" not in labels
    else:
        code = labels["medevac_fault"]
        assert code in rows() or f"{code.partition('/')[0]}/*" in rows()
        assert lookup(code).fault_class is not FaultClass.UNKNOWN


@pytest.mark.parametrize("alert", FIRING, ids=lambda alert: f"{alert['alertname']}-{alert.get('Hostname')}")
def test_a_firing_alert_names_machine_device_and_fault_to_medevac(alert: dict[str, str]) -> None:
    labels = {k: v for k, v in alert.items() if k != "summary"}
    (event,) = events_of("alertmanager", webhook([posted(labels, alert["summary"])]))
    node = labels.get("node") or labels.get("Hostname") or labels["instance"].partition(":")[0]
    assert event.subject == node
    assert event.kind is Kind.FAULT
    if "gpu" in labels:
        assert {f"gpu:{labels['gpu']}"} <= set(event.entities)
    if "device" in labels:
        assert event.entities == (f"ib:{labels['device']}/{labels['port']}",)
    name = labels["alertname"]
    if name in BY_NUMBER:
        assert event.fault in {"xid/79", "xid/74"}
        assert event.fault_class.latched
    elif name in NOTIFY_ONLY:
        assert event.fault == f"alert/{name}"
        assert event.fault_class is FaultClass.UNKNOWN
    else:
        assert event.fault == labels["medevac_fault"]
        assert event.fault_class is lookup(event.fault).fault_class


def test_78_degrees_is_only_a_fact_until_a_policy_ejects_at_it() -> None:
    labels = next(a for a in FIRING if a["alertname"] == "GpuTemperatureFrom78")
    (event,) = events_of("alertmanager", webhook([posted(labels, "")]))
    default, krea = (load(preset(name), name) for name in ("default", "krea"))
    assert route(event, default) is Route.RECORD
    assert route(event, krea) is Route.INCIDENT
    assert classified(event, krea).fault_class is FaultClass.CRITICAL


def test_every_metric_that_is_read_is_listed_for_export() -> None:
    lines = (PROMETHEUS / "dcgm-exporter-counters.csv").read_text(encoding="utf-8").splitlines()
    fields = [line.split(", ", 2) for line in lines if line and not line.startswith("#")]
    assert all(len(field) == 3 and field[1] in {"gauge", "counter"} for field in fields)
    renamed = {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"}
    used = set(re.findall(r"DCGM_[A-Z0-9_]+", " ".join(rule["expr"] for rule in RULES))) - renamed
    assert used == {name for name, *_ in fields}


# --- Alertmanager and Grafana ----------------------------------------------------------------------------------------


def posted(labels: dict[str, str], summary: str, status: str = "firing") -> dict[str, Any]:
    return {
        "status": status,
        "labels": labels,
        "annotations": {"summary": summary},
        "startsAt": "2026-03-01T08:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
    }


def webhook(alerts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": "4", "groupKey": "{}", "status": "firing", "truncatedAlerts": 0, "alerts": alerts}


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    """An HTTP server that takes everything. Yields its address and what came: path, headers, body."""
    came: list[tuple[str, dict[str, str], bytes]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def alertmanager(config: Any, folder: Path) -> Iterator[str]:
    path = program("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")
    file, port = folder / "alertmanager.yaml", free_port()
    with file.open("w", encoding="utf-8") as out:
        YAML(typ="safe").dump(config, out)
    with (folder / "alertmanager.log").open("wb") as out:
        process = subprocess.Popen(
            [path, f"--config.file={file}", f"--storage.path={folder / 'data'}", "--cluster.listen-address=",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=out,
            stderr=out,
        )  # fmt: skip

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until("Alertmanager", ready, alive=lambda: "it ended" if process.poll() is not None else "")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(120)


def test_amtool_agrees() -> None:
    amtool = program("amtool", package="prometheus-alertmanager")
    arguments = [amtool, "check-config", SENDERS / "alertmanager" / "alertmanager.yaml"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_alertmanager_posts_what_medevac_reads_and_takes_it_back(tmp_path: Path) -> None:
    config = yaml_of(SENDERS / "alertmanager" / "alertmanager.yaml")
    (tmp_path / "token").write_text("a-sender's-token\n")
    hook = config["receivers"][1]["webhook_configs"][0]
    assert hook["url"].endswith("/v1/events/alertmanager")
    hook["http_config"]["authorization"]["credentials_file"] = str(tmp_path / "token")
    config["route"]["routes"][0]["group_interval"] = "1s"
    xid = next(alert for alert in FIRING if alert["alertname"] == "GpuXid" and "err_code" in alert)
    labels = {k: v for k, v in xid.items() if k != "summary"}
    other = {"alertname": "SomebodyElses", "node": "n1", "severity": "critical"}

    with receiver() as (address, came):
        hook["url"] = f"{address}/v1/events/alertmanager"
        with alertmanager(config, tmp_path) as manager:

            def tell(*alerts: dict[str, Any]) -> None:
                request = urllib.request.Request(  # noqa: S310
                    f"{manager}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
                )
                urllib.request.urlopen(request, timeout=60).close()  # noqa: S310

            now = datetime.now(UTC)
            began = {"startsAt": now.isoformat()}
            tell({"labels": labels, "annotations": {"summary": xid["summary"]}, **began}, {"labels": other, **began})
            wait_until("the alert", lambda: len(came) >= 1)
            over = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(milliseconds=1)).isoformat()}
            tell({"labels": labels, "annotations": {"summary": xid["summary"]}, **over})
            wait_until("its end", lambda: len(came) >= 2)

    assert {(path, headers["authorization"]) for path, headers, _ in came} == {
        ("/v1/events/alertmanager", "Bearer a-sender's-token")
    }
    fault, clear = (events_of("alertmanager", body)[0] for _, _, body in came)
    assert (fault.subject, fault.fault, fault.kind) == ("a", "xid/79", Kind.FAULT)
    assert (clear.kind, clear.dedupe_key) == (Kind.RECOVERED, fault.dedupe_key)
    assert b"SomebodyElses" not in b"".join(body for *_, body in came), "only what is meant for medevac goes there"


def test_grafanas_contact_point_sends_all_and_takes_back() -> None:
    (point,) = yaml_of(SENDERS / "grafana" / "contact-point.yaml")["contactPoints"]
    (hook,) = point["receivers"]
    assert hook["settings"]["url"].endswith("/v1/events/grafana")
    assert hook["disableResolveMessage"] is False
    assert hook["settings"]["maxAlerts"] == "0"


# --- log shippers ----------------------------------------------------------------------------------------------------

BOOT = "0d5b3d0e7d554c0e9d5f5d4a3c2b1a09"
JOURNAL = {"_TRANSPORT": "kernel", "_BOOT_ID": BOOT, "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
LINES = (
    "NVRM: GPU at PCI:0000:9b:00: GPU-0a1b2c3d-1111-2222-3333-444455556666",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Data {0x50610002, 0x10100030}",
    "usb 1-1: new high-speed USB device number 2",
)
FORGED = {**JOURNAL, "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "NVRM", "MESSAGE": LINES[1]}
"""What journald makes of a process that wrote into /dev/kmsg."""


def shipped_by_fluent_bit() -> tuple[bytes, dict[str, str]]:
    """The pipeline of fluent-bit.yaml as Fluent Bit documents its plugins: input, filters, format."""
    pipeline = yaml_of(SENDERS / "fluent-bit" / "fluent-bit.yaml")["pipeline"]
    (source,), (output,) = pipeline["inputs"], pipeline["outputs"]
    transport = source["systemd_filter"].partition("=")
    records = [{**JOURNAL, "_HOSTNAME": "ip-10-0-3-7", "MESSAGE": line} for line in LINES]
    records += [FORGED, {"_TRANSPORT": "syslog", "MESSAGE": LINES[1]}]
    records = [r for r in records if r[transport[0]] == transport[2]]
    for step in pipeline["filters"]:
        assert step["match"] == source["tag"] == output["match"]
        if step["name"] == "grep":
            key, _, pattern = step["regex"].partition(" ")
            records = [r for r in records if re.search(pattern, r[key])]
        else:
            name, _, value = step["record"].partition(" ")
            records = [{k: v for k, v in r.items() if k in step["allowlist_key"]} | {name: value} for r in records]
    assert output["format"] == "json_lines"
    body = "\n".join(json.dumps({output["json_date_key"]: 1772352000.25, **r}) for r in records)
    headers = dict(line.split(" ", 1) for line in output["header"])
    assert output["uri"] == "/v1/events/kmsg"
    assert output["retry_limit"] == "no_limits"
    assert output["tls"] is True or output["tls"] == "on"
    return body.encode(), headers


def shipped_by_vector() -> tuple[bytes, dict[str, str]]:
    """The same of vector.yaml. (The program's own language is not run here.)"""
    config = yaml_of(SENDERS / "vector" / "vector.yaml")
    (sink,) = config["sinks"].values()
    assert config["sources"]["kernel"]["include_matches"] == {"_TRANSPORT": ["kernel"]}
    pattern = re.search(r"r'(.*)'", config["transforms"]["nvidia"]["condition"])
    assert pattern is not None
    wanted = dict(re.findall(r'"(\w+)": (\S+),', config["transforms"]["named"]["source"]))
    records = []
    for record in [{**JOURNAL, "MESSAGE": line} for line in LINES] + [FORGED]:
        event = {
            **record,
            "message": record["MESSAGE"],
            "host": "ip-10-0-3-7",
            "__REALTIME_TIMESTAMP": "1772352000250000",
        }
        if re.search(pattern[1], event["message"]):
            taken = {k: "${NODE_NAME}" if "NODE_NAME" in v else event[v.lstrip(".")] for k, v in wanted.items()}
            records.append(taken)
    assert sink["uri"].endswith("/v1/events/kmsg")
    assert (sink["encoding"]["codec"], sink["framing"]["method"]) == ("json", "newline_delimited")
    assert sink["auth"] == {"strategy": "bearer", "token": "${MEDEVAC_TOKEN}"}
    return "\n".join(json.dumps(r) for r in records).encode(), sink["request"]["headers"]


@pytest.mark.parametrize("shipped", [shipped_by_fluent_bit, shipped_by_vector], ids=["fluent-bit", "vector"])
def test_what_a_log_shipper_sends_is_read_with_node_cluster_and_boot(shipped: Any) -> None:
    body, headers = shipped()
    env = {"NODE_NAME": "gpu-7", "CLUSTER": "c1"}
    for name, value in env.items():
        body = body.replace(f"${{{name}}}".encode(), value.encode())
        headers = {k: v.replace(f"${{{name}}}", value) for k, v in headers.items()}
    parsed = read("kmsg", Payload(body, {k.lower(): v for k, v in headers.items()}))
    faults = {event.fault: event for event in parsed.events if event.kind is Kind.FAULT}
    assert set(faults) == {"xid/79", "sxid/20034"}
    for event in faults.values():
        assert (event.subject, event.cluster) == ("gpu-7", "c1")
        assert event.boot_id == "0d5b3d0e-7d55-4c0e-9d5f-5d4a3c2b1a09"
        assert event.starts_at == datetime(2026, 3, 1, 8, 0, 0, 250_000, tzinfo=UTC)
    assert "gpu-uuid:GPU-0a1b2c3d-1111-2222-3333-444455556666" in faults["xid/79"].entities
    assert faults["xid/79"].detail["lines"] == 1, "what a process wrote into the kernel's log counts for nothing"
    assert faults["sxid/20034"].detail["lines"] == 3
    assert "kmsg/not-kernel" in {event.fault for event in parsed.events}


# --- AWS -------------------------------------------------------------------------------------------------------------

TERRAFORM = SENDERS / "terraform"
CONSUMER = ROOT / "worker" / "intake" / "sqs.py"
PATTERNS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in TERRAFORM.glob("patterns/*.json")}
INSTANCE = "i-0a1b2c3d4e5f60718"


def bridged(kind: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    return {
        "version": "0", "id": "4b1d9a52-0c9e-4c6b-8a4e-1f0b6f2f7a11", "detail-type": kind, "source": source,
        "account": "210987654321", "time": "2026-03-01T08:00:00Z", "region": "eu-west-1", "resources": [],
        "detail": detail,
    }  # fmt: skip


HEALTH = {
    "eventArn": "arn:aws:health:eu-west-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/x", "service": "EC2",
    "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
    "startTime": "Sun, 15 Mar 2026 08:00:00 GMT", "statusCode": "upcoming", "communicationId": "c-1",
    "affectedAccount": "210987654321", "affectedEntities": [{"entityValue": INSTANCE}],
}  # fmt: skip
HOOK = {
    "EC2InstanceId": INSTANCE,
    "AutoScalingGroupName": "gpus",
    "LifecycleHookName": "h",
    "LifecycleActionToken": "t",
}
AWS_EVENTS = [
    ("health", bridged("AWS Health Event", "aws.health", **HEALTH)),
    ("instance-state", bridged("EC2 Instance State-change Notification",
                               **{"instance-id": INSTANCE, "state": "stopped"})),
    ("spot-interruption", bridged("EC2 Spot Instance Interruption Warning",
                                  **{"instance-id": INSTANCE, "instance-action": "terminate"})),
    ("rebalance", bridged("EC2 Instance Rebalance Recommendation", **{"instance-id": INSTANCE})),
    ("asg-lifecycle", bridged("EC2 Instance-terminate Lifecycle Action", "aws.autoscaling", **HOOK,
                              LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING")),
    ("asg-lifecycle", bridged("EC2 Instance-launch Lifecycle Action", "aws.autoscaling", **HOOK,
                              LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING")),
    ("asg-lifecycle", bridged("EC2 Instance Terminate Successful", "aws.autoscaling",
                              EC2InstanceId=INSTANCE, AutoScalingGroupName="gpus")),
    ("capacity-reservation", bridged("EC2 Capacity Reservation Instance Interruption Warning",
                                     **{"instance-id": INSTANCE, "instance-termination-time": "2026-03-01T08:02:00Z"})),
    ("capacity-reservation", bridged("Capacity Block Reservation Expiration Warning",
                                     **{"capacity-reservation-id": "cr-1", "end-date": "2026-03-01T11:30:00Z"})),
]  # fmt: skip
UNWANTED = [
    bridged("AWS Health Event", "aws.health", **{**HEALTH, "service": "LAMBDA"}),
    bridged("EC2 Instance Launch Successful", "aws.autoscaling", EC2InstanceId=INSTANCE),
    bridged("EC2 Spot Instance Request Fulfillment", **{"instance-id": INSTANCE}),
    bridged("Object Created", "aws.s3"),
]


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    return bool(EventPattern.load(json.dumps(pattern)).matches_event(event))


@pytest.mark.parametrize(("pattern", "event"), AWS_EVENTS, ids=lambda v: v["detail-type"] if isinstance(v, dict) else v)
def test_one_rule_sends_the_event_and_medevac_reads_it(pattern: str, event: dict[str, Any]) -> None:
    assert [name for name, p in PATTERNS.items() if matches(p, event)] == [pattern]
    in_sqs = {"Messages": [{"MessageId": "m", "ReceiptHandle": "r", "Body": json.dumps(event)}]}
    (read_event,) = events_of("aws", in_sqs)
    assert read_event.fault
    if "capacity-reservation-id" not in event["detail"]:
        assert read_event.subject == INSTANCE


def test_the_rules_send_nothing_else() -> None:
    assert not [e["detail-type"] for e in UNWANTED if any(matches(p, e) for p in PATTERNS.values())]
    assert {pattern for pattern, _ in AWS_EVENTS} == set(PATTERNS), "every pattern is tried"


def blocks(of: str) -> dict[tuple[str, str], dict[str, Any]]:
    """`resource` or `data` blocks of all files by type and name."""
    found = {}
    for path in sorted(TERRAFORM.glob("*.tf")):
        for block in hcl2.loads(path.read_text(encoding="utf-8")).get(of, ()):
            for kind, named in block.items():
                for name, body in named.items():
                    if not kind.startswith("__"):
                        found[kind.strip('"'), name.strip('"')] = body
    return found


def test_the_queue_loses_nothing_and_lets_nobody_else_write() -> None:
    resources, data = blocks("resource"), blocks("data")
    queue = resources["aws_sqs_queue", "events"]
    assert "aws_sqs_queue.dead.arn" in str(queue["redrive_policy"])
    target = resources["aws_cloudwatch_event_target", "this"]
    assert "aws_sqs_queue.dead.arn" in str(target["dead_letter_config"])
    statements = data["aws_iam_policy_document", "queue"]["statement"]
    allowed = [s for s in statements if "Deny" not in str(s.get("effect"))]
    assert len(allowed) == 1
    assert re.findall(r"[a-z]+:[A-Za-z*]+", str(allowed[0]["actions"])) == ["sqs:SendMessage"]
    assert {"aws:SourceArn", "aws:SourceAccount"} <= set(re.findall(r"aws:\w+", str(allowed[0]["condition"])))
    (consumer,) = data["aws_iam_policy_document", "consumer"]["statement"]
    calls = re.findall(r'"((?:receive|delete|change|get|list|send|purge)_[a-z_]+)"', CONSUMER.read_text("utf-8"))
    assert calls
    needed = {f"sqs:{call.title().replace('_', '')}" for call in calls}
    assert set(re.findall(r"sqs:[A-Za-z*]+", str(consumer["actions"]))) == needed, "what the consumer calls, no more"
    assert "aws_sqs_queue.events.arn" in str(consumer["resources"])


# --- the page --------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "senders.md").read_text(encoding="utf-8")


def test_the_page_names_every_source_and_every_carrier() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(sources())
    linked = set(re.findall(r"deploy/senders/([\w-]+)", PAGE))
    assert linked == {path.name for path in SENDERS.iterdir()}


def test_the_pages_configuration_is_one_that_loads() -> None:
    blocks = re.findall(r"```yaml\n((?:senders|queues):.*?)```", PAGE, re.DOTALL)
    shown = [(key, one) for block in blocks for key, of in YAML(typ="safe").load(block).items() for one in of]
    assert {key for key, _ in shown} == {"senders", "queues", "pollers", "watchers"}
    for key, one in shown:
        found = {"senders": Sender, "queues": Queue, "pollers": Poller, "watchers": Watcher}[key].model_validate(one)
        if isinstance(found, Sender):
            assert set(found.sources) <= set(sources())
        elif not isinstance(found, Watcher):
            assert found.source in sources()
