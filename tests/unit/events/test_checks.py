"""LBNL NHC and the active checks: passes, failures, and runs that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect, read
from tests.unit.events.payloads import only, parsed, payload


def run(source: str, text: str, code: int | None = None) -> list[HealthEvent]:
    return list(read(source, Payload(text.encode(), {}, code)).events)


# --- NHC -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "fault", "subject", "entities"),
    [
        ("w1 | ERROR: nhc: Health check failed: check_gpu_count: found 7 GPUs", "nhc/check_gpu_count", "w1", []),
        ("ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port mlx5_0:1 is ACTIVE", "nhc/check_hw_ib", None,
         ["ib:mlx5_0/1"]),
        ("ERROR: nhc: Health check failed: check_nvlink_status: GPU 3: inactive", "nhc/check_nvlink_status", None,
         ["gpu:3"]),
        ("w1 | ERROR: nhc: Health check failed: check_gpu_xid: [ 1.5] NVRM: Xid (PCI:0000:3b:00): 95, uncontained",
         "xid/95", "w1", ["pci:0000:3b:00"]),
        ("20260301 08:00:00 w9 ERROR: check_fs_mount: /data not mounted", "nhc/check_fs_mount", None, []),
    ],
)  # fmt: skip
def test_failures(line: str, fault: str, subject: str | None, entities: list[str]) -> None:
    found = only("nhc", line + "\n")
    assert (found["kind"], found["fault"], found["subject"], found["entities"]) == ("fault", fault, subject, entities)


def test_many_hosts_in_one_report() -> None:
    lines = [f"w{i} | ERROR: nhc: Health check failed: check_gpu_bw: too low" for i in range(3)]
    assert [e.subject for e in run("nhc", "\n".join(lines))] == ["w0", "w1", "w2"]
    found = parsed("nhc", "a/b | ERROR: nhc: Health check failed: check_x: y\n" + lines[0])
    assert (len(found.events), len(found.refused)) == (1, 1)


def test_no_result_is_neither() -> None:
    for text, code in (("w1 | ERROR: No results reported", None), ("", 124), ("", 1)):
        (event,) = run("nhc", text, code)
        assert event.kind is Kind.CHECK
        assert event.fault in ("nhc/no-results", "nhc/timeout", "nhc/error")
    assert run("nhc", "", 0)[0].fault == "diag/nhc/pass"
    with pytest.raises(ParseError):
        run("nhc", "")
    with pytest.raises(ParseError):
        run("nhc", "hello\n")


# --- nccl-tests ----------------------------------------------------------------------------------------------


def nccl(
    hosts: int = 1, busbw: float = 1.75, wrong: str = "0", bounds: str = "0 OK", average: str = "200.5", op: str = "sum"
) -> str:
    ranks = "".join(
        f"#  Rank {8 * h + r:2} Group  0 Pid  {r} on w{h} device {r:2} [0x1{r}] NVIDIA H100\n"
        for h in range(hosts)
        for r in range(8)
    )
    half = f"100.0  100.00  {100 * busbw:.2f}"
    row = f"  1048576  262144  float  {op}  -1  {half}  {wrong}  {half}  0\n"
    tail = f"# Out of bounds values : {bounds}\n# Avg bus bandwidth    : {average}\n"
    return (
        "# nThread 1 nGpus 8 minBytes 1 maxBytes 1\n# Using devices\n" + ranks + "#\n" + row + (tail if average else "")
    )


def test_a_completed_run_is_a_pass_with_its_figure() -> None:
    (event,) = run("active_checks", nccl(), 0)
    assert (event.fault, event.subject, event.kind) == ("diag/all_reduce_perf/pass", "w0", Kind.CHECK)
    assert event.detail["avg_busbw_gbps"] == 200.5
    assert run("active_checks", nccl(busbw=0.875))[0].fault == "diag/reduce_scatter_perf/pass"
    assert (
        run("active_checks", "# Collective test starting: alltoall_perf\n" + nccl(op="none"))[0].fault
        == "diag/alltoall_perf/pass"
    )


def test_a_run_over_hosts_names_none() -> None:
    (event,) = run("active_checks", nccl(hosts=2, busbw=1.875))
    assert event.subject is None
    assert event.detail["hosts"] == ["w0", "w1"]


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        (nccl(wrong="3"), 0, "fail"),
        (nccl(bounds="4 FAILED"), 1, "fail"),
        (nccl(average=""), 0, "error"),
        (nccl(), 1, "error"),
        (nccl(average="") + "w0: Test NCCL failure common.cu:958 'unhandled system error'\n", 3, "error"),
    ],
)
def test_what_isnt_a_pass(text: str, code: int, outcome: str) -> None:
    (event,) = run("active_checks", text, code)
    assert event.kind is Kind.CHECK
    assert event.fault == f"diag/all_reduce_perf/{outcome}"


# --- burn-in and links ---------------------------------------------------------------------------------------


def test_gpu_burn_is_judged_by_its_last_table() -> None:
    text = "50.0%  proc'd: 1 (1 Gflop/s) errors: 3  (WARNING!)\n\nTested 3 GPUs:\n"
    text += "\tGPU 0: OK\n\tGPU 1: FAULTY\n\tGPU 2: FAULTY\n"
    assert [(e.fault, e.entities) for e in run("active_checks", text)] == [
        ("diag/gpu-burn/fail", ("gpu:1",)),
        ("diag/gpu-burn/fail", ("gpu:2",)),
    ]
    assert run("active_checks", text.replace("FAULTY", "OK"), 0)[0].fault == "diag/gpu-burn/pass"
    assert run("active_checks", text.partition("Tested")[0], 1)[0].fault == "diag/gpu-burn/error"


FRYER = """GPU #0:  51000 Gflops/s (min: 50577.53, max: 51677.05, dev: 51493.79)
         Throttling HW: false, Thermal SW: false, Thermal HW: false
{}
Freeing GPUs...
"""


def test_gpu_fryer() -> None:
    assert run("active_checks", FRYER.format("All GPUs seem healthy"), 0)[0].fault == "diag/gpu-fryer/pass"
    bad = FRYER.format("Some GPUs are not healthy. Reasons:\n  - GPU 5 - GPU is slower\n  - GPU 5 - GPU is throttled")
    (event,) = run("active_checks", bad, 1)
    assert (event.fault, event.entities, event.kind) == ("diag/gpu-fryer/fail", ("gpu:5",), Kind.FAULT)
    assert run("active_checks", FRYER.format("thread 'main' panicked"), 101)[0].fault == "diag/gpu-fryer/error"


IB = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_4
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             391.25             390.97             0.745
---------------------------------------------------------------------------------------
"""


