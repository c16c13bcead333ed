"""How each checking tool prints its verdict."""

from __future__ import annotations

import re

from medevac.events.event import Kind
from medevac.events.reading import Reading, entities, fault_code, gpu, ib, is_node_name, one_line, real

MAX_GPUS = 1_024
FRYER = re.compile(r"GPUs seem healthy|GPUs are not healthy|^GPU #[0-9]+: .{0,80}flops", re.IGNORECASE | re.MULTILINE)

_NAMED = re.compile(
    r"\b(all_reduce|all_gather|alltoallv?|broadcast|gather|hypercube|reduce_scatter|reduce|scatter|sendrecv)_perf\b"
)


def _verdict(
    reading: Reading, tool: str, outcome: str, text: str, *, subject: str | None = None,
    found: tuple[str, ...] = (), kind: Kind = Kind.CHECK, words: str = "", **detail: object,
) -> None:  # fmt: skip
    reading.add(
        kind, fault_code("diag", tool, outcome), part=[text[-20_000:], list(found)], key=(subject, tool, *found),
        subject=subject, entities=found, summary=words or f"{tool}: {outcome}", detail=detail,
    )  # fmt: skip


def _first(text: str, pattern: str) -> str:
    m = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
    return one_line(m[0], 300) if m else ""


# --- nccl-tests ----------------------------------------------------------------------------------------------

_RANK = re.compile(r"^#[ \t]{1,8}Rank[ \t]{1,8}[0-9]{1,6} .{0,80}? on[ \t]{1,8}(\S{1,253}) device", re.MULTILINE)
_N = r"[ \t]{1,40}[0-9.]{1,20}"
_ROW = re.compile(
    r"^[ \t]{0,40}[0-9]{1,20}[ \t]{1,40}[0-9]{1,20}[ \t]{1,40}\w{1,20}[ \t]{1,40}(?P<op>\w{1,20})[ \t]{1,40}"
    rf"(?P<root>-?[0-9]{{1,6}}){_N}[ \t]{{1,40}}(?P<alg>[0-9.]{{1,20}})"
    r"[ \t]{1,40}(?P<bus>[0-9.]{1,20})[ \t]{1,40}"
    rf"(?P<wrong>\S{{1,20}})(?:{_N}{_N}{_N}[ \t]{{1,40}}(?P<wrong2>\S{{1,20}}))?[ \t]{{0,40}}$",
    re.MULTILINE,
)


def nccl(reading: Reading, text: str, exit_code: int | None) -> None:
    """A job across machines never blames one of them: a subject stands only where all ranks are on one host."""
    rows = [m for m, _ in zip(_ROW.finditer(text), range(10_000), strict=False)]
    hosts = list(dict.fromkeys(m[1] for m in _RANK.finditer(text)))[:10_000]
    subject = hosts[0] if len(hosts) == 1 and is_node_name(hosts[0]) else None
    ranks = len(_RANK.findall(text))
    tool = _collective(text, rows, ranks)
    average = re.search(r"^#[ \t]{0,8}Avg bus bandwidth[ \t]{0,8}:[ \t]{0,8}([0-9.]{1,20})", text, re.MULTILINE)
    bounds = re.search(
        r"^#[ \t]{0,8}Out of bounds values[ \t]{0,8}:[ \t]{0,8}([0-9]{1,20})[ \t]{0,8}(\w{1,20})", text, re.MULTILINE
    )
    wrong = sum(real(w) or 0 for m in rows for w in (m["wrong"], m["wrong2"]) if w)
    if wrong > 0 or (bounds and (bounds[1] != "0" or bounds[2].upper() == "FAILED")):
        outcome = "fail"
    else:
        outcome = "pass" if average and rows and exit_code in (None, 0) else "error"
    words = "" if outcome != "error" else _first(text, r"^.{0,200}(?:NCCL failure|not enough slots|error).{0,200}")
    _verdict(
        reading, tool, outcome, text, subject=subject, words=words, exit_code=exit_code, ranks=ranks or None,
        hosts=hosts[:40] if len(hosts) > 1 else None, avg_busbw_gbps=real(average[1]) if average else None,
        max_busbw_gbps=max((b for m in rows if (b := real(m["bus"]))), default=None), wrong=wrong or None,
    )  # fmt: skip


def _collective(text: str, rows: list[re.Match[str]], ranks: int) -> str:
    """By its name if it is printed, else by the ratio of bus to algorithm bandwidth."""
    names = set(_NAMED.findall(text))
    if len(names) == 1:
        return f"{names.pop()}_perf"
    last = rows[-1] if rows else None
    if last is not None and ranks > 1 and last["op"] not in ("none",) and last["root"] == "-1":
        ratio = (real(last["bus"]) or 0) / (real(last["alg"]) or 1)
        one = (ranks - 1) / ranks
        return "all_reduce_perf" if abs(ratio - 2 * one) < abs(ratio - one) else "reduce_scatter_perf"
    if last is not None and last["op"] != "none" and last["root"] == "-1":
        return "all_reduce_perf"
    return "nccl-tests"


