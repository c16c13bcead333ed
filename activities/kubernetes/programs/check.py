"""Runs in a pod on the node that is to be judged, with nothing but Python and what the node's driver brings.

Reads what to look at from `MEDEVAC_CHECK` (JSON), writes one line of JSON to the termination message and to stdout,
and ends with 0 (passed), 1 (failed) or 75 (it could not look: no verdict).
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from typing import Any

MESSAGE = os.environ.get("MEDEVAC_MESSAGE", "/dev/termination-log")
KERNEL_LOG = os.environ.get("MEDEVAC_KERNEL_LOG", "")
"""A file in its place, where this doesn't run on a node."""
BOOT_ID = os.environ.get("MEDEVAC_BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id")
MOST = 3500
"""Bytes of the answer; a kubelet cuts at 4096."""
CHUNK = 1 << 20
RECORD = re.compile(r"<(\d+)>(?:\[ *\d+\.\d+\])?(?:\[ *[TC]\d+\])? ?(.*)")
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
REMEDY = "medevac: gpu reset"
"""Written to the kernel's log by our own reset: what came before it, the reset was for."""
KERN, USER = 0, 1
"""Facility of what the kernel itself says, and of what processes write to its log, which may be anything."""
READ_ALL, SIZE = 3, 10
NO_DRIVER = 9
PASSED, FAILED, NO_VERDICT = 0, 1, 75
INIT_FLAKES = (3, 100, 801, 802, 803, 804, 999)
"""Of cuInit: not ready yet, a daemon that is still to come, or nothing to see; not what a broken GPU answers later."""


Gpu = ElementTree.Element


class CouldNotLook(Exception):
    """No verdict on the node."""


class Bad(Exception):
    """A verdict: the node is not well."""


class Clock:
    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.1, self.end - time.monotonic())


def run(clock: Clock, *command: str) -> tuple[int, str]:
    """Exit code and what it printed, on both channels."""
    try:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603
    except FileNotFoundError:
        raise CouldNotLook(f"{command[0]} is not in this image") from None
    except OSError as error:
        raise CouldNotLook(f"{command[0]}: {error}") from None
    try:
        said, _ = started.communicate(timeout=clock.left())
    except subprocess.TimeoutExpired:
        # Not waited for: what hangs in the driver can't be ended, and the verdict must get out.
        started.kill()
        raise
    return started.returncode, said.decode("utf-8", "replace")


# -- the looks ---------------------------------------------------------------------------------------------------------


def services(clock: Clock, wanted: Sequence[str]) -> str:
    bad = []
    for unit in wanted:
        try:
            code, said = run(clock, "systemctl", "is-active", unit)
        except subprocess.TimeoutExpired:
            raise Bad(f"systemctl gives no answer about {unit}") from None
        state = said.strip().splitlines()[-1:] or [f"exit {code}"]
        if "Failed to connect" in said or "not been booted" in said:
            raise CouldNotLook(f"systemctl: {said.strip()[:200]}")
        if code != 0:
            bad.append(f"{unit} is {state[0][:60]}")
    if bad:
        raise Bad("; ".join(bad))
    return f"{len(wanted)} active"


def read_gpus(clock: Clock) -> list[Gpu]:
    """One `gpu` element of nvidia-smi's XML for each that the driver shows."""
    while True:
        try:
            code, said = run(clock, "nvidia-smi", "-q", "-x")
        except subprocess.TimeoutExpired:
            raise Bad("nvidia-smi gives no answer") from None
        if code != NO_DRIVER:
            break
        if clock.left() < 5:
            raise Bad("the driver is not loaded")
        time.sleep(min(2.0, clock.left()))  # after a boot it may be on its way
    if code != 0:
        raise Bad(f"nvidia-smi: exit {code}: {' '.join(said.split())[:300]}")
    start = said.find("<?xml")
    try:
        found = ElementTree.fromstring(said[max(0, start) :]).findall("gpu")  # noqa: S314  the node's own driver
    except ElementTree.ParseError as error:
        raise CouldNotLook(f"nvidia-smi's XML can't be read: {error}") from None
    return found


def count(gpus: Sequence[Gpu], wanted: int, model: str) -> str:
    lost = [gpu.get("id") for gpu in gpus if re.search(r"ERR!|Unknown Error|is lost", text(gpu, "product_name"))]
    if lost:
        raise Bad("lost: {}".format(", ".join(map(str, lost))))
    if len(gpus) != wanted:
        raise Bad(f"{len(gpus)} GPUs, the SKU has {wanted}")
    others = sorted({text(gpu, "product_name") for gpu in gpus if plain(text(gpu, "product_name")) != plain(model)})
    if model and others:
        raise Bad("model {}, the SKU has {}".format(", ".join(others), model))
    return f"{len(gpus)} x {model or 'GPU'}"


