"""What Slurm's reasons, states and log lines mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from medevac.events.event import Kind
from medevac.events.freetext import xid_codes
from medevac.events.reading import fault_code
from medevac.faults.catalogue import lookup

OWN = re.compile(r"^\s*medevac\b", re.IGNORECASE)
"""The reason that medevac itself sets: an echo."""
DAEMON_USERS = frozenset(("root", "slurm", "nhc", "0", None))

_NHC = re.compile(r"NHC:? (?:.{0,80}? )?(check_[a-z0-9_]{1,60})", re.IGNORECASE)
_REASONS = (  # `sinfo -R` cuts a reason after 20 characters
    (re.compile(r"not responding|no response", re.I), "slurm/not-responding"),
    (re.compile(r"unexpectedly re(?:booted|$)", re.I), "slurm/unexpected-reboot"),
    (re.compile(r"kill task failed", re.I), "slurm/kill-task-failed"),
    (re.compile(r"gres/gpu count|gpu count (?:reported )?(?:is )?lower|fewer gpus", re.I), "device-count/short"),
    (re.compile(r"prolog", re.I), "slurm/prolog-failed"),
    (re.compile(r"epilog", re.I), "slurm/epilog-failed"),
    (re.compile(r"low (?:real_?)?memory|low tmp_?disk|low socket", re.I), "slurm/low-resources"),
    (re.compile(r"batch job complete f|duplicate jobid|launch failure", re.I), "slurm/launch-failed"),
)

_PLANNED = re.compile(r"\s*reboot (?:asap|requested|issued|complete)", re.IGNORECASE)
"""What `scontrol reboot` writes."""

_LIST = r"(?P<nodes>[A-Za-z0-9]\S{0,4000}?)"
LOG_LINES: tuple[tuple[re.Pattern[str], str | None, Kind], ...] = (
    (re.compile(rf"Nodes? {_LIST} not responding(?:, setting DOWN)?\.?"), "slurm/not-responding", Kind.FAULT),
    (re.compile(rf"node {_LIST} not resp(?:onding)?.{{0,200}}", re.I), "slurm/not-responding", Kind.FAULT),
    (re.compile(rf"Nodes? {_LIST} (?:now responding|returned to service)\.?", re.I), "slurm/not-responding",
     Kind.RECOVERED),
    (re.compile(rf"Node {_LIST} unexpectedly rebooted(?: boot_time=(?P<boot>\d{{1,12}}))?.{{0,200}}", re.I),
     "slurm/unexpected-reboot", Kind.FAULT),
    (re.compile(rf"Node {_LIST} rebooted(?: boot_time=(?P<boot>\d{{1,12}}))?.{{0,200}}", re.I),
     "slurm/rebooted", Kind.LIFECYCLE),
    (re.compile(rf"update_node: node {_LIST} reason set to: (?P<reason>.{{1,1000}})"), None, Kind.FAULT),
    (re.compile(rf"Setting nodes? {_LIST} (?:state )?to (?:DRAIN|INVAL|DOWN) with reason:? ?(?P<reason>.{{1,1000}})",
                re.I), None, Kind.FAULT),
    (re.compile(rf"(?:update_node|drain_nodes): node {_LIST} state set to (?:DOWN|FAIL)\S{{0,40}}"),
     "slurm/down", Kind.FAULT),
    (re.compile(rf"(?:update_node|drain_nodes): node {_LIST} state set to DRAIN\S{{0,40}}"),
     "slurm/drain", Kind.LIFECYCLE),
    (re.compile(rf"update_node: node {_LIST} state set to (?:IDLE|RESUME|UNDRAIN)\S{{0,40}}"),
     "slurm/drain", Kind.RECOVERED),
    (re.compile(rf"Node {_LIST} has (?P<reason>low (?:real_memory|tmp_disk|socket\S{{0,20}}) .{{0,200}})"),
     None, Kind.FAULT),
    (re.compile(rf"slurmd error running JobId=\S{{1,40}} on node\(s\)={_LIST}: (?P<reason>Kill task failed.{{0,200}})"),
     None, Kind.FAULT),
    (re.compile(rf"(?:Prolog|prolog).{{0,100}} on node {_LIST}"), "slurm/prolog-failed", Kind.FAULT),
    (re.compile(rf"(?:Epilog|epilog).{{0,100}} on node {_LIST}"), "slurm/epilog-failed", Kind.FAULT),
)  # fmt: skip
"""A line's shape, its code (None: by its reason), and what it is."""


def reason_code(reason: str, user: str | None) -> tuple[str, Kind]:
    """By what the reason names, of several Xids by the gravest; a person's own words are no fault."""
    if m := _NHC.search(reason):
        return fault_code("nhc", m[1].lower()), Kind.FAULT
    if codes := xid_codes(reason, checked=True):
        return min(codes, key=lambda code: lookup(code).fault_class.rank), Kind.FAULT
    for pattern, code in _REASONS:
        if pattern.search(reason):
            return code, Kind.FAULT
    if _PLANNED.match(reason):
        return "slurm/drain", Kind.LIFECYCLE
    return "slurm/drain", Kind.FAULT if _by_daemon(user) and not OWN.search(reason) else Kind.LIFECYCLE


def _by_daemon(user: str | None) -> bool:
    return (user.split("(")[0].lower() if user else None) in DAEMON_USERS


def state_code(flags: Sequence[str], reason: str, user: str | None) -> tuple[str, Kind]:
    """Of a node's flags and reason. What power saving, reservations and planned reboots do is no fault."""
    held = set(flags)
    out = held & {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "INVAL", "INVALID_REG"}
    if not out:
        if held & {"NOT_RESPONDING", "NO_RESPOND"} and not held & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}:
            return "slurm/not-responding", Kind.FAULT
        return "slurm/drain", Kind.RECOVERED
    if reason and reason.lower() not in ("none", "unknown"):
        code, kind = reason_code(reason, user)
        if code != "slurm/drain" or not held & {"DOWN", "FAIL", "FAILING", "ERROR"}:
            return code, kind
    if held & {"FAIL", "FAILING", "ERROR"}:
        return "slurm/fail", Kind.FAULT
    if "DOWN" in held:
        planned = held & {"POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "MAINT", "MAINTENANCE"}
        return "slurm/down", Kind.LIFECYCLE if planned else Kind.FAULT
    return "slurm/drain", Kind.LIFECYCLE
