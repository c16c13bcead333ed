"""What runs in the privileged pod: the real program, on a made-up node with stand-ins for the node's own programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

ACT = files("activities.kubernetes").joinpath("programs", "act.py").read_text(encoding="utf-8")
BOOT = "5f0b6a56-1c1d-4b7e-9a43-2f8b9c1d7e11"
DONE, FAILED, REFUSED = 0, 1, 3
SYSTEMCTL = """
echo "systemctl $*" >> "$CALLS"
case "$1" in
  show) echo "LoadState=$(cat "$STATE/load-$2" 2>/dev/null || echo loaded)"
        echo "InvocationID=$(cat "$STATE/id-$2" 2>/dev/null || echo 1)";;
  restart|start) [ -e "$STATE/stays-$2" ] || date +%s%N > "$STATE/id-$2"; rm -f "$STATE/down-$2";;
  stop) touch "$STATE/down-$2";;
  is-active) [ ! -e "$STATE/down-$2" ];;
  reboot) [ ! -e "$STATE/no-reboot" ];;
esac
"""
SMI = """
echo "nvidia-smi $*" >> "$CALLS"
case "$*" in
  "-q -x") cat "$STATE/smi.xml";;
  nvlink*) cat "$STATE/nvlink" 2>/dev/null;;
  --gpu-reset*) [ -e "$STATE/no-reset" ] && { echo "GPU is in use by another client"; exit 2; }
                [ -e "$STATE/loses" ] && cp "$STATE/loses" "$STATE/smi.xml"; echo "All done.";;
esac
"""


def smi(*gpus: tuple[int, str]) -> str:
    return "<nvidia_smi_log>" + "".join(
        f'<gpu id="00000000:{n + 0x18:02X}:00.0"><uuid>GPU-{n}</uuid><minor_number>{n}</minor_number>'
        f"<mig_mode><current_mig>Disabled</current_mig></mig_mode>"
        f"<gpu_recovery_action>{wants}</gpu_recovery_action></gpu>"
        for n, wants in gpus
    ) + "</nvidia_smi_log>"  # fmt: skip


@dataclass
class OnNode:
    root: Path

    def __post_init__(self) -> None:
        for folder in ("bin", "state", "dev", "run", "proc/sys/kernel/random"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
        self.file("dev/kmsg", "")
        self.file("proc/sysrq-trigger", "")
        self.file("calls", "")
        self.file("state/smi.xml", smi((0, "None"), (1, "None")))
        self.program("systemctl", SYSTEMCTL)
        self.program("nvidia-smi", SMI)
        self.file("state/kernel-log")

    def file(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    def program(self, name: str, body: str) -> None:
        self.file(f"bin/{name}", f"#!/bin/sh\n{body}\n").chmod(0o755)

    def client(self, pid: int, name: str, *devices: str) -> None:
        """A process of the node that has these open."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        for n, device in enumerate(devices):
            (folder / "fd" / str(n)).symlink_to(device)

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    @property
    def resets(self) -> list[str]:
        return [call for call in self.calls if "--gpu-reset" in call]

    @property
    def kmsg(self) -> str:
        return (self.root / "dev/kmsg").read_text()

    def begin(self, verb: str, **order: Any) -> subprocess.Popen[str]:
        given = {
            "verb": verb, "token": "inc-1/act/1", "name": "job-1", "boot_id": BOOT, "not_after": time.time() + 60,
            "units": ["nvidia-dcgm"], "stop": ["nvidia-dcgm", "nvidia-persistenced"], "driver_root": "/",
            "linked": "whole", "wait_s": 0.0, "reset_s": 20, "hang_s": 0.2, "sync_s": 0.05, **order,
        }  # fmt: skip
        env = {
            "PATH": f"{self.root / 'bin'}:{os.defpath}", "STATE": str(self.root / "state"),
            "CALLS": str(self.root / "calls"), "MEDEVAC_ROOT": str(self.root), "MEDEVAC_ORDER": json.dumps(given),
            "MEDEVAC_KERNEL_LOG": str(self.root / "state/kernel-log"),
            "MEDEVAC_MESSAGE": str(self.root / "message"),
        }  # fmt: skip
        command = [sys.executable, "-c", ACT]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def act(self, verb: str, **order: Any) -> tuple[int, str, str]:
        """Exit code, mark, reason."""
        running = self.begin(verb, **order)
        said, wrong = running.communicate(timeout=60)
        assert (self.root / "message").exists(), wrong
        answer = json.loads((self.root / "message").read_text())
        assert said.strip() == (self.root / "message").read_text()
        return running.returncode, answer["mark"], answer["reason"]


