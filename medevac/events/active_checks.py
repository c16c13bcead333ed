"""Output of active checks: nccl-tests, gpu-burn, gpu-fryer, ib_write_bw, and `dcgmi diag`'s table.

Only a completed run that says so is a pass; what was refused, cut short or printed nothing did not run and says
nothing about the machine. Bandwidths are facts: limits are the policy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from medevac.events import dcgm_diag
from medevac.events.check_tools import FRYER, burn, fryer, ib_bandwidth, nccl
from medevac.events.event import Kind
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import Reading, read_text

SOURCE = "active_checks"
TIMED_OUT = frozenset((124, 137))

_TAG = re.compile(r"^(?:\[[0-9]{1,6},[0-9]{1,6}\](?:<std(?:out|err|diag)>)?: ?| {0,6}[0-9]{1,6}: )", re.MULTILINE)
"""Which rank wrote the line: `mpirun --tag-output`, `srun --label`."""

Tool = Callable[[Reading, str, int | None], None]
_TOOLS: Sequence[tuple[Sequence[str], Tool]] = (
    (("gpu-burn", "gpu_burn", "proc'd:", "Burning for "), burn),
    (
        (
            "RDMA_Write BW",
            "ib_write_bw",
            "RDMA_Read BW",
            "Send BW Test",
            "BW peak[",
            "Couldn't connect to ",
            "file descriptor for socket",
            "Infiniband/RoCE device",
        ),
        ib_bandwidth,
    ),
    (("_perf", "# nThread", "busbw", "NCCL version"), nccl),
)


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    text = _TAG.sub("", read_text(payload.body))
    if not text.strip():
        late = payload.exit_code in TIMED_OUT
        reading.add(
            Kind.CHECK, "check/timeout" if late else "check/error", part=text, key=("check", "not-run"),
            summary="the check timed out" if late else "the check printed nothing",
            detail={"exit_code": payload.exit_code},
        )  # fmt: skip
        return reading.parsed()
    if _is_table(text):
        dcgm_diag.table(reading, payload)
    elif FRYER.search(text):
        fryer(reading, text, payload.exit_code)
    else:
        tool = next((tool for marks, tool in _TOOLS if any(mark in text for mark in marks)), None)
        if tool is None and payload.exit_code in (None, 0):
            raise ParseError(
                "output of no check that is known: nccl-tests, gpu-burn, gpu-fryer, ib_write_bw, dcgmi diag"
            )
        if tool is None:
            dcgm_diag.not_run(reading, text[:400], payload.exit_code)
        else:
            tool(reading, text, payload.exit_code)
    return reading.parsed()


def recognises(payload: Payload) -> bool:
    text = _TAG.sub("", payload.body[:200_000].decode("utf-8", "replace"))
    if text.lstrip()[:1] in ("{", "["):
        return False
    return (
        _is_table(text)
        or FRYER.search(text) is not None
        or ("proc'd:" in text and "errors:" in text)
        or "# nThread" in text
        or ("#bytes" in text and "BW average[" in text)
        or "nccl-tests/" in text
    )


def _is_table(text: str) -> bool:
    return "| Diagnostic " in text or "Successfully ran diagnostic" in text
