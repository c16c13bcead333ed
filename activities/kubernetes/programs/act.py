"""Runs in a privileged pod on one node and carries out one order there, once, on the boot that it was given for.

The order stands in `MEDEVAC_ORDER` (JSON). What became of it is one line of JSON in the termination message and on
stdout. Ends with 0 (done), 1 (tried, in vain) or 3 (refused: nothing was done).

Needs Python only. The node's root is mounted at /host; its own programs are run there.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from typing import Any

ROOT = os.environ.get("MEDEVAC_ROOT", "")
"""Prefix of all files, where this doesn't run on a node."""
KERNEL_LOG = os.environ.get("MEDEVAC_KERNEL_LOG", "")
"""A file in its place, where this doesn't run on a node."""
HOST = "/host"
DONE, FAILED, REFUSED = 0, 1, 3
DEVICE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm|-modeset|-nvswitch\w*)$")
RECORD = re.compile(r"<(\d+)>(?:\[ *\d+\.\d+\])?(?:\[ *[TC]\d+\])? ?(.*)")
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
RESET_LINE = "medevac: gpu reset"
"""In the kernel's log: the check counts from the last of them."""
KERN, USER = 0, 1
"""Facility of what the kernel itself says, and of what processes write to its log, which may be anything."""
READ_ALL, SIZE = 3, 10


class Refused(Exception):
    """Nothing was done."""


class Failed(Exception):
    """Something was tried, and did not do."""


def file(path: str) -> str:
    return ROOT + path


def run(seconds: float, *command: str, root: str = "/") -> tuple[int, str]:
    """A program of the node itself, below `root` of it."""

    def enter() -> None:
        os.chroot(HOST + root.rstrip("/"))
        os.chdir("/")

    try:
        started = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=None if ROOT else enter,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise Failed(f"{command[0]}: {error}") from None
    try:
        said, _ = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        started.kill()  # not waited for: what hangs in the driver can't be ended
        raise Failed(f"{' '.join(command)}: no answer within {seconds:g} s") from None
    return started.returncode, said.decode("utf-8", "replace").strip()


def must(seconds: float, *command: str, root: str = "/") -> str:
    code, said = run(seconds, *command, root=root)
    if code != 0:
        raise Failed(f"{' '.join(command)}: exit {code}: {' '.join(said.split())[:300]}")
    return said


def log(text: str) -> None:
    """To the kernel's log, where it survives this pod and people look first."""
    with open(file("/dev/kmsg"), "a", encoding="ascii", errors="replace") as kmsg:
        kmsg.write(f"<4>{text}\n")


# -- agents ------------------------------------------------------------------------------------------------------------


def invocation(unit: str) -> str:
    """Changes with each start of the unit, and with nothing else."""
    said = must(10, "systemctl", "show", unit, "--property=LoadState", "--property=InvocationID")
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    if found.get("LoadState") != "loaded":
        raise Refused(f"{unit} is not on this node ({found.get('LoadState', 'unknown')})")
    return found.get("InvocationID", "")


def restart_agent(order: dict[str, Any]) -> str:
    units = order["units"]
    before = {unit: invocation(unit) for unit in units}
    for unit in units:
        must(60, "systemctl", "restart", unit)
    until(30, lambda: all(map(active, units)), f"{', '.join(units)}: not all come up")
    after = {unit: invocation(unit) for unit in units}
    same = [unit for unit in units if after[unit] == before[unit]]
    if same:
        raise Failed(f"{', '.join(same)}: still the old process")
    return " ".join(f"{unit}={after[unit]}" for unit in units)


def active(unit: str) -> bool:
    return run(10, "systemctl", "is-active", unit)[0] == 0