def test_ib_write_bw() -> None:
    (event,) = run("active_checks", IB, 0)
    assert (event.fault, event.entities) == ("diag/ib_write_bw/pass", ("ib:mlx5_4",))
    assert event.detail["avg_bw_gbps"] == 390.97
    cut = "\n".join(line for line in IB.splitlines() if "65536" not in line)
    assert run("active_checks", cut + "\nCouldn't connect to w2:18515\n", 1)[0].fault == "diag/ib_write_bw/error"
    broken = cut + "\n Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
    assert [(e.kind, e.fault) for e in run("active_checks", broken, 1)] == [(Kind.FAULT, "diag/ib_write_bw/fail")]


def test_unknown_output_is_refused_unless_the_exit_code_says_it_failed() -> None:
    with pytest.raises(ParseError, match="no check that is known"):
        run("active_checks", "hello\n", 0)
    assert run("active_checks", "srun: error: Unable to allocate resources\n", 1)[0].fault == "check/error"
    assert run("active_checks", "", 137)[0].fault == "check/timeout"


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("nhc", "w1 | ERROR: nhc: Health check failed: check_gpu_count: 7\n"),
        ("active_checks", nccl()),
        ("active_checks", IB),
        ("active_checks", FRYER.format("All GPUs seem healthy")),
        ("active_checks", "1%  proc'd: 1 (1 Gflop/s)   errors: 0   temps: 51 C\n"),
    ],
)
def test_recognised(source: str, body: Any) -> None:
    assert source == detect(payload(body)).SOURCE


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[1,12]: ", "  0: "])
def test_the_ranks_tag_before_a_line_is_no_matter(tag: str) -> None:
    text = "".join(tag + line for line in nccl().splitlines(keepends=True))
    assert [(e.fault, e.subject) for e in run("active_checks", text, 0)] == [
        (e.fault, e.subject) for e in run("active_checks", nccl(), 0)
    ]
    assert detect(payload(text)).SOURCE == "active_checks"


PASSED = "SUCCESS:  nhc:  Health check passed:  check_gpu_count: Expected 8 and found 8\n"


def test_checks_that_passed_are_a_pass_unless_one_failed() -> None:
    assert [e.fault for e in run("nhc", PASSED * 2, 0)] == ["diag/nhc/pass"]
    failed = "ERROR:  nhc:  Health check failed:  check_gpu_ecc: GPU id 3: too many. FaultCode: NHC1\n"
    assert [(e.fault, e.entities) for e in run("nhc", PASSED + failed, 1)] == [("nhc/check_gpu_ecc", ("gpu:3",))]
    hung = "nhc: Watchdog timer unable to terminate hung NHC process 12.\n"
    assert [e.fault for e in run("nhc", hung)] == ["nhc/timeout"]
