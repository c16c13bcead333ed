"""Shapes in which the senders' versions and carriers differ, one row a kind: what each must be read as."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import pytest

from medevac.events.event import Kind
from medevac.events.normal import read
from medevac.events.parsing import Payload
from medevac.events.registry import detect
from tests.unit.events.payloads import STRUCTURED, an_alert, cloud_event, forms, nvsentinel, parsed, webhook

INSTANCE = "i-0aa11bb22cc33dd44"
OCID = "ocid1.instance.oc1.fra.abcdefghijklmnop0001"


class Shape(NamedTuple):
    source: str
    body: Any
    want: tuple[str | None, str, str] | None
    """Subject, kind and fault of the one statement; None where it says nothing."""
    more: dict[str, Any] = {}
    code: int | None = None
    headers: dict[str, str] = {}
    detected: bool = True


def event_bridge(source: str, kind: str, detail: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "ev-9",
        "detail-type": kind,
        "source": source,
        "account": "123456789012",
        "time": "2026-03-01T08:00:00Z",
        "region": "eu-north-1",
        "resources": [],
        "detail": detail,
        **more,
    }


def alarm(state: str = "ALARM", **more: Any) -> dict[str, Any]:
    return {
        "AlarmName": "gpu errors",
        "AlarmDescription": "Xid 79 seen",
        "AWSAccountId": "123456789012",
        "NewStateValue": state,
        "StateChangeTime": "2026-03-01T08:00:00.000+0000",
        "Trigger": {"MetricName": "x", "Dimensions": [{"name": "InstanceId", "value": INSTANCE}]},
        **more,
    }


CLOUDWATCH = event_bridge(
    "aws.cloudwatch",
    "CloudWatch Alarm State Change",
    {
        "alarmName": "status check",
        "state": {"value": "ALARM", "timestamp": "2026-03-01T08:00:00.000+0000"},
        "configuration": {"metrics": [{"metricStat": {"metric": {"dimensions": {"InstanceId": INSTANCE}}}}]},
    },
)
OCI_EVENT = {
    "eventType": "com.oraclecloud.computeapi.instancemaintenance.begin",
    "cloudEventsVersion": "0.1",
    "eventID": "m-1",
    "source": "ComputeApi",
    "eventTime": "2026-03-01T08:00:00Z",
    "data": {
        "resourceId": "ocid1.maintenance.oc1..x",
        "additionalDetails": {"instanceId": OCID, "timeWindowStart": "2026-03-09T10:00:00Z"},
    },
}
OCI_ALARM = {
    "dedupeKey": "d",
    "title": "GPU trouble",
    "body": "hot",
    "type": "OK_TO_FIRING",
    "timestampEpochMillis": 1772352000000,
    "alarmMetaData": [
        {"id": "ocid1.alarm.oc1..a", "status": "FIRING", "severity": "CRITICAL", "dimensions": [{"resourceId": OCID}]}
    ],
}
LOG_ENTRY = {
    "protoPayload": {
        "methodName": "compute.instances.hostError",
        "resourceName": "projects/p/zones/z-1/instances/worker-3",
    },
    "insertId": "in-1",
    "timestamp": "2026-03-01T08:00:00Z",
    "logName": "projects/p/logs/x",
}
LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
NETIR = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 10 (0x004505c6 0x00000000)"
JOURNAL = f"__REALTIME_TIMESTAMP=1772352000000000\n_HOSTNAME=worker-3\n_TRANSPORT=kernel\nMESSAGE={LINE}\n\n"
LABELS = 'gpu="2",Hostname="worker-3"'
LOST = "Unable to determine the device handle for GPU2: 0000:3B:00.0: Unknown Error\nNo devices were found\n"
TABLE = """| NVIDIA-SMI 535.1    Driver Version: 535.1   CUDA Version: 12.2     |
|   1  NVIDIA H100 80GB HBM3          On  | 00000000:3B:00.0 Off |                  ERR! |
|ERR!  ERR! ERR!             ERR! / ERR! |   GPU is lost        |    ERR!      Default |
"""
SKIPPED = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {"category": "Stress", "tests": [{"name": "SM Stress", "results": [{"gpu_ids": "0", "status": "Skip"}]}]}
        ]
    }
}
ONE_GPU = """# nThread 1 nGpus 1
#  Rank  0 Group  0 Pid  9 on worker-3 device  0 [0x18] NVIDIA H100
        1024    256     float     sum      -1    33.2    0.10    0.00      4    32.5    0.10    0.00      0
