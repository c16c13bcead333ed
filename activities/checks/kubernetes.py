"""Checks as Jobs on a Kubernetes cluster's own nodes. Published as kind `kubernetes` of `medevac.checks`."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from activities.clock import Clock, utcnow
from activities.kubernetes import jobs, rights
from activities.kubernetes.client import Client
from activities.kubernetes.jobs import Reading, Task
from activities.kubernetes.options import JobOptions, Options
from activities.kubernetes.programs import program
from activities.kubernetes.skus import Sku, sku_of
from activities.ports import CheckResult
from activities.registry import ConfigurationError, complaints
from medevac.events.values import entities, gpu_serial, gpu_uuid, pci
from medevac.faults import catalogue
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Node
from medevac.incident import StepKey
from medevac.model import Model

ASKED_AT = "medevac.dev/asked-at"
"""Annotation of a Job: by our clock, so that it compares with the remedy's. The check began after it."""
BOOT = "medevac.dev/boot-id"
NODE_UID = "medevac.dev/node-uid"
REMEMBERED = 10_000
HARMLESS = frozenset({FaultClass.APPLICATION, FaultClass.RECORD, FaultClass.MONITOR})
"""Classes of Xid that a job or a monitor writes; every other one since the boot fails the check."""
DRIVER = re.compile(r"nvidia-container|nvml|libnvidia|libcuda", re.IGNORECASE)
"""In why a container doesn't start: the node's own driver said no, not the image or the cluster."""


class ChecksOptions(JobOptions):
    kubeconfig: Path | None = None
    context: str | None = None
    """Of the cluster whose nodes it checks, as in the cluster's own options."""
    namespace: str = "medevac-checks"
    command: tuple[str, ...] = ()
    """A check of your own, in place of the shipped one: it gets `MEDEVAC_CHECK` and answers as that does."""
    covers: tuple[Covers, ...] = ()
    """What your own command can prove; the shipped one knows."""
    services: tuple[str, ...] = ()
    """systemd units that must be active on the node. Without any, no check proves a fault of class `service`."""
    skus: dict[str, Sku] = {}
    """By instance type, GPU product or pool: what a machine must have."""
    write_read_mib: int = Field(512, ge=1, le=65_536)
    """Of GPU memory, written and read back."""


class Answer(Model):
    """What a check leaves as its termination message."""

    verdict: Literal["passed", "failed", "none"]
    reason: str = Field("", max_length=2_000)
    covers: tuple[Covers, ...] = ()
    boot_id: tuple[str, str]
    """At its start and at its end."""
    seconds: float = 0.0
    items: dict[str, JsonValue] = {}
    gpus: tuple[tuple[str, str, str], ...] = Field((), max_length=64)
    """PCI address, UUID and serial of each, as the driver shows them."""

    def entities(self) -> list[JsonValue]:
        """Of each GPU, canonical."""
        return [list(entities(pci(place), gpu_uuid(uuid), gpu_serial(serial))) for place, uuid, serial in self.gpus]


CODES = {"passed": 0, "failed": 1, "none": 75}


