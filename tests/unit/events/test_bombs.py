"""Payloads made to take for ever: every parser refuses them or comes to an end, in time that grows with their size."""

from __future__ import annotations

import json

import pytest

from medevac.events.parsing import MAX_PAYLOAD_BYTES
from medevac.events.registry import parsers
from tests.unit.events import test_aws as aws
from tests.unit.events import test_other_clouds as clouds
from tests.unit.events.test_every_parser import survives

FULL = 600_000
"""Large enough that work which grows with its square would never end."""
BOMBS = {
    "deep": b'{"a":' * 100_000,
    "deep list": b"[" * 200_000,
    "newlines": b"\n" * FULL,
    "spaces": b"a" + b" " * FULL,
    "one word": b"a" * FULL,
    "digits": b"1" * FULL,
    "labels": b"DCGM_X{" + b'a"b"' * (FULL // 4) + b"} x y",
    "an open label": b"DCGM_X{" + b"a" * FULL,
    "escapes": b'DCGM_X{a="' + b"\\\\" * (FULL // 2),
    "short lines": b"#\n" * (FULL // 2),
    "table rows": b"| GPU Memory | Fail - GPU: 1 |\n" * (FULL // 33),
    "host lists": b"error: Nodes a[0-4000] not responding\n" * (FULL // 40),
    "faulty GPUs": b"proc'd:\nTested 9 GPUs:\n" + b"GPU 1: FAULTY\n" * (FULL // 15),
    "samples": b'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-1"} 79\n' * (FULL // 50),
    "elements": b"<nvidia_smi_log>" + b"<a>" * 8 + b"<b>1</b>" * (FULL // 9),
    "too long": b" " * (MAX_PAYLOAD_BYTES + 1),
    "messages": json.dumps({"Messages": [{"Body": json.dumps(aws.SPOT)}] * 900}).encode(),
    "entities": json.dumps(aws.health(*[aws.INSTANCE] * 3_000)).encode(),
    "targets": json.dumps(clouds.common("Platform", {"x": "x" * FULL}, alertTargetIDs=[clouds.VM] * 9_000)).encode(),
    "groups": json.dumps({"sinfo": [{"nodes": {"nodes": ["a[0-4000]"] * 2}, "node": {"state": "A"}}] * 900}).encode(),
    "exported records": b"__CURSOR=x\n" + b"MESSAGE=NVRM: Xid (PCI:0000:3b:00): 79, x\n\n" * (FULL // 45),
    "blank exported lines": b"__CURSOR=x\n" + b" \n" * (FULL // 2),
    "spaces before a value": b'DCGM_X{a="b"} 1' + b" " * (FULL // 2) + b"x\n" + b"DCGM_X" + b" " * (FULL // 2) + b"(",
    "prefixes": json.dumps({"alert_transition": "Triggered", "monitor_id": 1, "title": "[a] " * (FULL // 2)}).encode(),
    "colours": b"\x1b[1m" * (FULL // 4),
    "paths": b"a/" * (FULL // 2),
    "colons": b"w1: " * (FULL // 4) + b"ERROR: ",
    "bars": b"w1 | " * (FULL // 5),
    "alarms": json.dumps({"title": "x", "alarmMetaData": [{"status": "OK", "dimensions": [{}] * 90}] * 500}).encode(),
    "huge integer": b'{"version": ' + b"9" * 100_000 + b"}",
}  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end(name: str) -> None:
    for source in parsers():
        survives(source, BOMBS[name])
