"""nvidia-smi: `-q -x` XML (any dtd), `-q` text, `--query-gpu` CSV, and what it says when it fails.

The exit code means more than its words: 15 fallen off the bus, 14 InfoROM, 10 interrupts, 9 no driver, 8 power.
`[N/A]`, `[Not Supported]` and the like say nothing. No output names its host.

CSV without its header row (`noheader`) doesn't say which number is which. It is read where the request says what was
asked for, in `X-Medevac-Query: index,uuid,temperature.gpu`, and else refused; columns are never guessed.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field

from medevac.events.event import Kind, Severity
from medevac.events.parsing import Parsed, ParseError, Payload
from medevac.events.reading import MAX_PARTS, Reading, entities, gpu, gpu_uuid, one_line, pci, quote, read_text
from medevac.events.smi_facts import judge
from medevac.events.xml_facts import elements

SOURCE = "nvidia_smi"
QUERY_HEADER = "x-medevac-query"
MAX_REFUSED = 100

EXIT_CODES = {
    6: ("device-count/none", None),
    8: ("power/external", None),
    9: ("nvidia-smi/no-driver", None),
    10: ("nvidia-smi/interrupts", None),
    12: ("nvidia-smi/library-missing", None),
    14: ("inforom/corrupt", None),
    15: ("gpu-lost", Severity.CRITICAL),
    18: ("nvidia-smi/version-mismatch", None),
}
_PCI = r"(?:GPU)?(?:[0-9]{1,3}: )?\s?((?:[0-9a-f]{4,8}:)[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_HANDLE = rf"unable to determine the device handle for (?:gpu)?\s?{_PCI}"
_WORDS = (
    (re.compile(rf"{_HANDLE}: insufficient external power", re.I), "power/external", None),
    (re.compile(rf"{_HANDLE}: .{{0,40}}gpu interrupts", re.I), "nvidia-smi/interrupts", None),
    (re.compile(_HANDLE, re.I), "gpu-lost", Severity.CRITICAL),
    (re.compile(rf"{_PCI}:? (?:is lost|has fallen off)", re.I), "gpu-lost", Severity.CRITICAL),
    (re.compile(r"^\W{0,4}(?:error:? )?gpu is lost", re.I), "gpu-lost", Severity.CRITICAL),
    (re.compile(rf"inforom is corrupted at gpu {_PCI}", re.I), "inforom/corrupt", None),
    (re.compile(r"no devices were found", re.I), "device-count/none", None),
    (re.compile(r"driver/library version mismatch", re.I), "nvidia-smi/version-mismatch", None),
    (re.compile(r"couldn't communicate with the nvidia driver", re.I), "nvidia-smi/no-driver", None),
    (re.compile(r"couldn't find libnvidia-ml", re.I), "nvidia-smi/library-missing", None),
    (re.compile(r"failed to initialize nvml", re.I), "nvidia-smi/nvml", None),
)


_LISTED = re.compile(r"GPU [0-9]{1,3}: [^\n]{1,120}\(UUID: GPU-")
"""`nvidia-smi -L`: which GPUs there are, and nothing about their health."""
_ROW = re.compile(
    r"^\| {1,6}(?P<index>[0-9]{1,3}) [^|\n]{1,80}\| {0,20}(?P<bus>[0-9A-Fa-f:.]{7,16}) [^|\n]{1,20}"
    r"\| {0,40}(?P<ecc>\S(?:[^|\n]{0,20}\S)?) {0,40}\|",
    re.MULTILINE,
)


@dataclass
class Gpu:
    """What one GPU's part says: its names, and flat facts by dotted lower-case path."""

    names: list[str | None] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)


def parse(payload: Payload) -> Parsed:
    reading = Reading(SOURCE)
    text = _failure(reading, read_text(payload.body), payload.exit_code)
    stripped = text.lstrip()
    if stripped.startswith("<"):
        gpus = _from_xml(text)
    elif _is_csv(stripped):
        gpus = _from_csv(reading, _columns(stripped.split("\n", 1)[0]), stripped.split("\n")[1:])
    elif _is_rows(stripped):
        gpus = _without_header(reading, payload, stripped)
    elif "NVIDIA-SMI" in text and _ROW.search(text):
        gpus = _from_table(text)
    elif re.search(r"^ *[A-Za-z][A-Za-z0-9 ./()-]{1,60} : ", text, re.MULTILINE) or "ECC Errors" in text:
        gpus = _from_text(text)
    elif reading.events or _LISTED.match(stripped):
        gpus = []
    elif payload.exit_code not in (None, 0):
        _not_run(reading, text, payload.exit_code)
        gpus = []
    else:
        raise ParseError("neither XML, `-q` text, CSV with a header nor a failure of nvidia-smi")
    for device in gpus:
        judge(reading, entities(*device.names), device.facts)
    return reading.parsed()