# --- gpu-burn and gpu-fryer ----------------------------------------------------------------------------------


def burn(reading: Reading, text: str, exit_code: int | None) -> None:
    """Only the last table decides: progress lines carry warnings that it takes into account."""
    table = text.rpartition("Tested ")[2] if "Tested " in text else ""
    results = re.findall(r"^[ \t]{0,40}GPU ([0-9]{1,4}): (OK|FAULTY)[ \t\r]{0,8}$", table, re.MULTILINE)
    faulty = list(dict.fromkeys(number for number, word in results if word == "FAULTY"))[:MAX_GPUS]
    for number in faulty:
        _verdict(reading, "gpu-burn", "fail", text, found=entities(gpu(number)), kind=Kind.FAULT,
                 words=f"GPU {number} computed wrong results under load")  # fmt: skip
    if not faulty:
        passed = bool(results) and exit_code in (None, 0)
        words = "" if passed else _first(text, r"^.{0,200}(?:couldn't|error|no clients|died).{0,200}")
        _verdict(reading, "gpu-burn", "pass" if passed else "error", text, words=words, exit_code=exit_code,
                 gpus=len(results))  # fmt: skip


def fryer(reading: Reading, text: str, exit_code: int | None) -> None:
    """It compares the GPUs of one host: slower than the best by the tolerance, or throttled, is a failure."""
    reasons = re.findall(
        r"^[ \t]{0,40}-[ \t]{0,8}GPU #?([0-9]{1,4})[ \t]{0,8}-[ \t]{0,8}(.{1,300})$", text, re.MULTILINE
    )
    by_gpu: dict[str, list[str]] = {}
    for number, reason in reasons:
        by_gpu.setdefault(number, []).append(reason.strip())
    for number, words in list(by_gpu.items())[:MAX_GPUS]:
        _verdict(reading, "gpu-fryer", "fail", text, found=entities(gpu(number)), kind=Kind.FAULT,
                 words=f"GPU {number}: {'; '.join(words[:8])}", exit_code=exit_code)  # fmt: skip
    if by_gpu:
        return
    if "not healthy" in text:
        _verdict(reading, "gpu-fryer", "fail", text, kind=Kind.FAULT, exit_code=exit_code)
    else:
        passed = "All GPUs seem healthy" in text and exit_code in (None, 0)
        _verdict(reading, "gpu-fryer", "pass" if passed else "error", text, exit_code=exit_code)


# --- perftest ------------------------------------------------------------------------------------------------

_BANDWIDTH = re.compile(
    r"^[ \t]{0,40}[0-9]{1,12}[ \t]{1,40}[0-9]{1,12}[ \t]{1,40}(?P<peak>[0-9.]{1,20}|-?nan)[ \t]{1,40}"
    r"(?P<average>[0-9.]{1,20}|-?nan)(?:[ \t]{1,40}[0-9.a-z-]{1,20}){0,6}[ \t\r]{0,8}$",
    re.MULTILINE,
)


def ib_bandwidth(reading: Reading, text: str, exit_code: int | None) -> None:
    """The last row of the table is the result; without one the two sides never met or the transfer broke."""
    named = re.search(r"(RDMA_Write|RDMA_Read|Send)(?: Bidirectional)? BW", text)
    tool = {"RDMA_Read": "ib_read_bw", "Send": "ib_send_bw"}.get(named[1] if named else "", "ib_write_bw")
    devices = list(dict.fromkeys(re.findall(r"\bDevice[ \t]{0,20}:[ \t]{0,20}([a-z][a-z0-9_]{1,30})", text)))[:16]
    port = re.search(r"\bIb port[ \t]{0,20}:[ \t]{0,20}([0-9]{1,3})", text, re.IGNORECASE)
    found = entities(*(ib(d, port[1] if port else None) for d in devices))
    rows = [m for m, _ in zip(_BANDWIDTH.finditer(text), range(10_000), strict=False)]
    unit = re.search(r"BW average\[([A-Za-z/]{3,12})\]", text)
    average = real(rows[-1]["average"]) if rows else None
    broken = _first(text, r"^.{0,200}(?:Completion with error|Failed status|syndrom).{0,200}")
    unmet = _first(text, r"^.{0,200}(?:couldn't|unable to|failed to|error).{0,200}")
    if broken:
        outcome = "fail"
    else:
        outcome = "pass" if average is not None and average > 0 and exit_code in (None, 0) else "error"
    scale = {"Gb/sec": 1.0, "MB/sec": 0.008388608, "MiB/sec": 0.008388608}.get(unit[1] if unit else "")
    _verdict(
        reading, tool, outcome, text, found=found, kind=Kind.FAULT if broken and found else Kind.CHECK,
        words=broken or ("" if outcome == "pass" else unmet), exit_code=exit_code, unit=unit[1] if unit else None,
        avg_bw=average, avg_bw_gbps=round(average * scale, 3) if average is not None and scale else None,
        peak_bw=real(rows[-1]["peak"]) if rows else None,
    )  # fmt: skip
