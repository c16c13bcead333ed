"""NVSentinel's health events, as CloudEvents of type `com.nvidia.nvsentinel.health.v1`.

The CloudEvent's id is fresh at each export and tells nothing; a statement is known by agent, check, node and
entities. `isHealthy` takes back what the same agent and check said of the same entities, or of all when it names
none. `processingStrategy: STORE_ONLY` forbids acting, and so do `quarantineOverrides` and `drainOverrides` that say
`skip`, whatever else the event says.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from medevac.events import cloudevents
from medevac.events.event import Kind, Severity, Statement
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import (
    Fields,
    Reading,
    entities,
    fault_code,
    gpu,
    gpu_serial,
    gpu_uuid,
    ib,
    instant,
    join_key,
    mig_ci,
    mig_gi,
    node_name,
    nvlink,
    nvswitch,
    one_line,
    pci,
    peek_json,
    quote,
)
from medevac.faults.catalogue import lookup

SOURCE = "nvsentinel"
CLOUDEVENT_TYPES = ("com.nvidia.nvsentinel.",)
TYPE = "com.nvidia.nvsentinel.health.v1"
MAY_ACT = frozenset({"EXECUTE_REMEDIATION", "UNSPECIFIED", "PROCESSING_STRATEGY_UNSPECIFIED", "", "0", "1"})
"""The strategy by its name, or by its number in the protocol's enumeration."""
_PORT = re.compile(r"(?P<device>[a-z][a-z0-9_]{1,30}?)_port(?P<port>[0-9]{1,3})|(?P<number>[0-9]{1,3})")
_CODE = re.compile(r"(?:(S?XID)[ _:-]?)?([0-9]{1,5})(?:\.[A-Za-z0-9_.]{1,60})?", re.IGNORECASE)
_SOURCE = re.compile(r"nvsentinel://(?P<cluster>[^/\s]{1,253})/healthevents/?")
_DCGM = re.compile(r"DCGM_FR_[A-Z0-9_]{1,80}")


def recognises(payload: Payload) -> bool:
    if payload.headers.get("ce-type", "").startswith(CLOUDEVENT_TYPES[0]):
        return True
    if CLOUDEVENT_TYPES[0].encode() not in payload.body:
        return False
    body = peek_json(payload)
    events = body if isinstance(body, list) else [body]
    return bool(events) and all(
        isinstance(e, dict) and str(e.get("type")).startswith(CLOUDEVENT_TYPES[0]) for e in events
    )


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    for where, found in reading.first(cloudevents.envelopes(payload)):
        with reading.part(where):
            envelope = cloudevents.opened(found, where)
            if envelope["type"] != TYPE:
                raise ParseError(f"type {quote(envelope['type'])} can't be read, expected {quote(TYPE)}")
            _event(reading, envelope)
    return reading.parsed()


def _event(reading: Reading, envelope: cloudevents.Envelope) -> None:
    data = Fields.of(envelope.data, "data")
    meta = data.fields("metadata", {})
    health = data.fields("healthEvent")
    node = node_name(health.text("nodeName"))
    agent, check = health.text("agent", ""), health.text("checkName")
    healthy, fatal = health.boolean("isHealthy", False), health.boolean("isFatal", False)
    strategy = health.scalar("processingStrategy") or ""
    codes = _codes(health)
    impacted = _impacted(health)
    code = _worst([_code(c, check) for c in codes]) or fault_code(SOURCE, check)
    named = sorted(f"{kind} {value}" for kind, value in impacted)
    series = join_key(agent, check, node)
    # A clear without entities takes back all that its check said: its key is the whole series.
    key = series if healthy and not named else join_key(agent, check, node, ", ".join(named))
    when = instant(health.get("generatedTimestamp")) or instant(envelope.get("time"))
    skipped = health.fields("quarantineOverrides", {}).boolean("skip", False)
    # A fault whose drain is forbidden opens nothing: what it would open may end in one.
    kept = health.fields("drainOverrides", {}).boolean("skip", False)
    cluster = _cluster(meta.maybe_text("cluster"), envelope["source"])
    reading.add(
        Kind.RECOVERED if healthy else Kind.FAULT,
        code,
        part=health.value,
        id=join_key(SOURCE, key, code, when.isoformat() if when else envelope["id"], healthy),
        key=key,
        series=series,
        subject=node,
        cluster=cluster,
        actionable=strategy in MAY_ACT and not skipped and (healthy or not kept),
        severity=None if healthy else Severity.CRITICAL if fatal else Severity.WARNING,
        statement=Statement.LEVEL,
        entities=_entities(impacted),
        starts_at=None if healthy else when,
        ends_at=when if healthy else None,
        summary=health.text("message", "") or f"{check} on {node}",
        detail={
            "agent": agent,
            "check": check,
            "component": health.get("componentClass"),
            "fatal": fatal,
            "error_codes": codes,
            "recommended_action": health.scalar("recommendedAction"),
            "processing_strategy": strategy or None,
            "quarantine_overrides": health.get("quarantineOverrides"),
            "drain_overrides": health.get("drainOverrides"),
            "entities": named,
            "metadata": health.get("metadata"),
            "driver_word": ("fatal" if fatal else "nonfatal") if code.startswith("sxid/") else None,
        },
    )


