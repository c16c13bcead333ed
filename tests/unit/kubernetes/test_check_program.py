"""The shipped check as it runs on a node: the real program, with stand-ins for the node's own programs and driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from activities.checks.kubernetes import CODES, Answer, _harmless
from activities.kubernetes.programs import act, check

CHECK = files("activities.kubernetes").joinpath("programs", "check.py").read_text(encoding="utf-8")
BOOT = "5f0b6a56-1c1d-4b7e-9a43-2f8b9c1d7e11"
KERNEL = (
    "<5>[    0.000000] Linux version 6.8.0-1021-aws (buildd@lcy02) #23-Ubuntu SMP\n"
    "<4>[    4.1] NVRM: loading NVIDIA UNIX\n"
)
ASKED = ["bus", "maintenance", "memory", "service"]


def gpu(n: int, **changes: str) -> str:
    said = {
        "product_name": "NVIDIA H100 80GB HBM3",
        "remapped_row_pending": "No",
        "remapped_row_failure": "No",
        "gpu_recovery_action": "None",
        **changes,
    }
    return (
        f'<gpu id="00000000:{n + 0x18:02X}:00.0"><product_name>{said["product_name"]}</product_name>'
        f"<uuid>GPU-0000000{n}-1111</uuid><serial>{1650 + n}</serial><minor_number>{n}</minor_number>"
        "<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc>"
        f"<remapped_row_pending>{said['remapped_row_pending']}</remapped_row_pending>"
        f"<remapped_row_failure>{said['remapped_row_failure']}</remapped_row_failure></remapped_rows>"
        f"<gpu_recovery_action>{said['gpu_recovery_action']}</gpu_recovery_action></gpu>"
    )


def smi(*gpus: str) -> str:
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
    return f"{head}<attached_gpus>{len(gpus)}</attached_gpus>{''.join(gpus)}</nvidia_smi_log>"


@dataclass
class OnNode:
    path: Path
    cuda: Path

    def program(self, name: str, body: str) -> None:
        file = self.path / "bin" / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def prints(self, name: str, text: str, code: int = 0) -> None:
        (self.path / f"{name}.txt").write_text(text)
        self.program(name, f'cat "{self.path}/{name}.txt"\nexit {code}')

    def logs(self, text: str) -> None:
        """The kernel's own log, as its system call gives it."""
        (self.path / "kernel-log").write_text(text)

    def check(self, *, cuda: str = "", **wanted: Any) -> Answer:
        """What it leaves, as the adapter reads it."""
        asked = {
            "covers": ASKED, "services": ["containerd", "kubelet"], "seconds": 20, "driver": True, "gpus": 2,
            "model": "NVIDIA-H100-80GB-HBM3", "harmless": _harmless(), "write_read": 2 << 20, **wanted,
        }  # fmt: skip
        message = self.path / "message"
        done = subprocess.run(
            [sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=60, check=False,
            env={
                "PATH": f"{self.path / 'bin'}:{os.defpath}", "LD_LIBRARY_PATH": str(self.cuda), "FAKE_CUDA": cuda,
                "MEDEVAC_CHECK": json.dumps(asked), "MEDEVAC_MESSAGE": str(message),
                "MEDEVAC_KERNEL_LOG": str(self.path / "kernel-log"), "MEDEVAC_BOOT_ID_FILE": str(self.path / "boot_id"),
            },
        )  # fmt: skip
        assert message.exists(), done.stderr
        assert done.stdout.strip() == message.read_text()
        answer = Answer.model_validate_json(message.read_bytes())
        assert CODES[answer.verdict] == done.returncode
        assert len(message.read_bytes()) < 4096
        return answer


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of libcuda")
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


@pytest.fixture
def node(tmp_path: Path, cuda: Path) -> OnNode:
    (tmp_path / "bin").mkdir()
    (tmp_path / "boot_id").write_text(f"{BOOT}\n")
    found = OnNode(tmp_path, cuda)
    found.prints("nvidia-smi", smi(gpu(0), gpu(1)))
    found.logs(KERNEL)
    found.prints("systemctl", "active\n")
    return found


def test_a_node_that_is_well_passes_and_says_what_that_proves(node: OnNode) -> None:
    answer = node.check()
    assert answer.verdict == "passed", answer
    assert sorted(answer.covers) == ASKED
    assert answer.boot_id == (BOOT, BOOT)
    assert set(answer.items) == {"services", "driver", "count", "rows", "recovery", "write-read", "xids"}
    assert answer.entities() == [
        ["pci:0000:18:00", "gpu-uuid:GPU-00000000-1111", "gpu-serial:1650"],
        ["pci:0000:19:00", "gpu-uuid:GPU-00000001-1111", "gpu-serial:1651"],
    ]


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ((gpu(0),), "1 GPUs, the SKU has 2"),
        ((), "0 GPUs, the SKU has 2"),
        ((gpu(0), gpu(1, product_name="NVIDIA A100-SXM4-80GB")), "model NVIDIA A100-SXM4-80GB"),
        ((gpu(0), gpu(1, product_name="ERR!")), "lost: 00000000:19:00.0"),
        ((gpu(0), gpu(1, remapped_row_pending="Yes")), "00000000:19:00.0: a row remap is pending"),
        ((gpu(0, remapped_row_failure="Yes"), gpu(1)), "00000000:18:00.0: a row remap failed"),
        ((gpu(0), gpu(1, gpu_recovery_action="Drain and Reset")), "the driver wants 00000000:19:00.0: Drain and Reset"),
    ],
)
def test_what_the_driver_shows_fails_it(node: OnNode, gpus: tuple[str, ...], said: str) -> None:
    node.prints("nvidia-smi", smi(*gpus))
    answer = node.check()
    assert answer.verdict == "failed"
    assert said in answer.reason