def _without_header(reading: Reading, payload: Payload, text: str) -> list[Gpu]:
    """Read by what the request says was asked for. What the output says beside its rows (a lost GPU) stands."""
    query = payload.headers.get(QUERY_HEADER, "").strip()
    if query and _is_csv(query):
        return _from_csv(reading, _columns(query), text.split("\n"))
    why = (
        f"header X-Medevac-Query is {quote(query)}, expected the fields of --query-gpu, e.g. index,temperature.gpu"
        if query
        else "CSV without its header row, which alone says what each column is: leave `noheader` out of --format"
        " (`nounits` may stay), or name the fields of --query-gpu in the header X-Medevac-Query"
    )
    if not reading.events:
        raise ParseError(why)
    reading.refuse("rows", why)
    return []


def recognises(payload: Payload) -> bool:
    body = payload.body[:200_000]
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")[:400]
    if start.startswith(b"<"):
        return b"<nvidia_smi_log" in body
    words = start.decode("utf-8", "replace")
    if any(pattern.search(words) for pattern, _, _ in _WORDS) and not words.startswith(("{", "[")):
        return True
    if (
        b"NVSMI LOG" in start
        or b"Unable to determine the device handle for" in start
        or b"| NVIDIA-SMI " in start
        or start.startswith(b"NVIDIA-SMI")
    ):
        return True
    head = start.split(b"\n")[0].decode("ascii", "replace")
    return _is_csv(head) or (b"Remapped Rows" in body and b" : " in body)


def _failure(reading: Reading, text: str, exit_code: int | None) -> str:
    """The words say which GPU, the exit code says what; without either it is no failure.

    Returns the rest: such lines stand before, within and after what was asked for, and are part of none of it."""
    meant = EXIT_CODES.get(exit_code or 0)
    found: dict[str | None, tuple[str, Severity | None, str]] = {}
    lines = text.splitlines(keepends=True)
    told: set[int] = set()
    for number, line in enumerate(lines[:MAX_PARTS]):
        # A cell of the table, a row of CSV and a field of `-q` each have their GPU beside them.
        if line.startswith(("|", "<", " ", "\t")):
            continue
        for pattern, code, severity in _WORDS:
            if m := pattern.search(line[:1_000]):
                device = pci(m[1]) if pattern.groups else None
                found.setdefault(device, (code, severity, line.strip()))
                told.add(number)
                break
    if not found and meant is not None:
        found[None] = (*meant, text[:400])
    elif not found and exit_code not in (None, 0) and not text.strip():
        _not_run(reading, text, exit_code)
    if len(found) > 1:
        found = {device: said for device, said in found.items() if device or said[0] != "device-count/none"}
    for device, (code, severity, line) in found.items():
        if meant is not None and not (device and meant[0] == "device-count/none"):
            code, severity = meant
        reading.add(
            Kind.FAULT, code, part=line, key=(code, device), severity=severity, entities=entities(device),
            summary=one_line(line) or f"nvidia-smi exit code {exit_code}", detail={"exit_code": exit_code},
        )  # fmt: skip
    return "".join(line for number, line in enumerate(lines) if number not in told)


def _not_run(reading: Reading, text: str, exit_code: int | None) -> None:
    """Neither healthy nor broken."""
    reading.add(
        Kind.CHECK, "check/timeout" if exit_code in (124, 137) else "check/error", part=text,
        key=("nvidia-smi", "not-run"), summary=one_line(text) or "nvidia-smi printed nothing",
        detail={"exit_code": exit_code},
    )  # fmt: skip