# Out of bounds values : 4 FAILED
# Avg bus bandwidth    : 0.0
"""
SLURM_LOG = "[2026-03-01T08:00:00.123] "
DATADOG = {
    "id": "5",
    "event_type": "metric_alert_monitor",
    "title": "[Triggered on {host:worker-3}] GPU XID",
    "date": "1772352000000",
    "body": "%%%\nXID 79\n%%%",
}
GRID = {
    "id": "g-1",
    "eventType": "Microsoft.ResourceNotifications.HealthResources.ResourceAnnotated",
    "subject": "/s",
    "eventTime": "2026-03-01T08:00:00Z",
    "data": {
        "resourceInfo": {
            "properties": {
                "targetResourceId": "/subscriptions/a/virtualMachines/worker-3",
                "annotationName": "VirtualMachineHostRebootedForRepair",
            }
        }
    },
}
WATCH = '{"type": "MODIFIED", "object": {"kind": "Node", "metadata": {"name": "worker-3"}, "status": {"conditions": \
[{"type": "Ready", "status": "False"}]}}}\n{"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {}}}\n'
TEST_ALERT = {
    **webhook(
        an_alert(
            labels={"alertname": "TestAlert", "err_code": None, "node": None, "Hostname": None, "instance": "Grafana"}
        )
    ),
    "version": "1",
    "orgId": 1,
}

SHAPES = {
    "switch code in err_code": Shape(
        "alertmanager", webhook(an_alert(labels={"err_code": "20034"})), ("worker-3", "fault", "sxid/20034")
    ),
    "a test names no machine": Shape("grafana", TEST_ALERT, (None, "test", "alert/TestAlert"), {"actionable": False}),
    "CloudWatch by SNS": Shape(
        "aws", {"Type": "Notification", "TopicArn": "t", "Message": json.dumps(alarm())}, (INSTANCE, "fault", "xid/79")
    ),
    "CloudWatch is fine": Shape("aws", alarm("OK"), (INSTANCE, "recovered", "xid/79")),
    "CloudWatch is blind": Shape(
        "aws", alarm("INSUFFICIENT_DATA"), (INSTANCE, "info", "xid/79"), {"actionable": False}
    ),
    "CloudWatch by EventBridge": Shape("aws", CLOUDWATCH, (INSTANCE, "fault", "alert/status check")),
    "no instance was launched": Shape(
        "aws",
        event_bridge(
            "aws.autoscaling", "EC2 Instance Launch Unsuccessful", {"AutoScalingGroupName": "g", "EC2InstanceId": ""}
        ),
        None,
    ),
    "IMDS without a notice": Shape("aws", "<?xml version='1.0'?><title>404 - Not Found</title>", None, detected=False),
    "OCI by Streaming": Shape(
        "oci",
        [
            {
                "stream": "s",
                "partition": "0",
                "offset": 1,
                "value": base64.b64encode(json.dumps(OCI_EVENT).encode()).decode(),
            }
        ],
        (OCID, "planned", "maintenance/instancemaintenance"),
        {"not_before": "2026-03-09T10:00:00Z"},
        detected=False,
    ),
    "OCI's alarm": Shape("oci", OCI_ALARM, (OCID, "fault", "alert/GPU trouble"), {"severity": "critical"}),
    "OCI as a CloudEvent": Shape(
        "cloudevents",
        cloud_event(OCI_EVENT["data"], type=OCI_EVENT["eventType"]),
        (OCID, "planned", "maintenance/instancemaintenance"),
        headers=STRUCTURED,
    ),
    "Eventarc": Shape(
        "cloudevents",
        cloud_event(LOG_ENTRY, type="google.cloud.audit.log.v1.written"),
        ("worker-3", "fault", "gcp/compute.instances.hostError"),
        headers=STRUCTURED,
    ),
    "Compute Engine's instance": Shape(
        "gcp",
        {
            "name": "worker-3",
            "resourceStatus": {"upcomingMaintenance": {"type": "SCHEDULED", "windowStartTime": "2026-03-09T10:00:00Z"}},
        },
        ("worker-3", "planned", "maintenance/SCHEDULED"),
        {"not_before": "2026-03-09T10:00:00Z"},
        detected=False,
    ),
    "Azure's annotation": Shape(
        "azure",
        [GRID],
        ("worker-3", "info", "azure/annotation/VirtualMachineHostRebootedForRepair"),
        {"actionable": False},
    ),
    "xid as a word": Shape(
        "cloudevents", cloud_event({"node": "worker-3", "xid": "XID_79"}), ("worker-3", "fault", "xid/79")
    ),
    "a port beside its NIC": Shape(
        "nvsentinel",
        nvsentinel(
            checkName="InfiniBandStateCheck",
            errorCode=[],
            entitiesImpacted=[
                {"entityType": "NIC", "entityValue": "mlx5_0"},
                {"entityType": "NICPort", "entityValue": "1"},
            ],
        ),
        ("worker-3", "fault", "nvsentinel/InfiniBandStateCheck"),
        {"entities": ["ib:mlx5_0/1"]},
    ),
    "a port with its device": Shape(
        "nvsentinel",
        nvsentinel(
            checkName="InfiniBandStateCheck",
            errorCode=[],
            entitiesImpacted=[{"entityType": "NICPort", "entityValue": "mlx5_3_port1"}],
        ),
        ("worker-3", "fault", "nvsentinel/InfiniBandStateCheck"),
        {"entities": ["ib:mlx5_3/1"]},
    ),
    "strategy by its number": Shape(
        "nvsentinel", nvsentinel(processingStrategy=1), ("worker-3", "fault", "xid/79"), {"actionable": True}
    ),
    "STORE_ONLY by its number": Shape(
        "nvsentinel", nvsentinel(processingStrategy=2), ("worker-3", "fault", "xid/79"), {"actionable": False}
    ),
    "columns in an NVLink 5 line": Shape(
        "kmsg",
        f"[ 1.5] {NETIR}",
        (None, "fault", "xid/149"),
        {"entities": ["pci:0018:01:00", "nvlink:10"], "severity": "critical"},
    ),
    "colours of dmesg": Shape(
        "kmsg", f"\x1b[32m[   1.5] \x1b[0m{LINE}", (None, "fault", "xid/79"), {"actionable": True}
    ),
    "a container's output": Shape(
        "kmsg", f"2026-03-01T08:00:00.123456789Z stderr F {LINE}", (None, "fault", "xid/79"), {"actionable": False}
    ),
    "docker's output": Shape(
        "kmsg", {"log": LINE, "stream": "stdout"}, (None, "fault", "xid/79"), {"actionable": False}
    ),
    "journal's export": Shape(
        "kmsg", JOURNAL, ("worker-3", "fault", "xid/79"), {"starts_at": "2026-03-01T08:00:00Z", "actionable": True}
    ),
    "clock events": Shape(
        "dcgm_exporter",
        f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{LABELS},clock_event="hw_thermal"}} 4\n',
        ("worker-3", "fault", "throttle/hw-thermal"),
    ),
    "idle clocks": Shape("dcgm_exporter", f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{LABELS},clock_event="gpu_idle"}} 4\n', None),
    "the driver's advice": Shape(
        "dcgm_exporter",
        f"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION{{{LABELS}}} 2\n",
        ("worker-3", "fault", "recovery-action/reboot"),
    ),
    "a blank of 32 bits": Shape("dcgm_exporter", f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 2147483634\n", None),
    "a switch by name": Shape(
        "dcgm_exporter",
        'DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS{nvswitch="nvswitch0"} 20034\n',
        (None, "fault", "sxid/20034"),
        {"entities": ["nvswitch:0"]},
    ),
    "a handle by index and bus id": Shape(
        "nvidia_smi", LOST, (None, "fault", "gpu-lost"), {"entities": ["pci:0000:3b:00"]}
    ),
    "lost in the table": Shape(
        "nvidia_smi", TABLE, (None, "fault", "gpu-lost"), {"entities": ["gpu:1", "pci:0000:3b:00"]}
    ),
    "a list of GPUs": Shape("nvidia_smi", "GPU 0: NVIDIA H100 (UUID: GPU-0a1b2c3d)\n", None, detected=False),
    "no words but a code": Shape("nvidia_smi", "Killed", (None, "check", "check/error"), code=1, detected=False),
    "NVML mismatch": Shape(
        "nvidia_smi",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        (None, "fault", "nvidia-smi/version-mismatch"),
        code=18,
    ),
    "dcgmi that didn't run": Shape(
        "dcgm", "Error: health watches not enabled", (None, "check", "check/error"), code=1, detected=False
    ),
    "all tests skipped": Shape("dcgm", SKIPPED, (None, "check", "diag/all/skip"), code=0),
    "one GPU's all_reduce": Shape("active_checks", ONE_GPU, ("worker-3", "check", "diag/all_reduce_perf/fail"), code=1),
    "perftest alone": Shape(
        "active_checks",
        " Couldn't connect to 10.0.0.1:18515\n",
        (None, "check", "diag/ib_write_bw/error"),
        code=1,
        detected=False,
    ),
    "Slurm quotes an Xid": Shape(
        "slurm",
        "REASON USER TIMESTAMP NODELIST\nXid 79 root 2026-03-01T08:00:00 w1\n",
        ("w1", "fault", "xid/79"),
        {"severity": "critical"},
    ),
    "Slurm undrains": Shape(
        "slurm", f"{SLURM_LOG}update_node: node w1 state set to UNDRAIN\n", ("w1", "recovered", "slurm/drain")
    ),
    "Slurm can't kill": Shape(
        "slurm",
        f"{SLURM_LOG}error: slurmd error running JobId=7 on node(s)=w1: Kill task failed\n",
        ("w1", "fault", "slurm/kill-task-failed"),
    ),
    "Slurm finds too little": Shape(
        "slurm",
        f"{SLURM_LOG}error: Node w1 has low real_memory size (500 < 1000)\n",
        ("w1", "fault", "slurm/low-resources"),
    ),
    "Slurm reboots by order": Shape(
        "slurm",
        {"nodes": [{"name": "w1", "state": ["DRAIN"], "reason": "Reboot ASAP", "reason_set_by_user": "root"}]},
        ("w1", "lifecycle", "slurm/drain"),
    ),
    "strigger's argument": Shape(
        "slurm", "/usr/sbin/notify gpu-07\n", ("gpu-07", "fault", "slurm/trigger"), detected=False
    ),
    "NHC through pdsh": Shape(
        "nhc",
        "w1: ERROR:  nhc:  Health check failed:  check_ps_daemon:  no sshd\n",
        ("w1", "fault", "nhc/check_ps_daemon"),
    ),
    "NHC in syslog": Shape(
        "nhc",
        "Mar  1 08:00:00 w1 nhc[12]: Health check failed:  check_ps_daemon:  no sshd\n",
        ("w1", "fault", "nhc/check_ps_daemon"),
    ),
    "NHC as a reason": Shape("nhc", "NHC: check_hw_physmem:  too little\n", (None, "fault", "nhc/check_hw_physmem")),
    "NHC's watchdog": Shape(
        "nhc", "NHC watchdog timer 99 (120 secs) terminating NHC\n", (None, "check", "nhc/timeout")
    ),
    "NHC is content": Shape(
        "nhc", "Node Health Check completed successfully (1s).\n", (None, "check", "diag/nhc/pass")
    ),
    "a watch in lines": Shape("k8s_node", WATCH, ("worker-3", "fault", "condition/Ready")),
    "Datadog's own body": Shape(
        "datadog", DATADOG, ("worker-3", "fault", "xid/79"), {"starts_at": "2026-03-01T08:00:00Z"}
    ),
    "Datadog's own clear": Shape(
        "datadog", {**DATADOG, "title": "[Recovered on {host:worker-3}] GPU XID"}, ("worker-3", "recovered", "xid/79")
    ),
    "Opsgenie in ISO": Shape(
        "opsgenie",
        {
            "action": "Create",
            "alert": {"alertId": "a", "message": "XID 79 on w-3", "createdAt": "2026-03-01T08:00:00Z"},
        },
        ("w-3", "fault", "xid/79"),
        {"starts_at": "2026-03-01T08:00:00Z"},
    ),
    "a page about no machine": Shape(
        "opsgenie",
        {"action": "Create", "alert": {"alertId": "a", "message": "XID 79"}},
        (None, "fault", "xid/79"),
        {"actionable": False},
    ),
    "the key names the machine": Shape(
        "pagerduty",
        {"routing_key": "r", "event_action": "resolve", "dedup_key": "worker-3/xid79"},
        ("worker-3", "recovered", "xid/79"),
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_is_read_as_what_it_says(shape: Shape) -> None:
    raw = shape.body if isinstance(shape.body, str) else json.dumps(shape.body)
    headers = {name.replace("_", "-"): value for name, value in shape.headers.items()}
    payload = Payload(raw.encode(), headers, shape.code)
    said = [e for e in read(shape.source, payload).events if e.kind is not Kind.MEASUREMENT]
    assert len(said) == (shape.want is not None), said
    if shape.want is not None:
        assert (said[0].subject, said[0].kind.value, said[0].fault) == shape.want
        form = said[0].model_dump(mode="json")
        assert {name: form[name] for name in shape.more} == shape.more
    if shape.detected:
        known = detect(payload)
        assert shape.source == known.SOURCE


def test_the_same_part_twice_in_one_payload_is_said_once() -> None:
    assert len(parsed("alertmanager", webhook(an_alert(), an_alert())).events) == 1
    other = an_alert(fingerprint="00ff00ff00ff0100", labels={"gpu": "3"})
    assert len(parsed("alertmanager", webhook(an_alert(), other, an_alert())).events) == 2


def test_a_clear_of_an_alarm_takes_back_what_the_alarm_raised() -> None:
    (fired,), (over,) = forms("aws", alarm()), forms("aws", alarm("OK"))
    assert fired["dedupe_key"] == over["dedupe_key"]
    again = {**OCI_ALARM, "alarmMetaData": [{**OCI_ALARM["alarmMetaData"][0], "status": "OK"}]}  # type: ignore[index]
    (fired,), (over,) = forms("oci", OCI_ALARM), forms("oci", again)
    assert (over["kind"], over["dedupe_key"]) == ("recovered", fired["dedupe_key"])