def test_pages_that_wait_for_retirement_fail_older_gpus(node: OnNode) -> None:
    pages = "<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages></gpu>"
    rows = "<remapped_rows>N/A</remapped_rows>"
    old = '<gpu id="00000000:18:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>' + rows + pages
    node.prints("nvidia-smi", smi(old, gpu(1)))
    assert "a page retirement is pending" in node.check().reason


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Unable to determine the device handle for GPU0000:18:00.0: GPU is lost.  Reboot the system to recover\n", 15),
        ("Failed to initialize NVML: Driver/library version mismatch\n", 18),
        ("No devices were found\n", 6),
    ],
)
def test_a_driver_that_says_no_fails_it(node: OnNode, said: str, code: int) -> None:
    node.prints("nvidia-smi", said, code)
    answer = node.check()
    assert answer.verdict == "failed"
    assert f"exit {code}" in answer.reason


def test_a_driver_that_comes_up_late_is_waited_for_within_the_time(node: OnNode) -> None:
    late = node.path / "tried"
    up = f'cat "{node.path}/nvidia-smi.txt"'
    node.program("nvidia-smi", f"if [ -e {late} ]; then {up}; else touch {late}; echo 'driver not loaded'; exit 9; fi")
    assert node.check().verdict == "passed"
    node.prints("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver\n", 9)
    answer = node.check(seconds=6)
    assert (answer.verdict, "the driver is not loaded" in answer.reason) == ("failed", True)


def test_a_driver_that_gives_no_answer_fails_it_in_time(node: OnNode) -> None:
    node.program("nvidia-smi", "exec sleep 60")
    answer = node.check(seconds=2)
    assert answer.verdict == "failed"
    assert "nvidia-smi gives no answer" in answer.reason
    assert answer.seconds < 20


@pytest.mark.parametrize(
    "line",
    [
        "<3>[   99.5] NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "<3>[   99.5] NVRM: Xid (PCI:0000:18:00 GPU-I:02): 119, pid=1234, name=python, Timeout waiting for RPC",
        "<3>[   99.5] NVRM: Xid (0000:18:00): 999999, something nobody knows",
    ],
)
def test_an_xid_since_the_boot_fails_it(node: OnNode, line: str) -> None:
    node.logs(f"{KERNEL}{line}\n")
    answer = node.check()
    assert answer.verdict == "failed"
    assert "Xid" in answer.reason


@pytest.mark.parametrize(
    "line",
    [
        "<12>[   99.5] NVRM: Xid (PCI:0000:4e:00): 79, forged",
        "<4>[   99.5] audit: comm=NVRM: Xid (PCI:0000:4e:00): 79, forged",
        "<12>[   99.5] <3>[   99.5] NVRM: Xid (PCI:0000:4e:00): 79, forged",
    ],
)
def test_an_xid_that_the_kernel_did_not_write_proves_nothing(node: OnNode, line: str) -> None:
    node.logs(f"{KERNEL}{line}\n")
    assert node.check().verdict == "passed"