def rows(gpus: Sequence[Gpu]) -> str:
    """Memory rows that wait for a remap, or that none is left for; pages likewise on older GPUs."""
    bad = []
    for gpu in gpus:
        where = gpu.get("id", "?")
        if said_yes(text(gpu, "remapped_rows/remapped_row_failure")):
            bad.append(f"{where}: a row remap failed")
        if said_yes(text(gpu, "remapped_rows/remapped_row_pending")):
            bad.append(f"{where}: a row remap is pending")
        pages = text(gpu, "retired_pages/pending_retirement") or text(gpu, "retired_pages/pending_blacklist")
        if said_yes(pages):
            bad.append(f"{where}: a page retirement is pending")
    if bad:
        raise Bad("; ".join(bad))
    return "none pending, none failed"


def recovery(gpus: Sequence[Gpu]) -> str:
    """What the driver itself asks for."""
    wants = [
        "{}: {}".format(gpu.get("id", "?"), action)
        for gpu in gpus
        for action in [text(gpu, "gpu_recovery_action")]
        if action.lower() not in ("", "none", "n/a", "[n/a]")
    ]
    if wants:
        raise Bad("the driver wants {}".format("; ".join(wants)))
    return "the driver wants nothing"


def kernel_log() -> list[tuple[int, str]]:
    """Facility and text of each line. By the kernel's own call: `dmesg -r` of many a util-linux shows each as 0."""
    if KERNEL_LOG:
        with open(KERNEL_LOG, encoding="utf-8", errors="replace") as file:
            said = file.read()
    else:
        try:
            klogctl = ctypes.CDLL(None, use_errno=True).klogctl
        except AttributeError:
            raise CouldNotLook("the kernel's log: klogctl is not in this image") from None
        buffer = ctypes.create_string_buffer(4 * max(klogctl(SIZE, None, 0), CHUNK))
        length = klogctl(READ_ALL, buffer, len(buffer))
        if length < 0:
            raise CouldNotLook(f"the kernel's log: {os.strerror(ctypes.get_errno())}")
        said = buffer.raw[:length].decode("utf-8", "replace")
    return [(int(match.group(1)) >> 3, match.group(2)) for match in map(RECORD.match, said.split("\n")) if match]


def xids(harmless: Sequence[int]) -> str:
    """None since this boot, or since our own reset on it."""
    records = kernel_log()
    since = max([n for n, (by, said) in enumerate(records) if by == USER and said.startswith(REMEDY)], default=-1)
    found = [match.groups() for by, said in records[since + 1 :] for match in [XID.match(said)] if match and by == KERN]
    bad = sorted({f"Xid {code} at {where}" for where, code in found if int(code) not in harmless})
    if bad:
        raise Bad("; ".join(bad))
    whole = since >= 0 or any(said.startswith("Linux version") for _, said in records[:50])
    # The ring forgets its beginning on a node that logs a lot; said, so that nobody takes it for more than it is.
    return f"none since {'our reset' if since >= 0 else 'boot' if whole else 'the oldest line of the log'}"


def write_read(clock: Clock, gpus: Sequence[Gpu], size: int) -> str:
    """Each GPU by a process of its own: one that hangs is ended, and a CUDA context can't be shared by a fork."""
    deadline = Clock(clock.left())
    children = []
    for gpu in gpus:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                said = one_gpu(gpu.get("id", ""), size)
            except Bad as error:
                said = f"bad {error}"
            except CouldNotLook as error:
                said = f"flake {error}"
            except BaseException as error:
                said = f"flake {type(error).__name__}: {error}"
            os.write(writer, said.encode("utf-8", "replace")[:400])
            os._exit(0)
        os.close(writer)
        children.append((gpu.get("id", "?"), child, reader))
    bad, flakes = [], []
    for where, child, reader in children:
        heard = reaped(child, reader, deadline)
        if heard is None:
            bad.append(f"{where}: the write-read pass hangs")
        elif heard.startswith("bad "):
            bad.append(f"{where}: {heard[4:]}")
        elif not heard.startswith("ok"):
            flakes.append("{}: {}".format(where, heard[6:] or "its process died"))
    if bad:
        raise Bad("; ".join(bad))
    if flakes:
        raise CouldNotLook("; ".join(flakes))
    return f"{len(children)} GPU(s), {size // CHUNK} MiB each"


def reaped(child: int, reader: int, deadline: Clock) -> str | None:
    """What the child said; None where it had to be ended."""
    while True:
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            with os.fdopen(reader, "rb") as pipe:
                return pipe.read().decode("utf-8", "replace")
        if deadline.left() <= 0.2:
            os.kill(child, signal.SIGKILL)
            os.close(reader)
            # Not waited for: a process that hangs in the driver can't be ended, and the verdict must get out.
            return None
        time.sleep(0.05)