class KubernetesChecks:
    simulated = False

    def __init__(self, name: str, options: ChecksOptions, clock: Clock = utcnow) -> None:
        self.name = name
        self.options = options
        self._clock = clock
        self._client = Client(Options(kubeconfig=options.kubeconfig, context=options.context))
        self._made: OrderedDict[str, str] = OrderedDict()
        """Jobs that this process began, with what each waited for when it was last read."""

    def covers(self, node: Node) -> frozenset[Covers]:
        if self.options.command:
            return frozenset(self.options.covers)
        can = {Covers.MAINTENANCE}
        if self.options.services:
            can.add(Covers.SERVICE)
        if sku_of(node, self.options.skus) is not None:
            # A count, and a pass over all memory, say something only where it is known how many there must be.
            can |= {Covers.BUS, Covers.MEMORY}
        return frozenset(can)

    def run(self, node: Node, covers: tuple[Covers, ...], key: StepKey) -> CheckResult | None:
        asked = tuple(cover for cover in covers if cover in self.covers(node))
        task = self._task(node, asked, key)
        reading = jobs.read(self._client, self.options, task)
        if reading.state == "absent":
            if task.name in self._made:
                said = f"its Job was removed by somebody (it waited for: {self._made[task.name] or 'nothing'})"
                return self._nothing(Reading("over", notes=task.notes), asked, said)
            jobs.create(self._client, self.options, task)
            self._remember(task.name, "")
            return None
        if reading.state == "over":
            return self._judged(reading, asked, node, self._made.get(task.name, ""))
        self._remember(task.name, reading.why)
        return None

    def missing_rights(self) -> list[str]:
        return rights.missing_of(self._client, rights.JOBS, self.options.namespace)

    def close(self) -> None:
        self._client.close()

    # -- asking ------------------------------------------------------------------------------------------------

    def _task(self, node: Node, asked: tuple[Covers, ...], key: StepKey) -> Task:
        options, sku = self.options, sku_of(node, self.options.skus)
        wanted = {
            "covers": sorted(asked), "services": list(options.services), "seconds": options.run_s,
            "driver": node.gpus > 0, "gpus": sku.gpus if sku else 0, "model": sku.model if sku else "",
            "harmless": _harmless(), "write_read": options.write_read_mib << 20,
        }  # fmt: skip
        return Task(
            kind="check", key=str(key), node=node.name,
            command=options.command or ("python3", "-c", program("check.py")),
            env={
                "MEDEVAC_CHECK": json.dumps(wanted), "NVIDIA_VISIBLE_DEVICES": "all",
                "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            },
            notes={
                ASKED_AT: self._clock().isoformat(), BOOT: node.machine.boot_id or "", NODE_UID: node.uid or "",
            },
            capabilities=("SYSLOG",),
            host_paths=_SYSTEMD if options.services else {},
        )  # fmt: skip

    def _remember(self, name: str, waits_for: str) -> None:
        self._made[name] = waits_for
        self._made.move_to_end(name)
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)

    # -- judging -----------------------------------------------------------------------------------------------

    def _judged(self, reading: Reading, asked: tuple[Covers, ...], node: Node, waited_for: str) -> CheckResult:
        boot = reading.notes.get(BOOT, "")
        if not boot or node.uid != reading.notes.get(NODE_UID):
            return self._nothing(reading, asked, "another node, or one whose boot id nobody knew, was checked")
        if node.machine.boot_id != boot:
            return self._nothing(reading, asked, "the machine booted during the check")
        if reading.code is None or not reading.message:
            return self._cut_off(reading, asked, waited_for)
        answer = _answer(reading)
        if answer is None:
            return self._nothing(reading, asked, f"its answer (exit {reading.code}) can't be read")
        if answer.boot_id != (boot, boot):
            return self._nothing(reading, asked, "it ran on another boot")
        detail: dict[str, JsonValue] = {"items": answer.items, "seconds": answer.seconds, "pod": reading.pod}
        if answer.gpus:
            detail["gpus"] = answer.entities()
        if answer.verdict == "none":
            return self._nothing(reading, asked, answer.reason or "it could not look", detail)
        passed = answer.verdict == "passed"
        proved = tuple(cover for cover in asked if not passed or cover in answer.covers)
        return self._result(reading, proved, answer.reason, passed=passed, detail=detail)

    def _cut_off(self, reading: Reading, asked: tuple[Covers, ...], waited_for: str) -> CheckResult:
        why = "; ".join(dict.fromkeys(filter(None, (reading.why, waited_for)))) or "nobody says why"
        if reading.started and (reading.code is None or "DeadlineExceeded" in reading.why):
            # It ran and never came back: what hangs a check hangs a job.
            return self._result(reading, asked, f"it began and did not end in its time: {why}", passed=False)
        if not reading.started and DRIVER.search(why):
            return self._result(reading, asked, f"the node's driver lets nothing start: {why}", passed=False)
        return self._nothing(reading, asked, f"{'it was ended' if reading.started else 'it never started'}: {why}")

    def _nothing(
        self, reading: Reading, asked: tuple[Covers, ...], reason: str, detail: dict[str, JsonValue] | None = None
    ) -> CheckResult:
        """No verdict on the node."""
        return self._result(reading, asked, reason, passed=False, flake=True, detail=detail)

    def _result(
        self,
        reading: Reading,
        covers: tuple[Covers, ...],
        reason: str,
        *,
        passed: bool,
        flake: bool = False,
        detail: dict[str, JsonValue] | None = None,
    ) -> CheckResult:
        asked_at = reading.notes.get(ASKED_AT, "")
        return CheckResult(
            passed=passed, covers=covers, reason=reason[:1_000], flake=flake, detail=detail or {},
            started_at=datetime.fromisoformat(asked_at), boot_id=reading.notes.get(BOOT) or None,
        )  # fmt: skip


_SYSTEMD = {"/run/systemd/system": "Directory", "/run/systemd/private": "Socket"}
"""What `systemctl` asks through. Whoever holds the socket as root may also order: trust the image."""


@cache
def _harmless() -> list[int]:
    return sorted(
        int(code.removeprefix("xid/"))
        for code, row in catalogue.rows().items()
        if code.startswith("xid/") and code[4:].isdigit() and row.fault_class in HARMLESS
    )


def _answer(reading: Reading) -> Answer | None:
    """None for everything that isn't just what a check says."""
    if len(reading.message.encode()) > jobs.MAX_MESSAGE:
        return None
    try:
        found = Answer.model_validate_json(reading.message)
    except ValidationError:
        return None
    return found if CODES[found.verdict] == reading.code else None


def make(name: str, options: dict[str, Any]) -> KubernetesChecks:
    try:
        read = ChecksOptions.model_validate(options)
    except ValidationError as error:
        said = complaints(error)
        raise ConfigurationError(f"checks {name} (kubernetes): {said}; see docs/kubernetes.md") from None
    if bool(read.command) != bool(read.covers):
        raise ConfigurationError(
            f"checks {name} (kubernetes): `command` and `covers` go together: only you know what your command proves"
        )
    try:
        return KubernetesChecks(name, read)
    except Exception as error:
        raise ConfigurationError(
            f"checks {name} (kubernetes): can't sign in: {error}; give `kubeconfig` (and `context`) in its options,"
            " as its cluster has them"
        ) from None
