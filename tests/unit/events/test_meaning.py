"""What the senders' codes mean: monitors and jobs never blame a machine, provider notices are planned."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.faults.classes import FaultClass
from tests.unit.events import test_aws as aws
from tests.unit.events import test_checks as checks
from tests.unit.events import test_kubernetes_senders as kubernetes
from tests.unit.events import test_other_clouds as clouds
from tests.unit.events.payloads import parsed


def classes(source: str, body: Any) -> set[FaultClass | None]:
    return {e.fault_class for e in parsed(source, body).events}


def ready(reason: str) -> Any:
    return kubernetes.node(kubernetes.condition("AcceleratedHardwareReady", "False", reason))


@pytest.mark.parametrize(
    ("source", "body", "expected"),
    [
        ("eks_nma", ready("DCGMError"), FaultClass.MONITOR),
        ("eks_nma", ready("DCGMHealthCode4"), FaultClass.CRITICAL),
        ("eks_nma", ready("DCGMHealthCode122"), FaultClass.TRANSIENT),
        ("eks_nma", ready("NvidiaXID79Error"), FaultClass.CRITICAL),
        ("eks_nma", ready("SomethingNew"), FaultClass.DEGRADED),
        ("nhc", "w1 | ERROR: No results reported", FaultClass.MONITOR),
        ("active_checks", checks.nccl(wrong="3"), FaultClass.APPLICATION),
        ("active_checks", checks.nccl(average=""), FaultClass.APPLICATION),
        ("active_checks", checks.nccl(), FaultClass.RECORD),
        ("aws", aws.SPOT, FaultClass.PLANNED),
        ("aws", aws.health(aws.INSTANCE), FaultClass.PLANNED),
        (
            "aws",
            aws.bridge("EC2 Instance Rebalance Recommendation", **{"instance-id": aws.INSTANCE}),
            FaultClass.RECORD,
        ),
        ("azure", {"DocumentIncarnation": 1, "Events": [clouds.scheduled()]}, FaultClass.PLANNED),
        ("azure", {"DocumentIncarnation": 1, "Events": [clouds.scheduled(kind="Freeze")]}, FaultClass.RECORD),
        ("gcp", clouds.entry("automaticRestart"), FaultClass.RECORD),
        ("slurm", "error: Nodes w1 not responding\n", FaultClass.TRANSIENT),
        ("datadog", {"alert_transition": "Triggered", "monitor_id": "1", "title": "Odd"}, FaultClass.UNKNOWN),
    ],
)
def test_classes(source: str, body: Any, expected: FaultClass) -> None:
    assert classes(source, body) == {expected}
