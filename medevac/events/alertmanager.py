"""Prometheus Alertmanager webhooks, version 4: one POST holds many alerts, each with a status of its own.

Which fault it is: see `alert_codes`; its class is the catalogue's, whatever the alert's severity says. Subject: what
Kubernetes calls the node, else the exporter's host name, else the scraped address (to be looked up); an exporter's or
a workload's pod is never taken for the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from medevac.events.alert_codes import alert_code
from medevac.events.event import EvidenceRef, Kind, Statement
from medevac.events.freetext import severity_of
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    MAX_PARTS,
    Fields,
    Reading,
    clean,
    entities,
    gpu,
    gpu_uuid,
    host_of,
    ib,
    instant,
    join_key,
    mig_gi,
    node_name,
    nvlink,
    nvswitch,
    one_line,
    pci,
    peek_json,
    quote,
    read_json,
    severity_word,
)
from medevac.model import digest

SOURCE = "alertmanager"
VERSION = "4"

NODE_LABELS = ("exported_node", "node", "kubernetes_node", "node_name", "nodename")
"""In this order: `exported_node` is what the metric itself said where the scrape put its own `node` over it."""
HOST_LABELS = ("Hostname", "hostname", "exported_hostname", "host")
HEARTBEATS = frozenset({"watchdog", "deadmansswitch", "deadmanssnitch", "infoinhibitor", "heartbeat"})
TESTS = frozenset({"testalert", "test", "test alert", "test-alert"})
_PORT = re.compile(r":[0-9]{1,5}")
_EXPORTER_POD = re.compile(r"[a-z0-9-]{0,40}(?:dcgm|node)-exporter(?:-[a-z0-9]{1,20}){1,3}")


def recognises(payload: Payload) -> bool:
    body = peek_json(payload)
    return isinstance(body, dict) and "alerts" in body and "orgId" not in body and "groupKey" in body


def parse(payload: Payload) -> Parsed:
    body = Fields.of(read_json(payload.body))
    version = body.scalar("version")
    if version != VERSION:
        raise ParseError(
            f"unsupported webhook payload version {quote(version)}, expected {quote(VERSION)}"
            if version is not None
            else "field version is missing: this is no Alertmanager webhook"
        )
    held_back = body.integer("truncatedAlerts", 0)
    if held_back < 0:
        raise ParseError("field truncatedAlerts is negative")
    alerts = body.parts("alerts")
    common = body.texts("commonLabels")
    notes = body.texts("commonAnnotations")
    reading = Reading(SOURCE)
    for i, alert in enumerate(reading.first(alerts), 1):
        with reading.part(f"alert {i}"):
            read_alert(reading, Fields.of(alert, f"alert {i}"), common, notes)
    held_back_by(reading, held_back, body, payload)
    return reading.parsed()


def held_back_by(reading: Reading, sender: int, body: Fields, payload: Payload) -> None:
    """Tells of alerts that the sender held back, and of those beyond what is read of one webhook."""
    reading.truncated += sender
    left = reading.take_left()
    if not sender and not left:
        return
    beyond = f"; {left} stood beyond the {MAX_PARTS} that are read of one webhook" if left else ""
    reading.add(
        Kind.INFO,
        "alertmanager/truncated" if reading.source == SOURCE else "monitor/truncated",
        part=payload.body.decode("utf-8", "replace"),
        key=("truncated", body.text("groupKey", "")),
        actionable=False,
        summary=f"{sender + left} more alerts of this group were not had{beyond}; ask for them (alertmanager.url of "
        f"the sender), split the group (group_by), or set max_alerts, to {MAX_PARTS} at most",
        detail={"truncated_alerts": sender + left, "group_key": body.get("groupKey")},
    )


def read_alert(reading: Reading, alert: Fields, common: Mapping[str, str], notes: Mapping[str, str]) -> None:
    """Adds one alert of a webhook of this shape (Grafana's too). Raises `ParseError`."""
    labels = {**common, **alert.texts("labels")}
    annotations = {**notes, **alert.texts("annotations")}
    status = alert.text("status")
    if status not in ("firing", "resolved"):
        raise ParseError(f"field status is {quote(status)}, expected firing or resolved")
    name = labels.get("alertname", "").strip() or "unnamed"
    subject, found_in = _subject(labels)
    code = alert_code(name, labels, notes=(annotations.get("summary"), annotations.get("description")), rule=labels)
    starts_at = _time(alert, "startsAt")
    ends_at = _time(alert, "endsAt") if status == "resolved" else None
    series = alert.maybe_text("fingerprint") or digest(dict(sorted(alert.texts("labels").items())))[:16]
    series = join_key(series)
    key = join_key(series, starts_at.isoformat()) if starts_at else series

    word = name.lower().replace("_", "")
    kind = Kind.RECOVERED if status == "resolved" else Kind.FAULT
    if word in HEARTBEATS:
        kind = Kind.INFO
    elif word in TESTS:
        kind = Kind.TEST
    if kind in (Kind.INFO, Kind.TEST):
        subject, found_in = None, None  # whichever machine its rule ran on, it is about none
    device = gpu_uuid(labels.get("UUID") or labels.get("uuid"))  # whose node the inventory may know
    hostname = next((labels[h] for h in HOST_LABELS if labels.get(h)), None)
    reading.add(
        kind,
        code,
        part=alert.value,
        id=join_key(reading.source, key, status),
        key=key,
        series=series,
        subject=subject,
        cluster=clean(labels.get("cluster", "")) or None,
        actionable=kind in (Kind.FAULT, Kind.RECOVERED) and (subject is not None or device is not None),
        severity=severity_word(labels.get("severity")) or severity_of(code),
        statement=Statement.LEVEL,
        entities=entities(
            gpu(labels.get("gpu")),
            device,
            pci(labels.get("pci_bus_id")),
            mig_gi(labels.get("GPU_I_ID")),
            nvlink(labels.get("nvlink")),
            nvswitch(labels.get("nvswitch")),
            ib(labels.get("device"), labels["port"]) if labels.get("port") else None,
        ),
        starts_at=starts_at,
        ends_at=ends_at,
        marker=_marker(name, labels, annotations),
        summary=annotations.get("summary") or annotations.get("description") or name,
        evidence=_evidence(alert, annotations),
        detail={
            "alertname": name,
            "severity": labels.get("severity"),
            "subject_from": found_in,
            "hostname": hostname if hostname != subject else None,
            "driver_version": labels.get("DCGM_FI_DRIVER_VERSION"),
            "model": labels.get("modelName"),
            "err_msg": labels.get("err_msg"),
            "description": annotations.get("description"),
            "job": labels.get("exported_pod"),
            "namespace": labels.get("exported_namespace"),
            "pool": labels.get("pool"),
        },
    )


def _time(alert: Fields, key: str) -> datetime | None:
    """None for the zero time (still firing) and for a missing one; a time that is none is refused."""
    value = alert.get(key)
    when = instant(value)
    if when is None and value not in (None, "") and not (isinstance(value, str) and value.startswith("0001-01-01")):
        raise ParseError(f"field {key} is {quote(value)}, which is no time")
    return when


def _subject(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The machine and the label that named it. Raises for a name that can't be one."""
    for label in NODE_LABELS:
        if value := labels.get(label):
            host = host_of(value)  # some rules put the scraped address there, with its port
            return node_name(host if host and _PORT.fullmatch(value.removeprefix(host)) else value), label
    pods = {labels.get("pod"), labels.get("exported_pod")}
    for label in HOST_LABELS:
        value = labels.get(label)
        if value and value not in pods and not _EXPORTER_POD.fullmatch(value[:254]):
            return node_name(value), label
    address = host_of(labels.get("instance", ""))
    if address is None or address in pods or address == "localhost" or address.startswith("127."):
        return None, None
    return address, "instance"


def _marker(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
    """What medevac's own alerts carry, so that none of them ever opens an incident."""
    own = labels.get("medevac") or annotations.get("medevac")
    return one_line(own or name, 120) if own is not None or name.startswith("Medevac") else None


def _evidence(alert: Fields, annotations: Mapping[str, str]) -> tuple[EvidenceRef, ...]:
    links = {"query": alert.get("generatorURL"), "runbook": annotations.get("runbook_url")}
    return tuple(
        EvidenceRef(title=title, url=one_line(url, 1_000))
        for title, url in links.items()
        if isinstance(url, str) and url.startswith(("http://", "https://"))
    )