@pytest.fixture
def node(tmp_path: Path) -> OnNode:
    return OnNode(tmp_path)


# -- once, on one boot, in time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["restart_agent", "reset_gpu", "reboot"])
@pytest.mark.parametrize(
    ("order", "said"),
    [({"boot_id": "another"}, "this is boot"), ({"not_after": 1.0}, "too late"), ({"name": "seen"}, "begun before")],
)
def test_what_is_not_for_now_touches_nothing(node: OnNode, verb: str, order: dict[str, Any], said: str) -> None:
    (node.root / "run/medevac").mkdir()
    (node.root / "run/medevac/seen").touch()
    code, mark, reason = node.act(verb, **order)
    assert (code, mark) == (REFUSED, "")
    assert said in reason
    assert node.calls == []
    assert node.kmsg == ""


def test_a_pod_that_is_started_twice_acts_once(node: OnNode) -> None:
    assert node.act("restart_agent")[0] == DONE
    assert node.act("restart_agent")[0] == REFUSED
    assert node.calls.count("systemctl restart nvidia-dcgm") == 1


# -- agents ------------------------------------------------------------------------------------------------------------


def test_an_agents_restart_is_proved_by_systemds_own_word(node: OnNode) -> None:
    code, mark, _ = node.act("restart_agent")
    assert code == DONE
    assert mark == f"nvidia-dcgm={(node.root / 'state/id-nvidia-dcgm').read_text().strip()}"


def test_an_agent_that_is_not_there_is_refused(node: OnNode) -> None:
    node.file("state/load-nvidia-dcgm", "not-found")
    assert node.act("restart_agent")[0] == REFUSED
    assert not any("restart" in call for call in node.calls)


def test_an_agent_that_was_not_restarted_is_no_proof(node: OnNode) -> None:
    node.file("state/stays-nvidia-dcgm")
    code, mark, reason = node.act("restart_agent")
    assert (code, mark) == (FAILED, "")
    assert "still the old process" in reason


# -- GPUs --------------------------------------------------------------------------------------------------------------


def test_only_the_gpu_that_needs_it_is_reset_with_its_users_stopped(node: OnNode) -> None:
    node.file("state/smi.xml", smi((0, "None"), (1, "GPU Reset Required")))
    node.file("state/down-nvidia-persistenced")
    code, mark, reason = node.act("reset_gpu")
    assert code == DONE, reason
    assert mark.startswith("00000000:19:00.0 at ")
    assert node.resets == ["nvidia-smi --gpu-reset -i 00000000:19:00.0"]
    order = [call for call in node.calls if call.split()[1] in ("stop", "start", "--gpu-reset")]
    assert [call.split()[1] for call in order] == ["stop", "--gpu-reset", "start"]
    assert not any("start nvidia-persistenced" in call for call in node.calls), "it was not running before"
    assert "medevac: gpu reset inc-1/act/1" in node.kmsg


def test_the_kernels_xid_says_which_gpu_and_one_before_the_last_reset_does_not(node: OnNode) -> None:
    xid = "<3>[ 9.{n}] NVRM: Xid (PCI:0000:{bus}:00): 119, pid=1, name=x, Timeout"
    lines = [xid.format(n=1, bus="18"), "<12>[ 9.2] medevac: gpu reset inc-0/act/1", xid.format(n=3, bus="19")]
    forged = xid.format(n=4, bus="18").replace("<3>", "<12>")
    node.file("state/kernel-log", "\n".join([*lines, forged]))
    assert node.act("reset_gpu")[0] == DONE
    assert node.resets == ["nvidia-smi --gpu-reset -i 00000000:19:00.0"]


def test_where_nobody_says_which_all_are_reset(node: OnNode) -> None:
    assert node.act("reset_gpu")[0] == DONE
    assert node.resets == ["nvidia-smi --gpu-reset -i 00000000:18:00.0,00000000:19:00.0"]


