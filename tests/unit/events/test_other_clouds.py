"""Azure, Google Cloud and Oracle Cloud."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from medevac.events.parsing import ParseError
from medevac.events.registry import detect
from tests.unit.events.payloads import forms, only, parsed, payload

VM = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/Worker-3"
SCALE_SET = (
    "/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
)


# --- Azure ---------------------------------------------------------------------------------------------------


def scheduled(
    status: str = "Scheduled", kind: str = "Reboot", before: str = "Mon, 09 Mar 2026 10:00:00 GMT"
) -> dict[str, Any]:
    return {
        "EventId": "AAAA-1",
        "EventStatus": status,
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": ["pool_3"],
        "NotBefore": before,
        "EventSource": "Platform",
    }


@pytest.mark.parametrize("kind", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"])
def test_scheduled_events_polled_and_pushed_are_one_fault(kind: str) -> None:
    polled = only("azure", {"DocumentIncarnation": 1, "Events": [scheduled(kind=kind)]})
    assert (polled["kind"], polled["fault"], polled["subject"]) == ("planned", f"maintenance/{kind}", "pool_3")
    assert polled["not_before"] == "2026-03-09T10:00:00Z"
    started = only("azure", {"DocumentIncarnation": 2, "Events": [scheduled("Started", kind, "")]})
    assert (started["kind"], started["not_before"]) == ("planned", None)
    data = {"resourceInfo": {"properties": {**scheduled("Completed", kind, ""), "EventId": "aaaa-1"}}}
    pushed = only("azure", [grid("Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted", data)])
    assert pushed["kind"] == "recovered"
    assert pushed["dedupe_key"] == polled["dedupe_key"] == started["dedupe_key"]


def grid(kind: str, data: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "g-1",
        "topic": "/t",
        "subject": SCALE_SET,
        "eventType": kind,
        "eventTime": "2026-03-01T08:00:00Z",
        "data": data,
        **more,
    }


def test_nothing_scheduled_and_a_bad_name() -> None:
    assert forms("azure", {"DocumentIncarnation": 1, "Events": []}) == []
    bad = scheduled() | {"Resources": ["a/../b"]}
    found = parsed("azure", {"DocumentIncarnation": 1, "Events": [bad, scheduled()]})
    assert (len(found.events), len(found.refused)) == (1, 1)


def test_the_grids_handshake_carries_its_code() -> None:
    asked = only("azure", [grid("Microsoft.EventGrid.SubscriptionValidationEvent", {"validationCode": "abc"})])
    assert (asked["kind"], asked["actionable"], asked["detail"]["validation_code"]) == ("handshake", False, "abc")


def test_availability_from_the_grid_in_both_schemas() -> None:
    kind = "Microsoft.ResourceNotifications.HealthResources.AvailabilityStatusChanged"

    def data(state: str) -> dict[str, Any]:
        return {"resourceInfo": {"properties": {"targetResourceId": SCALE_SET, "availabilityState": state}}}

    bad = only("azure", [grid(kind, data("Unavailable"))])
    assert (bad["subject"], bad["fault"], bad["kind"]) == ("pool_3", "azure/resource-health/Unavailable", "fault")
    cloud = {"specversion": "1.0", "id": "1", "source": "/s", "type": kind, "time": "2026-03-01T08:00:00Z"}
    good = only("azure", {**cloud, "subject": SCALE_SET, "data": data("Available")})
    assert (good["kind"], good["dedupe_key"]) == ("recovered", bad["dedupe_key"])
    assert forms("azure", [grid("Microsoft.Storage.BlobCreated", {})]) == []


def resource_health(current: str, cause: str = "PlatformInitiated", status: str = "Active") -> dict[str, Any]:
    return {
        "eventSource": "ResourceHealth",
        "eventTimestamp": "2026-03-01T08:00:00+00:00",
        "eventDataId": f"d-{current}-{status}",
        "level": "Critical",
        "status": status,
        "resourceId": VM,
        "properties": {"currentHealthStatus": current, "cause": cause, "title": "t"},
    }


def activity(log: dict[str, Any]) -> dict[str, Any]:
    return {
        "schemaId": "Microsoft.Insights/activityLogs",
        "data": {"status": "Activated", "context": {"activityLog": log}},
    }


def common(service: str, context: Any, condition: str = "Fired", **more: Any) -> dict[str, Any]:
    essentials = {
        "alertId": "/alerts/1",
        "alertRule": "gpu-hot",
        "monitorCondition": condition,
        "monitoringService": service,
        "alertTargetIDs": [VM],
        "firedDateTime": "2026-03-01T08:00:00Z",
        **more,
    }
    return {"schemaId": "azureMonitorCommonAlertSchema", "data": {"essentials": essentials, "alertContext": context}}


def test_resource_health_in_both_alert_schemas() -> None:
    one = only("azure", activity(resource_health("Degraded")))
    other = only("azure", common("Resource Health", resource_health("Degraded")))
    assert one["subject"] == other["subject"] == "Worker-3"
    assert one["fault"] == other["fault"] == "azure/resource-health/Degraded"
    assert one["dedupe_key"] == other["dedupe_key"]
    assert one["severity"] is None
    over = only("azure", activity(resource_health("Available")))
    assert (over["kind"], over["dedupe_key"]) == ("recovered", one["dedupe_key"])
    assert only("azure", activity(resource_health("Unavailable", status="Resolved")))["kind"] == "recovered"
    assert only("azure", activity(resource_health("Unavailable", "UserInitiated")))["kind"] == "lifecycle"


def test_an_administrators_deed_and_a_regional_issue_are_no_faults() -> None:
    log = {
        "eventSource": "Administrative",
        "eventDataId": "d",
        "operationName": "Microsoft.Compute/virtualMachines/deallocate/action",
    }
    deed = only("azure", activity({**log, "resourceId": VM}))
    assert (deed["kind"], deed["subject"]) == ("lifecycle", "Worker-3")
    issue = only(
        "azure", common("ServiceHealth", {"eventSource": "ServiceHealth", "properties": {"incidentType": "Incident"}})
    )
    assert (issue["kind"], issue["actionable"]) == ("info", False)


def test_metric_alerts_fire_and_resolve() -> None:
    fired = only("azure", common("Platform", {"condition": {}}))
    assert (fired["kind"], fired["fault"], fired["subject"]) == ("fault", "alert/gpu-hot", "Worker-3")
    over = only("azure", common("Platform", {}, "Resolved", resolvedDateTime="2026-03-01T09:00:00Z"))
    assert (over["kind"], over["dedupe_key"]) == ("recovered", fired["dedupe_key"])
    dimension = {"condition": {"allOf": [{"dimensions": [{"name": "Computer", "value": "worker-9"}]}]}}
    logs = only("azure", common("Log Alerts V2", dimension, alertTargetIDs=["/subscriptions/0/workspaces/w"]))
    assert logs["subject"] == "worker-9"
    nobody = only("azure", common("Log Alerts V2", {}, alertTargetIDs=["/subscriptions/0/workspaces/w"]))
    assert (nobody["subject"], nobody["actionable"]) == (None, False)
    assert only("azure", common("Platform", {}, description="Xid 79 on a GPU"))["fault"] == "xid/79"


# --- Google Cloud --------------------------------------------------------------------------------------------


def entry(method: str, metadata: Any = None, message: str = "") -> dict[str, Any]:
    return {
        "protoPayload": {
            "methodName": f"compute.instances.{method}",
            "resourceName": "projects/p/zones/europe-north1-a/instances/worker-3",
            "status": {"message": message},
            "metadata": metadata or {},
        },
        "insertId": f"ins-{method}",
        "resource": {"type": "gce_instance", "labels": {"instance_id": "12345", "zone": "europe-north1-a"}},
        "timestamp": "2026-03-01T08:00:00.123456789Z",
        "severity": "INFO",
        "logName": "projects/p/logs/cloudaudit.googleapis.com%2Fsystem_event",
    }


def push(body: Any, **attributes: str) -> dict[str, Any]:
    raw = body if isinstance(body, str) else json.dumps(body)
    data = base64.b64encode(raw.encode()).decode()
    return {
        "message": {"data": data, "attributes": attributes, "messageId": "1"},
        "subscription": "projects/p/subscriptions/s",
    }


def test_wrapped_unwrapped_and_pulled_are_the_same() -> None:
    plain = entry("hostError")
    pulled = {"receivedMessages": [{"ackId": "a", "message": push(plain)["message"]}]}
    found = [only("gcp", body) for body in (plain, push(plain), pulled)]
    assert {e["id"] for e in found} == {"ins-hostError"}
    assert {(e["subject"], e["kind"], e["fault"]) for e in found} == {
        ("worker-3", "fault", "gcp/compute.instances.hostError")
    }
    assert {e["severity"] for e in found} == {None}


@pytest.mark.parametrize(
    ("method", "kind"),
    [("automaticRestart", "lifecycle"), ("migrateOnHostMaintenance", "lifecycle"), ("guestTerminate", "lifecycle"),
     ("terminateOnHostMaintenance", "planned"), ("preempted", "planned")],
)  # fmt: skip
def test_what_the_method_means(method: str, kind: str) -> None:
    assert only("gcp", entry(method))["kind"] == kind


def test_a_maintenance_window_and_its_end() -> None:
    window = {
        "type": "SCHEDULED",
        "maintenanceStatus": "PENDING",
        "windowStartTime": "2026-03-09T10:00:00Z",
        "canReschedule": "TRUE",
    }
    found = only("gcp", entry("upcomingMaintenance", {"upcomingMaintenance": window}))
    assert (found["kind"], found["fault"], found["not_before"]) == (
        "planned",
        "maintenance/SCHEDULED",
        "2026-03-09T10:00:00Z",
    )
    assert found["detail"]["can_reschedule"] is True
    over = only("gcp", entry("upcomingMaintenance", {}, "Maintenance window has completed for this instance."))
    assert (over["kind"], over["dedupe_key"]) == ("recovered", found["dedupe_key"])
    metadata = only("gcp", {"can_reschedule": "false", "maintenance_status": "PENDING", "type": "UNSCHEDULED",
                            "window_start_time": "2026-03-09T10:00:00+00:00"})  # fmt: skip
    assert (metadata["subject"], metadata["fault"], metadata["not_before"]) == (
        None,
        "maintenance/UNSCHEDULED",
        "2026-03-09T10:00:00Z",
    )


def test_metadata_words() -> None:
    assert only("gcp", "TERMINATE_ON_HOST_MAINTENANCE")["kind"] == "planned"
    assert only("gcp", "TRUE\n")["fault"] == "spot-interruption"
    assert forms("gcp", "NONE") == []


def test_a_notification_of_gke_never_names_a_node() -> None:
    held = json.dumps({"resourceType": "NODE_POOL", "operation": "op-1", "operationStartTime": "2026-03-01T08:00:00Z"})
    kind = "type.googleapis.com/google.container.v1beta1.UpgradeEvent"
    found = only("gcp", push("Node pool is upgrading.", type_url=kind, payload=held))
    assert (found["kind"], found["subject"], found["actionable"]) == ("info", None, False)


def test_what_is_no_form_of_googles_is_refused_and_an_unknown_entry_only_informs() -> None:
    for body in ({"hello": "world"}, push({"hello": "world"})):
        with pytest.raises(ParseError, match="neither a log entry"):
            parsed("gcp", body)
    found = only("gcp", {"logName": "projects/p/logs/x", "insertId": "i1"})
    assert (found["kind"], found["subject"], found["actionable"]) == ("info", None, False)


def test_other_logs_and_bad_encodings() -> None:
    assert forms("gcp", push("hello")) == []
    assert forms("gcp", push({**entry("x"), "protoPayload": {"methodName": "storage.objects.get"}})) == []
    line = {
        "textPayload": "NVRM: Xid (PCI:0000:3b:00): 79, fell",
        "resource": {"labels": {"node_name": "worker-3"}},
        "logName": "projects/p/logs/x",
    }
    assert only("gcp", line)["fault"] == "xid/79"
    with pytest.raises(ParseError, match="base64"):
        parsed("gcp", {"message": {"data": "%%%"}, "subscription": "s"})


# --- Oracle --------------------------------------------------------------------------------------------------

OCID = "ocid1.instance.oc1.eu-frankfurt-1.aaaabbbbcccc"


def oci(kind: str, resource: str = OCID, **more: Any) -> dict[str, Any]:
    return {
        "cloudEventsVersion": "0.1",
        "eventID": f"o-{kind}",
        "eventType": f"com.oraclecloud.computeapi.{kind}",
        "eventTime": "2026-03-01T08:00:00.000Z",
        "data": {"resourceId": resource, "additionalDetails": more},
    }


def test_a_maintenance_is_planned_until_it_ends() -> None:
    maintenance = "ocid1.instancemaintenanceevent.oc1.eu.x"
    window = {
        "instanceId": OCID,
        "maintenanceReason": "HARDWARE_REPLACEMENT",
        "timeWindowStart": "2026-03-09T10:00:00Z",
    }
    found = only("oci", oci("instancemaintenance", maintenance, lifecycleState="SCHEDULED", **window))
    assert (found["subject"], found["kind"], found["not_before"]) == (OCID, "planned", "2026-03-09T10:00:00Z")
    for over in (oci("instancemaintenance.end", maintenance, **window),
                 oci("instancemaintenance", maintenance, lifecycleState="CANCELED", **window)):  # fmt: skip
        end = only("oci", over)
        assert (end["kind"], end["dedupe_key"]) == ("recovered", found["dedupe_key"])


def test_other_compute_events_are_lifecycle_and_confirmation_goes_to_oracle_only() -> None:
    assert only("oci", oci("terminateinstance.begin"))["kind"] == "lifecycle"
    assert only("oci", oci("instancepreemptionaction.begin"))["fault"] == "spot-interruption"
    url = "https://cell1.notification.eu-frankfurt-1.oci.oraclecloud.com/20181201/confirm?token=t"
    assert only("oci", "", **{"x-oci-ns-confirmationurl": url})["kind"] == "handshake"
    with pytest.raises(ParseError, match="Oracle"):
        parsed("oci", "", **{"x-oci-ns-confirmationurl": "https://evil.example/?.oraclecloud.com/"})


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("azure", {"DocumentIncarnation": 1, "Events": []}),
        ("azure", [grid("Microsoft.EventGrid.SubscriptionValidationEvent", {})]),
        ("azure", activity(resource_health("Available"))),
        ("azure", common("Platform", {})),
        ("gcp", push(entry("hostError"))),
        ("gcp", entry("hostError")),
        ("oci", oci("instancemaintenance")),
    ],
)
def test_recognised(source: str, body: Any) -> None:
    assert source == detect(payload(body)).SOURCE


# --- what Google and others tell besides ---------------------------------------------------------------------


def incident(state: str = "open", version: str = "1.2", **more: Any) -> dict[str, Any]:
    held = {
        "incident_id": "0.abc",
        "state": state,
        "started_at": 1772352000,
        "ended_at": None if state == "open" else 1772355600,
        "policy_name": "GPU Xid 79",
        "condition_name": "errors",
        "summary": "too many",
        "url": "https://console.example.com/i/0.abc",
        "resource": {"type": "gce_instance", "labels": {"instance_id": "4711", "zone": "z"}},
        "metric": {"type": "x", "labels": {"instance_name": "worker-3", "gpu": "2"}},
        **more,
    }
    return {"incident": held, "version": version}


def test_an_incident_of_cloud_monitoring_opens_and_closes() -> None:
    fired, over = only("gcp", push(incident())), only("gcp", incident("CLOSED"))
    assert (fired["kind"], fired["fault"], fired["subject"]) == ("fault", "xid/79", "worker-3")
    assert (fired["starts_at"], fired["entities"]) == ("2026-03-01T08:00:00Z", ["gpu:2"])
    assert (over["kind"], over["ends_at"], over["dedupe_key"]) == (
        "recovered", "2026-03-01T09:00:00Z", fired["dedupe_key"],
    )  # fmt: skip
    assert detect(payload(incident())).SOURCE == "gcp"


def test_an_incident_without_a_named_machine_has_its_id_and_a_test_none() -> None:
    bare = incident(metric={"labels": {"xid": "48"}}, policy_name="p", metadata={"system_labels": None})
    assert (only("gcp", bare)["subject"], only("gcp", bare)["fault"]) == ("4711", "xid/48")
    named = incident(metric=None, metadata={"system_labels": {"name": "worker-4"}})
    assert only("gcp", named)["subject"] == "worker-4"
    test = only("gcp", incident("OPEN", "test"))
    assert (test["kind"], test["subject"], test["actionable"]) == ("test", None, False)
    assert only("gcp", incident("acknowledged"))["actionable"] is False
    with pytest.raises(ParseError, match="state of the incident"):
        parsed("gcp", incident("melted"))


@pytest.mark.parametrize("part", ["metadata", "request", "response"])
@pytest.mark.parametrize("bare", [True, False])
def test_a_notices_window_is_found_wherever_the_log_holds_it(part: str, bare: bool) -> None:
    window = {"type": "SCHEDULED", "windowStartTime": "2026-03-08T08:00:00+01:00", "maintenanceStatus": "PENDING"}
    for method in ("compute.instances.upcomingMaintenance", "compute.instances.upcomingInfraMaintenance"):
        said = entry(method)
        said["protoPayload"][part] = window if bare else {"upcomingMaintenance": window}
        found = only("gcp", said)
        assert (found["kind"], found["not_before"]) == ("planned", "2026-03-08T07:00:00Z")


def test_a_kernels_line_by_the_log_and_by_a_container() -> None:
    line = {
        "logName": "projects/p/logs/kern",
        "insertId": "i",
        "resource": {"type": "k8s_node", "labels": {"node_name": "w3"}},
    }
    said = only("gcp", {**line, "jsonPayload": {"MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, x"}})
    assert (said["fault"], said["subject"], said["actionable"]) == ("xid/79", "w3", True)
    shown = {**line, "textPayload": "NVRM: Xid (PCI:0000:3b:00): 79, x", "logName": "projects/p/logs/stdout"}
    assert only("gcp", shown)["actionable"] is False


SYSLOG = {
    "logName": "projects/p/logs/syslog",
    "resource": {"type": "gce_instance", "labels": {"instance_id": "gpu-1"}},
}
KERNEL_XID = "NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize("key", ["textPayload", "message", "MESSAGE"])
def test_a_line_that_the_kernel_did_not_write_is_evidence_alone(key: str) -> None:
    for line in (
        "Nov 30 10:00:00 gpu-1 mychecker[12]: no nvidia Xid 79 found on any GPU",
        "dockerd: running image nvidia/cuda xid-79-test",
        "Nov 30 10:00:00 gpu-1 alice: NVRM: Xid (PCI:0000:4e:00): 79, forged with logger",
        f"Nov 30 10:00:00 gpu-1 kernel[77]: {KERNEL_XID}",
        f"nvidia says {KERNEL_XID}",
    ):
        body = {**SYSLOG, "textPayload": line} if key == "textPayload" else {**SYSLOG, "jsonPayload": {key: line}}
        found = only("gcp", body)
        assert (found["kind"], found["fault"], found["actionable"]) == ("info", "gcp/log-entry", False), line
    bare = only("gcp", {**SYSLOG, "textPayload": KERNEL_XID})
    assert (bare["fault"], bare["actionable"]) == ("xid/79", False), "nobody shows as its writer"
    assert forms("gcp", {**SYSLOG, "textPayload": "Nov 30 10:00:00 gpu-1 kernel: nvidia 0000:4e:00.0: enabled"}) == []


def test_the_kernels_own_line_is_a_fault_whichever_log_carries_it() -> None:
    console = "projects/p/logs/serialconsole.googleapis.com%2Fserial_port_1_output"
    for body in (
        {"textPayload": f"Nov 30 10:00:00 gpu-1 kernel: [ 12.5] {KERNEL_XID}"},
        {"jsonPayload": {"message": f"Nov 30 10:00:00 gpu-1 kern.err kernel: {KERNEL_XID}"}},
        {"jsonPayload": {"MESSAGE": KERNEL_XID, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}},
        {"textPayload": f"[   12.500000] {KERNEL_XID}", "logName": console},
        {"textPayload": KERNEL_XID, "logName": "projects/p/logs/kern"},
    ):
        found = only("gcp", {**SYSLOG, **body})
        assert (found["kind"], found["fault"], found["subject"], found["actionable"], found["entities"]) == (
            "fault", "xid/79", "gpu-1", True, ["pci:0000:4e:00"]
        ), body  # fmt: skip
    logger = {"MESSAGE": KERNEL_XID, "_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "_PID": "7"}
    assert only("gcp", {**SYSLOG, "jsonPayload": logger})["kind"] == "info"


def test_googles_other_carriers() -> None:
    log = entry("compute.instances.hostError")
    want = only("gcp", log)
    for carrier in ({"entries": [log]}, {**push(log)["message"], "publishTime": "2026-03-01T08:00:00Z"}):
        assert only("gcp", carrier) == want
    kind = {
        "specversion": "1.0",
        "id": "1",
        "source": "//pubsub",
        "type": "google.cloud.pubsub.topic.v1.messagePublished",
    }
    assert only("cloudevents", {**kind, "data": push(log)}) == want


def test_a_rule_of_azures_prometheus_says_what_its_labels_say() -> None:
    labels = {"alertname": "GpuXid", "node": "aks-3", "gpu": "3", "xid": "79"}
    found = only(
        "azure", common("Prometheus", {"labels": labels, "annotations": {"summary": "s"}}, alertTargetIDs=["/x"])
    )
    assert (found["fault"], found["subject"], found["entities"]) == ("xid/79", "aks-3", ["gpu:3"])


def test_no_scheduled_events_may_be_null() -> None:
    assert forms("azure", {"DocumentIncarnation": 3, "Events": None}) == []


def test_an_oracle_instance_is_known_by_any_dimension_and_a_schedule_ends_with_its_maintenance() -> None:
    meta = {
        "id": "a",
        "status": "FIRING",
        "severity": "INFO",
        "dimensions": [{"resourceDisplayName": "w3", "instanceId": OCID}],
    }
    alarm = {"title": "GPU", "dedupeKey": "d", "timestampEpochMillis": 1772352000000, "alarmMetaData": [meta]}
    assert only("oci", alarm)["subject"] == OCID
    kinds = ("instancemaintenance.scheduled", "instancemaintenance.end")
    planned, over = (only("oci", oci(kind)) for kind in kinds)
    assert (planned["kind"], over["kind"]) == ("planned", "recovered")
    assert planned["dedupe_key"] == over["dedupe_key"]


@pytest.mark.parametrize("name", [None, True, 7, ["w"], {}])
def test_what_is_no_text_becomes_no_machine(name: Any) -> None:
    scheduled_for = {"DocumentIncarnation": 1, "Events": [scheduled() | {"Resources": [name]}, scheduled()]}
    found = parsed("azure", scheduled_for)
    assert len(found.events) == 1
    assert "Resources[] has the wrong type" in found.refused[0].reason
    with pytest.raises(ParseError, match=r"alertTargetIDs\[\]"):
        parsed("azure", common("Platform", {}, alertTargetIDs=[name]))