def _cluster(named: str | None, source: str) -> str | None:
    """By its metadata, or by its CloudEvent's source. Raises where the two name different ones."""
    found = _SOURCE.fullmatch(source)
    told = found["cluster"] if found else None
    if named and told and named != told:
        raise ParseError(
            f"metadata names cluster {quote(named)}, source names {quote(told)}: nobody knows which is meant"
        )
    return named or told


def _codes(health: Fields) -> list[str]:
    """The list of codes; a bare string or number is taken as a list of one."""
    value = health.get("errorCode")
    listed: list[JsonValue] = value if isinstance(value, list) else [] if value in (None, "") else [value]
    if len(listed) > 100:
        raise ParseError(f"field errorCode has {len(listed)} entries, more than the 100 allowed")
    found: list[str] = []
    for item in listed:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise ParseError(f"field errorCode holds {quote(item)}, expected a string")
        found.append(one_line(str(item), 120))
    return [c for c in found if c]


def _code(text: str, check: str) -> str | None:
    """`xid/79` of `XID_79` or, in a check about Xids, of a bare `79`; `dcgm/DCGM_FR_…` as it is."""
    if _DCGM.fullmatch(text):
        return fault_code("dcgm", text)
    m = _CODE.fullmatch(text.strip())
    if m is None or int(m[2]) == 0:
        return None
    about = (m[1] or "").lower()
    if not about and "xid" in check.lower():  # `SysLogsXIDError` has an `s` before `XID`, in lower case
        about = "sxid" if "SXID" in check or re.search(r"(?:^|_)sxid", check) else "xid"
    return fault_code(about, int(m[2])) if about else None


def _worst(codes: list[str | None]) -> str | None:
    """The worst by its class; of equals the last named, which is the one that came last in a chain."""
    known = [c for c in codes if c]
    return min(reversed(known), key=lambda c: lookup(c).fault_class.rank) if known else None


def _impacted(health: Fields) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for i, item in enumerate(health.list("entitiesImpacted", []), 1):
        fields = Fields.of(item, f"entitiesImpacted {i}")
        found.append((fields.text("entityType"), fields.scalar("entityValue") or ""))
    return found


def _entities(impacted: list[tuple[str, str]]) -> tuple[str, ...]:
    """A port stands as its device's: `NIC mlx5_0` with `NICPort 1`, or `NICPort mlx5_0_port1`."""
    nics = [value for kind, value in impacted if _space(kind) in _NICS]
    ports = [m for kind, value in impacted if _space(kind) == "NICPORT" and (m := _PORT.fullmatch(value))]
    named = [ib(m["device"] or nics[0], m["port"] or m["number"]) for m in ports if m["device"] or len(nics) == 1]
    rest = [(kind, value) for kind, value in impacted if not (named and _space(kind) in _NICS)]
    return entities(*(_entity(kind, value) for kind, value in rest), *named)


_NICS = ("NIC", "IB", "INFINIBAND", "HCA")


def _space(kind: str) -> str:
    return kind.upper().replace("-", "_").replace(" ", "_")


def _entity(kind: str, value: str) -> str | None:
    space = _space(kind)
    if space in ("GPU", "GPU_ID", "GPU_INDEX"):
        return gpu(value) or gpu_uuid(value) or pci(value)
    if space in ("PCI", "PCI_BUS_ID", "PCI_ADDRESS"):
        return pci(value)
    if space in ("GPU_UUID", "UUID"):
        return gpu_uuid(value)
    if space == "NVLINK":
        return nvlink(value)
    if space == "NVSWITCH":
        return nvswitch(value) or pci(value)
    if space in _NICS:
        return ib(value)
    if space in ("GPU_SERIAL", "SERIAL"):
        return gpu_serial(value)
    if space in ("GPU_I_ID", "MIG_GI", "GPU_INSTANCE"):
        return mig_gi(value)
    return mig_ci(value) if space in ("MIG_CI", "COMPUTE_INSTANCE") else None