def test_a_kernel_line_that_quotes_our_reset_hides_nothing(node: OnNode) -> None:
    xid = "<3>[   99.5][  T812] NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    node.logs(f"{KERNEL}{xid}<6>[  100.0] audit: comm=medevac: gpu reset inc-1/act/1\n")
    assert node.check().verdict == "failed"


def test_both_programs_read_this_machines_own_log() -> None:
    try:
        found = check.kernel_log()
    except check.CouldNotLook as error:
        pytest.skip(str(error))
    assert bool(act.kernel_log()) == bool(found)


def test_xids_of_jobs_and_those_before_our_own_reset_do_not(node: OnNode) -> None:
    job = "<3>[   99.5] NVRM: Xid (PCI:0000:18:00): 31, pid=77, name=python, Ch 00000018, MMU Fault\n"
    node.logs(KERNEL + job)
    assert node.check().verdict == "passed"
    old = "<3>[   99.5] NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=x, Timeout\n"
    reset = "<12>[  200.1] medevac: gpu reset inc-1/act-reset_gpu/1\n"
    node.logs(KERNEL + old + reset)
    assert node.check().verdict == "passed"
    node.logs(KERNEL + old + reset + old)
    assert node.check().verdict == "failed"


def test_a_log_that_forgot_its_beginning_is_said_to_be_one(node: OnNode) -> None:
    node.logs("<6>[ 86400.1] eth0: link up\n")
    items = node.check().items
    assert isinstance(items["xids"], dict)
    assert items["xids"]["said"] == "none since the oldest line of the log"


def test_a_service_that_is_down_is_named(node: OnNode) -> None:
    node.program("systemctl", '[ "$2" = kubelet ] && { echo failed; exit 3; }; echo active')
    answer = node.check()
    assert answer.verdict == "failed"
    assert "kubelet is failed" in answer.reason


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("flip", "is not what was written"),
        ("ecc", "CUDA error 214"),
        ("lost", "cuInit: CUDA error 46"),
        ("unknown", "cuDeviceGetByPCIBusId: CUDA error 101"),
        ("hang", "the write-read pass hangs"),
    ],
)
def test_memory_that_does_not_keep_what_is_written_fails_it(node: OnNode, trouble: str, said: str) -> None:
    answer = node.check(cuda=trouble, seconds=3)
    assert answer.verdict == "failed", answer
    assert said in answer.reason


@pytest.mark.parametrize("trouble", ["flake", "busy"])
def test_cuda_that_cannot_begin_is_no_verdict(node: OnNode, trouble: str) -> None:
    assert node.check(cuda=trouble).verdict == "none"


def test_cuda_that_begins_at_the_second_try_passes(node: OnNode) -> None:
    assert node.check(cuda="late").verdict == "passed"


def test_one_gpu_is_enough_unless_it_is_about_memory(node: OnNode) -> None:
    for covers, gpus in ((["bus"], "1 GPU(s)"), (["bus", "memory"], "2 GPU(s)")):
        answer = node.check(covers=covers)
        assert sorted(answer.covers) == covers
        item = answer.items["write-read"]
        assert isinstance(item, dict)
        assert gpus in str(item["said"])


@pytest.mark.parametrize("missing", ["systemctl", "nvidia-smi"])
def test_what_the_image_lacks_is_no_verdict(node: OnNode, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.path / "bin" / missing).unlink()
    monkeypatch.setattr(os, "defpath", "/nowhere")
    for name in ("systemctl", "nvidia-smi"):
        if name != missing:
            text = (node.path / f"{name}.txt").read_text()
            node.program(name, f"while IFS= read -r line; do echo \"$line\"; done <<'END'\n{text}\nEND")
    answer = node.check()
    assert answer.verdict == "none"
    assert f"{missing} is not in this image" in answer.reason


def test_a_verdict_goes_before_what_could_not_be_looked_at(node: OnNode) -> None:
    node.program("systemctl", "echo 'Failed to connect to bus'; exit 1")
    assert node.check().verdict == "none"
    node.prints("nvidia-smi", smi(gpu(0)))
    assert node.check().verdict == "failed"


def test_an_answer_stays_small_whatever_is_found(node: OnNode) -> None:
    xids = "".join(f"<3>[ 9.{n}] NVRM: Xid (PCI:0000:{n:02x}:00): {1000 + n}, x\n" for n in range(200))
    node.logs(KERNEL + xids)
    node.program("systemctl", "i=0; while [ $i -lt 5000 ]; do printf x; i=$((i+1)); done; exit 3")
    assert node.check().verdict == "failed"