def _from_xml(text: str) -> list[Gpu]:
    gpus: list[Gpu] = []
    current = Gpu()
    found = elements(text[text.index("<") :])
    if not found or found[-1][0] != ("nvidia_smi_log",):
        raise ParseError("XML is not nvidia-smi's: its root is no nvidia_smi_log")
    for path, attributes, value in found:
        if len(path) == 2 and path[1] == "gpu":
            current.names.insert(0, pci(attributes.get("id")))
            gpus.append(current)
            current = Gpu()
        elif len(path) > 2 and path[1] == "gpu" and value:
            inner = ".".join(path[2:]).lower()
            if inner == "uuid":
                current.names.append(gpu_uuid(value))
            elif inner == "pci.pci_bus_id":
                current.names.insert(0, pci(value))
            current.facts.append((inner, value))
    return gpus


def _is_csv(text: str) -> bool:
    head = _columns(text.split("\n", 1)[0])
    known = ("index", "uuid", "gpu_uuid", "name", "gpu_name", "pci.bus_id", "gpu_bus_id", "serial", "timestamp")
    return len(head) > 1 and any(c in known for c in head) and all(re.fullmatch(r"[a-z0-9_.]{2,80}", c) for c in head)


def _columns(head: str) -> list[str]:
    """`temperature.gpu` of `temperature.gpu [C]`."""
    return [cell.strip().split(" ")[0] for cell in head[:4_000].split(",")]


def _is_rows(text: str) -> bool:
    """Values between commas in each line, and no names above them."""
    lines = [line for line in text.split("\n")[:MAX_PARTS] if line.strip()]
    commas = {line.count(",") for line in lines[:20]}
    return bool(commas) and 0 not in commas and not any(line.startswith(("{", "<", "|")) for line in lines[:20])


def _from_csv(reading: Reading, head: list[str], lines: list[str]) -> list[Gpu]:
    """A row with more or fewer values than the head has names is refused: they may all stand in the wrong place."""
    if len(lines) > MAX_PARTS:
        raise ParseError(f"CSV has {len(lines)} lines, more than the {MAX_PARTS} allowed")
    gpus: list[Gpu] = []
    try:
        for number, row in enumerate(csv.reader((ln for ln in lines if ln.strip()), skipinitialspace=True), 1):
            if len(row) != len(head):
                if len(reading.refused) < MAX_REFUSED:
                    reading.refuse(f"row {number}", f"has {len(row)} values for {len(head)} columns")
                continue
            device = Gpu(facts=list(zip(head, (v.strip() for v in row), strict=True)))
            named = dict(device.facts)
            device.names = [
                gpu(named.get("index")), gpu_uuid(named.get("uuid") or named.get("gpu_uuid")),
                pci(named.get("pci.bus_id") or named.get("gpu_bus_id")),
            ]  # fmt: skip
            gpus.append(device)
    except csv.Error as e:
        raise ParseError(f"CSV can't be read: {e}") from None
    return gpus


def _from_table(text: str) -> list[Gpu]:
    """The table without `-q`: index, bus id and uncorrected ECC on a GPU's first row, fields that fail on any."""
    gpus: list[Gpu] = []
    for line in text.splitlines()[:MAX_PARTS]:
        if m := _ROW.match(line):
            facts = [("ecc.errors.uncorrected.volatile.total", m["ecc"])]
            gpus.append(Gpu(names=[gpu(m["index"]), pci(m["bus"])], facts=facts))
        elif line.startswith("| Processes"):
            break
        for word in ("GPU is lost", "ERR!") if gpus else ():
            if word in line:
                gpus[-1].facts.append(("table", word))
    return gpus


def _from_text(text: str) -> list[Gpu]:
    """Sections by indentation; what stands before the first `GPU <bus id>` line belongs to an unnamed GPU."""
    gpus = [Gpu()]
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if m := re.match(r"GPU ([0-9A-Fa-f:.]{7,20})\s*$", line):
            gpus.append(Gpu(names=[pci(m[1])]))
            stack = []
            continue
        if not line.strip() or len(line) > 400:
            continue
        indent = len(line) - len(line.lstrip())
        name, colon, value = line.strip().partition(" : ")
        while stack and stack[-1][0] >= indent:
            stack.pop()
        step = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        if len(stack) < 12:
            stack.append((indent, step))
        if colon:
            path = ".".join(s for _, s in stack)
            if path.endswith("gpu_uuid"):
                gpus[-1].names.append(gpu_uuid(value))
            gpus[-1].facts.append((path, value.strip()))
    if len(gpus) > MAX_PARTS:
        raise ParseError(f"text names {len(gpus)} GPUs, more than the {MAX_PARTS} allowed")
    return gpus