def until(seconds: float, look: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() >= end:
            raise Failed(otherwise)
        time.sleep(0.5)


# -- GPUs --------------------------------------------------------------------------------------------------------------


class Gpu:
    def __init__(self, element: ElementTree.Element) -> None:
        def said(path: str) -> str:
            return (element.findtext(path) or "").strip()

        self.bus = str(element.get("id", ""))
        self.uuid, self.minor = said("uuid"), said("minor_number")
        self.wants = said("gpu_recovery_action").lower()
        self.mig = said("mig_mode/current_mig").lower() == "enabled"


def gpus(root: str) -> list[Gpu]:
    said = must(30, "nvidia-smi", "-q", "-x", root=root)
    try:
        found = ElementTree.fromstring(said[max(0, said.find("<?xml")) :])  # noqa: S314  the node's own driver
    except ElementTree.ParseError as error:
        raise Failed(f"nvidia-smi's XML can't be read: {error}") from None
    return [Gpu(element) for element in found.findall("gpu")]


def reset_gpu(order: dict[str, Any]) -> str:
    root, all_gpus = order["driver_root"], gpus(order["driver_root"])
    chosen = affected(all_gpus) or all_gpus
    whole, chosen = with_peers(chosen, all_gpus, root, order["linked"])
    if not chosen:
        raise Refused("the driver shows no GPU")
    if mig := [gpu.bus for gpu in chosen if gpu.mig]:
        raise Refused(f"MIG is enabled on {', '.join(mig)}")
    stopped = [unit for unit in order["stop"] if active(unit)]
    try:
        for unit in stopped:
            must(60, "systemctl", "stop", unit)
        nobody_uses(chosen, whole, order["wait_s"])
        log(f"medevac: resets GPUs for {order['token']}")
        which = () if whole else ("-i", ",".join(gpu.bus for gpu in chosen))
        must(order["reset_s"], "nvidia-smi", "--gpu-reset", *which, root=root)
        log(f"{RESET_LINE} {order['token']}")
    finally:
        # In the order in which they came up: what was stopped last is what others need.
        late = [unit for unit in reversed(stopped) if run(60, "systemctl", "start", unit)[0] != 0]
    after = gpus(root)
    if gone := {gpu.uuid for gpu in all_gpus} - {gpu.uuid for gpu in after}:
        raise Failed(f"after the reset {', '.join(sorted(gone))} is gone")
    if late:
        raise Failed(f"after the reset {', '.join(late)} does not start")
    return f"{'all' if whole else ','.join(gpu.bus for gpu in chosen)} at {time.time():.0f}"


def affected(all_gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those that the driver itself wants reset, and those with an Xid since the boot or the last reset."""
    records = kernel_log()
    since = max([n for n, (by, said) in enumerate(records) if by == USER and said.startswith(RESET_LINE)], default=-1)
    xids = [XID.match(said) for by, said in records[since + 1 :] if by == KERN]
    hit = {place(match.group(1)) for match in xids if match}
    return [gpu for gpu in all_gpus if "reset" in gpu.wants or place(gpu.bus) in hit]


def kernel_log() -> list[tuple[int, str]]:
    """Facility and text of each line; none where it can't be read. By the kernel's own call: `dmesg -r` of many a
    util-linux shows each as 0.
    """
    if KERNEL_LOG:
        with open(KERNEL_LOG, encoding="utf-8", errors="replace") as found:
            said = found.read()
    else:
        klogctl = ctypes.CDLL(None).klogctl
        buffer = ctypes.create_string_buffer(4 * max(klogctl(SIZE, None, 0), 1 << 20))
        length = klogctl(READ_ALL, buffer, len(buffer))
        said = buffer.raw[: max(0, length)].decode("utf-8", "replace")
    return [(int(match.group(1)) >> 3, match.group(2)) for match in map(RECORD.match, said.split("\n")) if match]


def place(bus: str) -> str:
    """`0000:3b:00` of `00000000:3B:00.0`, as the kernel's log has it."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def with_peers(chosen: list[Gpu], all_gpus: list[Gpu], root: str, linked: str) -> tuple[bool, list[Gpu]]:
    """Linked GPUs are reset together or not at all. Whether that is all of them with their switches, and which."""
    switched = any(name.startswith("nvidia-nvswitch") for name in os.listdir(file("/dev")))
    links = links_of(run(20, "nvidia-smi", "nvlink", "--status", root=root)[1])
    peers = all_gpus if switched else [gpu for gpu in all_gpus if links.get(gpu.uuid)]
    if not any(gpu in peers for gpu in chosen):
        return False, chosen
    together = [gpu for gpu in all_gpus if gpu in peers or gpu in chosen]
    if linked == "refuse" and len(together) > len(chosen):
        raise Refused(f"{len(together)} GPUs are linked and would have to be reset together")
    return switched, together


def links_of(said: str) -> dict[str, bool]:
    """UUID of a GPU: whether any of its links is up. `Link 0: 26.562 GB/s`, or `Link 0: <inactive>`."""
    found: dict[str, bool] = {}
    uuid = ""
    for line in said.splitlines():
        if match := re.search(r"UUID: (GPU-[\w-]+)", line):
            uuid = match.group(1)
        elif uuid and re.search(r"Link \d+: [\d.]+ GB/s", line):
            found[uuid] = True
    return found


def nobody_uses(chosen: Sequence[Gpu], whole: bool, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while users := clients({gpu.minor for gpu in chosen}, whole):
        if time.monotonic() >= end:
            raise Refused(f"still in use by {', '.join(users[:5])}")
        time.sleep(1.0)


def clients(minors: set[str], whole: bool) -> list[str]:
    """Processes of the node that have one of these devices open; this one has none."""
    found = []
    for pid in os.listdir(file("/proc")):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            links = [os.readlink(file(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(file(f"/proc/{pid}/fd"))]
            with open(file(f"/proc/{pid}/comm"), encoding="utf-8", errors="replace") as comm:
                name = comm.read().strip()
        except OSError:
            continue  # ended meanwhile
        open_ones = {match.group(1) for link in links for match in [DEVICE.search(link)] if match}
        if open_ones & minors or (whole and open_ones):
            found.append(f"{name} ({pid})")
    return sorted(found)


# -- reboot ------------------------------------------------------------------------------------------------------------


def reboot(order: dict[str, Any]) -> str:
    """The node's own way first; where it is still up after that, the kernel's, which asks nobody."""
    # The shutdown ends this pod too; ignored, it leaves time for the second way.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log(f"medevac: reboot {order['token']}")
    said = []
    try:
        must(30, "systemctl", "reboot", "--no-block")
    except Failed as error:
        said.append(str(error))
    else:
        time.sleep(order["hang_s"])
        said.append(f"still up {order['hang_s']:g} s after systemctl reboot")
    log(f"medevac: reboot by sysrq {order['token']}: {said[0]}"[:300])
    for key in "sub":  # sync, mount read-only, boot
        try:
            with open(file("/proc/sysrq-trigger"), "w", encoding="ascii") as trigger:
                trigger.write(key)
        except OSError as error:
            said.append(f"sysrq {key}: {error}")
        time.sleep(order["sync_s"])
    time.sleep(order["sync_s"])
    raise Failed("; ".join([*said, "still up after sysrq"]))


# -- once --------------------------------------------------------------------------------------------------------------

VERBS: dict[str, Callable[[dict[str, Any]], str]] = {
    "restart_agent": restart_agent,
    "reset_gpu": reset_gpu,
    "reboot": reboot,
}


def begin(order: dict[str, Any]) -> None:
    """Refuses on another boot, too late, and a second time: a pod may be started twice, an order is not."""
    with open(file("/proc/sys/kernel/random/boot_id"), encoding="ascii") as found:
        boot = found.read().strip()
    if boot != order["boot_id"]:
        raise Refused(f"this is boot {boot}, the order is for {order['boot_id']}")
    if time.time() > order["not_after"]:
        raise Refused("too late: nobody expects it any more")
    # Gone with the boot, like the order.
    folder = file("/run/medevac") if ROOT else f"{HOST}/run/medevac"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        os.close(os.open(f"{folder}/{order['name']}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise Refused("begun before on this boot; not again") from None


def main() -> int:
    order = json.loads(os.environ["MEDEVAC_ORDER"])
    code, answer = DONE, {"mark": "", "reason": ""}
    try:
        begin(order)
        answer["mark"] = VERBS[order["verb"]](order)
    except Refused as error:
        code, answer["reason"] = REFUSED, str(error)
    except Failed as error:
        code, answer["reason"] = FAILED, str(error)
    except Exception as error:
        code, answer["reason"] = FAILED, f"{type(error).__name__}: {error}"
    line = json.dumps({key: value[:800] for key, value in answer.items()})
    print(line, flush=True)
    with open(os.environ.get("MEDEVAC_MESSAGE", "/dev/termination-log"), "w", encoding="ascii") as message:
        message.write(line)
    return code


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # without waiting for children that hang in the driver