def test_a_gpu_that_somebody_uses_is_not_reset_and_who_is_named(node: OnNode) -> None:
    node.client(77, "python", "/dev/nvidia1")
    code, _, reason = node.act("reset_gpu")
    assert code == REFUSED
    assert "python (77)" in reason
    assert node.resets == []
    assert "systemctl start nvidia-dcgm" in node.calls, "what was stopped runs again"


def test_a_user_of_another_gpu_is_no_hindrance(node: OnNode) -> None:
    node.client(77, "python", "/dev/nvidia0", "/dev/nvidiactl")
    node.file("state/smi.xml", smi((0, "None"), (1, "Drain and Reset")))
    assert node.act("reset_gpu")[0] == DONE


LINKED = "GPU 0: NVIDIA (UUID: GPU-0)\n\t Link 0: 25.781 GB/s\nGPU 1: NVIDIA (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n"


def test_linked_gpus_are_reset_together_or_refused(node: OnNode) -> None:
    node.file("state/smi.xml", smi((0, "None"), (1, "GPU Reset Required"), (2, "None")))
    node.file("state/nvlink", LINKED + "GPU 2: NVIDIA (UUID: GPU-2)\n\t Link 0: <inactive>\n")
    code, _, reason = node.act("reset_gpu", linked="refuse")
    assert (code, "2 GPUs are linked" in reason) == (REFUSED, True)
    assert node.resets == []
    assert node.act("reset_gpu", name="job-2")[0] == DONE
    assert node.resets == ["nvidia-smi --gpu-reset -i 00000000:18:00.0,00000000:19:00.0"]


def test_behind_switches_all_are_reset_with_them_and_nobody_may_hold_any(node: OnNode) -> None:
    node.file("dev/nvidia-nvswitch0")
    node.file("state/smi.xml", smi((0, "None"), (1, "GPU Reset Required")))
    node.client(5, "nv-fabricmanager", "/dev/nvidia-nvswitchctl")
    assert node.act("reset_gpu")[0] == REFUSED
    (node.root / "proc/5/fd/0").unlink()
    assert node.act("reset_gpu", name="job-2")[0] == DONE
    assert node.resets == ["nvidia-smi --gpu-reset"]


def test_a_reset_that_the_driver_refuses_or_that_loses_a_gpu_is_no_proof(node: OnNode) -> None:
    node.file("state/no-reset")
    code, mark, reason = node.act("reset_gpu")
    assert (code, mark) == (FAILED, "")
    assert "in use by another client" in reason
    assert "medevac: gpu reset inc-1" not in node.kmsg, "the check must not count from it"
    (node.root / "state/no-reset").unlink()
    node.file("state/loses", smi((0, "None")))
    code, mark, reason = node.act("reset_gpu", name="job-2")
    assert (code, mark) == (FAILED, "")
    assert "GPU-1 is gone" in reason


def test_partitioned_gpus_are_refused(node: OnNode) -> None:
    node.file("state/smi.xml", smi((0, "None")).replace("Disabled", "Enabled"))
    assert node.act("reset_gpu")[0] == REFUSED


# -- reboot ------------------------------------------------------------------------------------------------------------


def test_where_the_first_way_hangs_the_kernels_own_follows(node: OnNode) -> None:
    code, _, reason = node.act("reboot")
    assert code == FAILED, "this node is still up, which is the only way to get here"
    assert node.calls == ["systemctl reboot --no-block"]
    assert (node.root / "proc/sysrq-trigger").read_text() == "b"
    assert "still up" in reason
    assert "medevac: reboot inc-1/act/1" in node.kmsg


def test_where_the_first_way_is_refused_the_second_is_not_waited_for(node: OnNode) -> None:
    node.file("state/no-reboot")
    node.act("reboot", hang_s=100)
    assert (node.root / "proc/sysrq-trigger").read_text() == "b"


def test_the_shutdown_that_ends_its_pod_does_not_end_the_second_way(node: OnNode) -> None:
    running = node.begin("reboot", hang_s=2)
    while "reboot" not in (node.root / "calls").read_text():
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == FAILED
    assert (node.root / "proc/sysrq-trigger").read_text() == "b"