def one_gpu(bus_id: str, size: int) -> str:
    """Writes random bytes and their complement over `size` bytes of memory, and reads them back."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CouldNotLook(f"no libcuda: {error}") from None

    def call(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise Bad(f"{name}: CUDA error {code}")

    code = cuda.cuInit(0)
    if code in INIT_FLAKES:
        time.sleep(1.0)
        code = cuda.cuInit(0)
    if code in INIT_FLAKES:
        raise CouldNotLook(f"CUDA can't be initialised: error {code}")
    if code:
        raise Bad(f"cuInit: CUDA error {code}")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuDeviceGetByPCIBusId", ctypes.byref(device), bus_id.encode())
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    if free.value < size:
        raise CouldNotLook(f"only {free.value // CHUNK} MiB are free: somebody uses it")
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    block = os.urandom(CHUNK)
    for pattern in (block, bytes(255 - byte for byte in block)):
        for at in range(0, size, CHUNK):
            call("cuMemcpyHtoD_v2", ctypes.c_uint64(memory.value + at), pattern, ctypes.c_size_t(CHUNK))
        back = ctypes.create_string_buffer(CHUNK)
        for at in range(0, size, CHUNK):
            call("cuMemcpyDtoH_v2", back, ctypes.c_uint64(memory.value + at), ctypes.c_size_t(CHUNK))
            if back.raw != pattern:
                raise Bad(f"what was read at offset {at // CHUNK} MiB is not what was written")
    call("cuMemFree_v2", memory)
    return "ok"


# -- all of it ---------------------------------------------------------------------------------------------------------


def text(element: Gpu, path: str) -> str:
    return (element.findtext(path) or "").strip()


def said_yes(word: str) -> bool:
    return word.lower() == "yes"


def plain(model: str) -> str:
    """`NVIDIA-H100-80GB-HBM3` and `NVIDIA H100 80GB HBM3` are one model."""
    return re.sub(r"[^a-z0-9]", "", model.lower().replace("nvidia", ""))


def boot_id() -> str:
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def look(wanted: dict[str, Any], clock: Clock) -> tuple[list[tuple[str, bool | None, str]], list[str], list[Gpu]]:
    """Name, whether it is well (None = couldn't look), and what was seen; what all of it covers; the GPUs."""
    found: list[tuple[str, bool | None, str]] = []

    def item(name: str, function: Callable[..., str], *arguments: Any) -> bool | None:
        try:
            found.append((name, True, function(*arguments)))
        except Bad as error:
            found.append((name, False, str(error)))
        except CouldNotLook as error:
            found.append((name, None, str(error)))
        return found[-1][1]

    asked, covers = wanted["covers"], {"maintenance"}
    gpus: list[Gpu] = []

    def driver() -> str:
        gpus.extend(read_gpus(clock))
        return f"{len(gpus)} GPUs answer"

    if wanted["services"]:
        item("services", services, clock, wanted["services"])
    if wanted["gpus"] or wanted["driver"]:
        if item("driver", driver):
            if wanted["gpus"]:
                item("count", count, gpus, wanted["gpus"], wanted["model"])
                covers.add("bus")
            item("rows", rows, gpus)
            item("recovery", recovery, gpus)
            if gpus and wanted["write_read"]:
                # One fault may sit on any of them: only all of them prove a memory fault gone.
                some = gpus if "memory" in asked else [random.choice(gpus)]  # noqa: S311
                item("write-read", write_read, clock, some, wanted["write_read"])
                covers |= {"memory"} if "memory" in asked else set()
        item("xids", xids, wanted["harmless"])
    if wanted["services"]:
        covers.add("service")
    return found, sorted(covers & set(asked)), gpus


def main() -> int:
    wanted = json.loads(os.environ["MEDEVAC_CHECK"])
    began, before = time.monotonic(), boot_id()
    found, covers, gpus = look(wanted, Clock(wanted["seconds"]))
    states = [state for _, state, _ in found]
    code = FAILED if False in states else NO_VERDICT if None in states else PASSED
    after = boot_id()
    telling = [one for one in found if one[1] is not True] or found
    answer = {
        "verdict": {PASSED: "passed", FAILED: "failed", NO_VERDICT: "none"}[code],
        "reason": "; ".join(f"{name}: {said}" for name, _, said in telling)[:800],
        "covers": covers,
        "boot_id": [before, after],
        "seconds": round(time.monotonic() - began, 1),
        # Which parts were judged: after an exchange they are others.
        "gpus": [[gpu.get("id", ""), text(gpu, "uuid"), text(gpu, "serial")] for gpu in gpus],
        "items": {name: {"ok": state, "said": said[:200]} for name, state, said in found},
    }
    line = json.dumps(answer)
    if len(line) > MOST:
        line = json.dumps({key: value for key, value in answer.items() if key != "items"})
    print(line, flush=True)
    with open(MESSAGE, "w", encoding="ascii") as file:
        file.write(line)
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Without waiting for children that hang in the driver.
    os._exit(code)
