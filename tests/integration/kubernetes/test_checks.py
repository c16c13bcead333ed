"""Checks as Jobs on a real API server, under the account that ships; each test plays the node's kubelet."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities import signatures as sig
from activities.checks.kubernetes import KubernetesChecks, make
from activities.kubernetes import nodes
from activities.kubernetes.nodes import metadata
from activities.kubernetes.options import Options
from activities.ports import CheckResult, NotSent, Unclear, Unreadable
from activities.registry import ConfigurationError, Registry
from activities.verification import VerificationActivities
from medevac.faults.classes import Covers
from medevac.fleet.node import Node
from medevac.incident import Outcome, StepKey
from tests.contracts.checks import DEEP, ChecksContract
from tests.contracts.rigs import ChecksRig, Trouble
from tests.control_plane.processes import write_kubeconfig
from tests.integration.kubernetes.conftest import Connect, Plane
from tests.integration.kubernetes.house import NoMachines
from tests.integration.kubernetes.kubelet import Kubelet, dies, reboot
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until
from tests.unit.activities.house import run
from worker.parts import LogChat

NAMESPACE = "medevac-checks"
ASKED = (Covers.BUS, Covers.MEMORY)
TYPE = {"node.kubernetes.io/instance-type": "p5.48xlarge"}


class Desk:
    """One node, its checks, and the kubelet."""

    def __init__(self, site: Site, checks: KubernetesChecks) -> None:
        self.site = site
        self.checks = checks
        self.kubelet = Kubelet(site, NAMESPACE)
        self.name = site.add_node(labels=TYPE)
        self.incident = f"inc-{secrets.token_hex(4)}"

    @property
    def node(self) -> Node:
        return nodes.read(self.site.node(self.name), "real", Options())

    def key(self, n: int = 1) -> StepKey:
        return StepKey(incident=self.incident, step="verify", n=n)

    def run(self, n: int = 1, covers: tuple[Covers, ...] = ASKED) -> CheckResult | None:
        return self.checks.run(self.node, covers, self.key(n))

    def result(self, n: int = 1) -> CheckResult:
        found = self.run(n)
        assert found is not None
        return found

    def begun(self) -> dict[str, Any]:
        """Asked for; its pod is bound and waits for the kubelet."""
        assert self.run() is None
        return self.kubelet.pod()

    def answer(self, verdict: str = "passed", **changes: Any) -> dict[str, Any]:
        boot = self.node.machine.boot_id
        given = {"verdict": verdict, "reason": "", "covers": ["bus", "memory"], "boot_id": [boot, boot], "seconds": 9.5}
        return {**given, **changes}


Open = Callable[..., KubernetesChecks]


@pytest.fixture
def opened(plane: Plane, proxy: Proxy, site: Site, tmp_path: Path) -> Iterator[Open]:
    made: list[KubernetesChecks] = []

    def opened(account: str = "medevac-evict", **options: Any) -> KubernetesChecks:
        path = write_kubeconfig(tmp_path / f"checks-{len(made)}", site.token(account), proxy.url, plane.certificate)
        made.append(make("gpus", {"kubeconfig": str(path), "image": "none", **options}))
        return made[-1]

    yield opened
    for checks in made:
        checks.close()


@pytest.fixture
def desk(site: Site, opened: Open) -> Iterator[Desk]:
    desk = Desk(site, opened(services=["kubelet"]))
    yield desk
    desk.kubelet.close()


# -- what it asks for --------------------------------------------------------------------------------------------------


def test_its_pod_goes_to_the_one_node_through_our_mark_and_holds_little(desk: Desk) -> None:
    desk.site.cordon(desk.name, "medevac")
    pod = desk.begun()
    spec = pod["spec"]
    assert spec["nodeName"] == desk.name
    keys = {one["key"] for one in spec["tolerations"] if one["effect"] == "NoSchedule"}
    assert keys == {"medevac.dev/unhealthy", "node.kubernetes.io/unschedulable"}
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    rights = container["securityContext"]
    assert not rights.get("privileged")
    assert rights["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG"]}
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == ["/run/systemd/system", "/run/systemd/private"]
    (job,) = desk.kubelet.jobs()
    assert job["spec"]["backoffLimit"] == 0


def test_the_taints_of_others_keep_it_away(desk: Desk) -> None:
    theirs = {"key": "example.com/broken", "value": "", "effect": "NoSchedule"}
    desk.site.patch(desk.site.node_path(desk.name), {"spec": {"taints": [theirs]}})
    assert desk.run() is None
    (job,) = desk.kubelet.jobs()

    def unschedulable() -> bool:
        desk.run()
        return "untolerated taint" in desk.checks._made[metadata(job)["name"]]

    until("the scheduler has said no", unschedulable)
    desk.kubelet.time_is_over(job)
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)
    assert "never started" in result.reason
    assert "untolerated taint" in result.reason


def test_it_covers_what_its_program_can_prove_on_this_node(site: Site, opened: Open) -> None:
    known, unknown = site.add_node(labels=TYPE), site.add_node()
    checks, bare = opened(services=["kubelet"]), opened()

    def covers(one: KubernetesChecks, name: str) -> set[Covers]:
        return set(one.covers(nodes.read(site.node(name), "real", Options())))

    assert covers(checks, known) == {Covers.BUS, Covers.MEMORY, Covers.SERVICE, Covers.MAINTENANCE}
    assert covers(checks, unknown) == {Covers.SERVICE, Covers.MAINTENANCE}, "nobody knows how many GPUs it must have"
    assert covers(bare, known) == {Covers.BUS, Covers.MEMORY, Covers.MAINTENANCE}
    own = opened(command=["/check"], covers=["link"])
    assert covers(own, unknown) == {Covers.LINK}
    with pytest.raises(ConfigurationError, match="only you know"):
        opened(command=["/check"])
    with pytest.raises(ConfigurationError, match="image"):
        opened(image="")


# -- how it ends -------------------------------------------------------------------------------------------------------


def test_a_pass_is_newer_than_what_was_before_and_of_this_boot(desk: Desk) -> None:
    before = datetime.now(UTC)
    pod = desk.begun()
    desk.kubelet.starts(pod)
    assert desk.run() is None
    desk.kubelet.ends(pod, desk.answer())
    result = desk.result()
    assert result.passed, result
    assert set(result.covers) == set(ASKED)
    assert before <= result.started_at <= datetime.now(UTC)
    assert result.boot_id == desk.node.machine.boot_id
    assert desk.result() == result


def test_what_the_program_did_not_look_at_is_not_covered(desk: Desk) -> None:
    desk.kubelet.ends(desk.begun(), desk.answer(covers=["bus"]))
    assert desk.result().covers == (Covers.BUS,)


def test_what_the_program_says_beyond_what_it_can_is_not_believed(desk: Desk) -> None:
    assert desk.run(covers=(Covers.THERMAL, Covers.BUS)) is None
    desk.kubelet.ends(desk.kubelet.pod(), desk.answer(covers=["thermal", "bus"]))
    result = desk.run(covers=(Covers.THERMAL, Covers.BUS))
    assert result is not None
    assert result.covers == (Covers.BUS,)


def test_a_failure_is_a_verdict_with_its_reason(desk: Desk) -> None:
    desk.kubelet.ends(desk.begun(), desk.answer("failed", reason="7 GPUs, the SKU has 8", covers=[]), 1)
    result = desk.result()
    assert (result.passed, result.flake) == (False, False)
    assert "7 GPUs" in result.reason
    assert set(result.covers) == set(ASKED)


def test_cuda_that_does_not_begin_is_no_verdict(desk: Desk) -> None:
    desk.kubelet.ends(desk.begun(), desk.answer("none", reason="write-read: CUDA can't be initialised"), 75)
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)
    assert "CUDA" in result.reason


def test_an_image_that_does_not_come_is_no_verdict(desk: Desk) -> None:
    pod = desk.begun()
    desk.kubelet.waits(pod, "ImagePullBackOff", 'Back-off pulling image "none"')
    assert desk.run() is None, "it may still come"
    desk.kubelet.time_is_over(desk.kubelet.jobs()[0])
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)
    assert "ImagePullBackOff" in result.reason


def test_a_driver_that_lets_no_container_start_is_a_verdict(desk: Desk) -> None:
    pod = desk.begun()
    said = "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"
    desk.kubelet.waits(pod, "RunContainerError", said)
    assert desk.run() is None
    desk.kubelet.time_is_over(desk.kubelet.jobs()[0])
    result = desk.result()
    assert (result.passed, result.flake) == (False, False)
    assert "version mismatch" in result.reason


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu", "Evicted"])
def test_a_pod_that_the_kubelet_does_not_let_in_is_no_verdict(desk: Desk, reason: str) -> None:
    desk.kubelet.fails(desk.begun(), reason, started=False)
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)
    assert reason in result.reason


def test_a_check_that_hangs_is_a_verdict(desk: Desk) -> None:
    pod = desk.begun()
    desk.kubelet.starts(pod)
    desk.kubelet.fails(pod, "DeadlineExceeded", started=True)
    result = desk.result()
    assert (result.passed, result.flake) == (False, False)
    assert "did not end in its time" in result.reason


def test_a_node_that_dies_in_mid_check_is_a_verdict(desk: Desk) -> None:
    pod = desk.begun()
    desk.kubelet.starts(pod)
    dies(desk.site, desk.name)
    # Nobody is left there to end the pod: it stays as it last was.
    hold = {"metadata": {"finalizers": [*metadata(pod).get("finalizers", ()), "test.medevac.dev/hold"]}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata(pod)['name']}"
    desk.site.patch(path, hold)
    assert desk.run() is None
    desk.kubelet.time_is_over(desk.kubelet.jobs()[0])
    result = desk.result()
    desk.site.patch(path, {"metadata": {"finalizers": None}})
    assert (result.passed, result.flake) == (False, False)
    assert "did not end in its time" in result.reason


def test_a_boot_in_mid_check_proves_nothing(desk: Desk) -> None:
    pod = desk.begun()
    desk.kubelet.starts(pod)
    was = desk.node.machine.boot_id
    desk.kubelet.ends(pod, desk.answer(boot_id=[was, "another"]))
    assert (desk.result().passed, desk.result().flake) == (False, True)
    reboot(desk.site, desk.name, "another")
    result = desk.result()
    assert (result.passed, result.flake, result.boot_id) == (False, True, was)


def test_another_machine_under_the_name_proves_nothing(desk: Desk) -> None:
    pod, node = desk.begun(), desk.node
    desk.kubelet.ends(pod, desk.answer())
    other = node.model_copy(update={"uid": "another"})
    result = desk.checks.run(other, ASKED, desk.key())
    assert result is not None
    assert (result.passed, result.flake) == (False, True)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", 0),
        ("all good!", 0),
        ('{"verdict": "passed"}', 0),
        ("[" * 3_000, 0),
        ("x" * 5_000, 0),
        ('{"verdict": "passed", "boot_id": ["a", "a"], "covers": ["everything"]}', 0),
        ('{"verdict": "passed", "boot_id": ["a", "a"], "extra": 1}', 0),
    ],
)
def test_an_answer_that_is_none_is_no_verdict(desk: Desk, message: str, code: int) -> None:
    desk.kubelet.ends(desk.begun(), message, code)
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)


def test_an_answer_larger_than_a_kubelet_keeps_is_no_verdict(desk: Desk) -> None:
    desk.kubelet.ends(desk.begun(), desk.answer(items={"big": "x" * 5_000}))
    assert desk.result().flake


@pytest.mark.parametrize(("verdict", "code"), [("passed", 1), ("failed", 0), ("none", 0)])
def test_a_verdict_that_the_exit_code_denies_is_none(desk: Desk, verdict: str, code: int) -> None:
    desk.kubelet.ends(desk.begun(), desk.answer(verdict), code)
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)


# -- once --------------------------------------------------------------------------------------------------------------


def test_a_job_that_somebody_removed_is_no_verdict_and_no_second_run(desk: Desk) -> None:
    desk.begun()
    desk.kubelet.remove(desk.kubelet.jobs()[0])
    result = desk.result()
    assert (result.passed, result.flake) == (False, True)
    assert "removed by somebody" in result.reason
    assert desk.kubelet.jobs() == []


def test_another_worker_reads_the_one_that_runs(desk: Desk, opened: Open) -> None:
    pod = desk.begun()
    other = opened()
    assert other.run(desk.node, ASKED, desk.key()) is None
    desk.kubelet.ends(pod, desk.answer())
    result = other.run(desk.node, ASKED, desk.key())
    assert result is not None
    assert result.passed
    assert len(desk.kubelet.jobs()) == 1


def test_a_job_of_its_name_that_is_not_ours_is_not_believed(desk: Desk) -> None:
    assert desk.run() is None
    (job,) = desk.kubelet.jobs()
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{metadata(job)['name']}"
    desk.site.patch(path, {"metadata": {"annotations": {"medevac.dev/key": "inc-9/verify/1"}}})
    try:
        with pytest.raises(Unreadable, match="is not the one of"):
            desk.run()
    finally:
        desk.kubelet.remove(job)


def test_no_answer_to_the_creation_is_no_second_job(desk: Desk, proxy: Proxy) -> None:
    proxy.script("POST", "/jobs", Trouble.TIMEOUT_AFTER)
    with pytest.raises(Unclear):
        desk.run()
    assert desk.run() is None
    assert len(desk.kubelet.jobs()) == 1


def test_an_api_server_that_is_away_decides_nothing(desk: Desk, proxy: Proxy) -> None:
    pod = desk.begun()
    proxy.script("GET", "/", Trouble.TIMEOUT_BEFORE, times=2)
    for _ in range(2):
        with pytest.raises(Unreadable):
            desk.run()
    desk.kubelet.ends(pod, desk.answer())
    assert desk.result().passed


# -- as a step ---------------------------------------------------------------------------------------------------------


class Verifying:
    """The verify step in a thread of its own, while the test plays the kubelet."""

    def __init__(self, desk: Desk, tmp_path: Path, connect: Connect) -> None:
        registry = Registry(
            clusters=[connect()], providers=[NoMachines()], chat=LogChat(), checks={"real": desk.checks}
        )
        self.request = sig.VerifyRequest(
            key=desk.key(), cluster="real", node=desk.name, covers=ASKED, not_before=datetime.now(UTC),
            boot_id=desk.node.machine.boot_id, deadline_s=240,
        )  # fmt: skip
        self.ended: list[sig.VerifyResult] = []
        activities = VerificationActivities(registry)
        self.thread = threading.Thread(
            target=lambda: self.ended.append(run(activities.verify, self.request, whole_s=900))
        )
        self.thread.start()

    def result(self) -> sig.VerifyResult:
        self.thread.join(500)
        (ended,) = self.ended
        return ended


def test_a_flake_is_asked_again_and_a_pass_then_proves_it(desk: Desk, tmp_path: Path, connect: Connect) -> None:
    verifying = Verifying(desk, tmp_path, connect)
    desk.kubelet.ends(desk.kubelet.pod(str(desk.key())), desk.answer("none", reason="CUDA"), 75)
    again = StepKey(incident=desk.incident, step="verify-run2")
    desk.kubelet.ends(desk.kubelet.pod(str(again)), desk.answer())
    assert verifying.result().step.outcome is Outcome.DONE
    assert len(desk.kubelet.jobs()) == 2


def test_a_failure_ends_the_step_with_its_reason(desk: Desk, tmp_path: Path, connect: Connect) -> None:
    verifying = Verifying(desk, tmp_path, connect)
    desk.kubelet.ends(desk.kubelet.pod(), desk.answer("failed", reason="7 GPUs, the SKU has 8"), 1)
    result = verifying.result()
    assert result.step.outcome is Outcome.FAILED
    assert "7 GPUs" in result.step.reason
    assert len(desk.kubelet.jobs()) == 1


def test_a_boot_under_the_check_refuses_the_step(desk: Desk, tmp_path: Path, connect: Connect) -> None:
    verifying = Verifying(desk, tmp_path, connect)
    desk.kubelet.starts(desk.kubelet.pod())
    reboot(desk.site, desk.name, "another")
    assert verifying.result().step.outcome is Outcome.REFUSED


# -- rights ------------------------------------------------------------------------------------------------------------


def test_the_shipped_rights_are_enough_and_what_is_missing_is_named(site: Site, opened: Open) -> None:
    assert opened().missing_rights() == []
    assert opened("medevac-mark").missing_rights() == []
    lacks = opened("medevac-observe").missing_rights()
    assert lacks == ["create jobs.batch in medevac-checks"]


def test_a_namespace_that_is_not_there_says_what_to_apply(site: Site, opened: Open, plane: Plane) -> None:
    checks = make("gpus", {"kubeconfig": str(plane.kubeconfig), "image": "none", "namespace": "nowhere"})
    node = nodes.read(site.node(site.add_node(labels=TYPE)), "real", Options())
    with pytest.raises(NotSent, match="apply deploy/kubernetes"):
        checks.run(node, ASKED, StepKey(incident="inc-1", step="verify"))
    checks.close()


# -- the contract ------------------------------------------------------------------------------------------------------


class KubernetesChecksRig:
    """Its kubelet runs a program that sees what the test has broken."""

    def __init__(self, site: Site, checks: KubernetesChecks) -> None:
        self.desk = Desk(site, checks)
        self.checks = checks
        self.node = self.desk.node
        self.broken, self.under_load, self.flakes = False, False, False

    def pass_time(self) -> None:
        for job in self.desk.kubelet.jobs():
            if (job.get("status") or {}).get("succeeded") or (job.get("status") or {}).get("failed"):
                continue
            key = metadata(job)["annotations"]["medevac.dev/key"]
            pod = self.desk.kubelet.pod(key)
            env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
            self._ends(pod, json.loads(env["MEDEVAC_CHECK"])["covers"])

            def over(path: str = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{metadata(job)['name']}") -> bool:
                status = (self.desk.site.get(path) or {}).get("status") or {}
                return bool(status.get("succeeded") or status.get("failed"))

            until("the Job has ended", over)

    def _ends(self, pod: dict[str, Any], wanted: list[str]) -> None:
        flake, self.flakes = self.flakes, False
        seen = self.broken and ("thermal" in wanted if self.under_load else "memory" in wanted)
        verdict, code = ("none", 75) if flake else ("failed", 1) if seen else ("passed", 0)
        boot = self.node.machine.boot_id
        said = self.desk.answer(verdict, reason="Xid 48" if seen else "", covers=wanted, boot_id=[boot, boot])
        self.desk.kubelet.ends(pod, said, code)

    def runs(self) -> int:
        return len(self.desk.kubelet.jobs())

    def break_node(self, *, under_load: bool = False) -> None:
        self.broken, self.under_load = True, under_load

    def reboot(self) -> Node:
        reboot(self.desk.site, self.desk.name, "another")
        # The next question comes with the node as it is.
        self.node = self.desk.node
        return self.node

    def flake(self) -> None:
        self.flakes = True


class TestKubernetesChecks(ChecksContract):
    @pytest.fixture
    def rig(self, site: Site, opened: Open) -> Iterator[ChecksRig]:
        rig = KubernetesChecksRig(site, opened(command=["/check"], covers=list(DEEP)))
        yield rig
        rig.desk.kubelet.close()
