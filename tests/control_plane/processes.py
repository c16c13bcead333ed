"""Starts and stops the control plane: etcd, API server, controller manager, scheduler, and KWOK for the kubelets.

As a module: `with ControlPlane(folder) as plane: plane.kubeconfig`. By hand: `python -m tests.control_plane.processes`
starts one, prints its KUBECONFIG and stops it at Ctrl-C.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.control_plane.build import HERE, build
from worker.children import free_port

CONTROLLERS = (
    "disruption-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
)
CLIENTS = ("kube-controller-manager", "kube-scheduler", "kwok")
START_S = 400.0
ADMIN = "admin"
PR_SET_PDEATHSIG = 1
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)
"""Of Linux. Elsewhere only a test run that ends in order stops what it has started."""


class ControlPlane:
    """On free loopback ports; everything that it writes lies in `folder`. The admin's token is `admin`."""

    def __init__(self, folder: Path, *, audit: bool = False, lease_s: int = 40) -> None:
        """`lease_s`: so long a kubelet's word holds (seconds); longer for fleets on a busy machine."""
        self.folder = folder
        self.audit = audit
        self.lease_s = lease_s
        self.kubeconfig = folder / "kubeconfig"
        self.server = ""
        self._kubelets = ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}

    @property
    def certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        programs = {name: str(path) for name, path in build().items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_keys()
        clients, peers, api, kubelets = _free_ports(4)
        etcd = f"http://127.0.0.1:{clients}"
        self.server = f"https://127.0.0.1:{api}"
        (self.folder / "tokens.csv").write_text(f"{ADMIN},{ADMIN},{ADMIN},system:masters\n")
        write_kubeconfig(self.kubeconfig, ADMIN, self.server, self.certificate)
        self._run("etcd", [
            programs["etcd"], f"--data-dir={self.folder / 'etcd'}", "--name=one", "--log-level=warn",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}", f"--initial-cluster=one=http://127.0.0.1:{peers}",
        ])  # fmt: skip
        self._wait("etcd", lambda: b'"true"' in self._get(f"{etcd}/health"))
        self._run("kube-apiserver", [
            programs["kube-apiserver"], f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={api}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16", f"--cert-dir={self.folder}",
            f"--tls-cert-file={self.certificate}", f"--tls-private-key-file={self.folder / 'server.key'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}", "--anonymous-auth=false", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'accounts.key'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            # It would wait for a controller that issues tokens, which nothing here needs.
            "--disable-admission-plugins=ServiceAccount", "--profiling=false", "--allow-privileged=true",
            *self._audited(),
        ])  # fmt: skip
        self._wait("kube-apiserver", self._ready)
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0", "--profiling=false"]
        fast = ["--kube-api-qps=500", "--kube-api-burst=1000"]
        self._run("kube-controller-manager", [
            programs["kube-controller-manager"], *common, *fast, f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials=false", f"--node-monitor-grace-period={self.lease_s + 10}s",
        ])  # fmt: skip
        self._run("kube-scheduler", [programs["kube-scheduler"], *common, *fast])
        self._run("kwok", [
            programs["kwok"], f"--kubeconfig={self.kubeconfig}", f"--config={HERE / 'stages.yaml'}",
            "--manage-all-nodes=true", "--node-ip=127.0.0.1", "--cidr=10.0.0.1/16",
            f"--server-address=127.0.0.1:{kubelets}", f"--node-port={kubelets}",
            f"--node-lease-duration-seconds={self.lease_s}",
        ])  # fmt: skip
        self._kubelets = f"http://127.0.0.1:{kubelets}"
        self._wait_for_clients()

    def _audited(self) -> list[str]:
        if not self.audit:
            return []
        policy = self.folder / "audit.yaml"
        policy.write_text(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
        )
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _make_keys(self) -> None:
        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder)

        openssl("req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=127.0.0.1",
                "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")  # fmt: skip
        openssl("genrsa", "-out", "accounts.key", "2048")

    # -- processes ---------------------------------------------------------------------------------------------

    def _run(self, name: str, command: list[str]) -> None:
        self._commands[name] = command
        with (self.folder / f"{name}.log").open("ab") as log:
            # A child dies with the thread that started it, and any but the main one ends before the tests do.
            in_main = threading.current_thread() is threading.main_thread()
            # In a session of its own: a Ctrl-C in the terminal must not reach it before the tests have ended.
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                preexec_fn=partial(_die_with, os.getpid()) if in_main else None,
            )  # fmt: skip

    def restart(self, name: str) -> None:
        """Starts a stopped program as it was. After the API server also its clients, which would come back to it only
        after waits of up to a minute; ready for work when this returns.
        """
        self._run(name, self._commands[name])
        if name == "kube-apiserver":
            self._wait(name, self._ready)
            for client in CLIENTS:
                self.halt(client)
                self._run(client, self._commands[client])
        self._wait_for_clients()

    def _wait_for_clients(self) -> None:
        self._wait("kwok", lambda: bool(self._get(f"{self._kubelets}/healthz")))
        self._wait("kube-controller-manager", self._controllers_work)

    def halt(self, name: str) -> None:
        """Ends one program at once, without a word to its clients."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._running.values()):
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not ready():
            ended = self._running[name].poll()
            if ended is not None or time.monotonic() > deadline:
                said = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                how = f"ended with status {ended}" if ended is not None else f"is not ready after {START_S:g} s"
                raise RuntimeError(f"{name} {how}; the end of its log:\n{said}")
            time.sleep(0.1)

    # -- readiness ---------------------------------------------------------------------------------------------

    def _open(self, url: str, method: str = "GET", body: dict[str, Any] | None = None) -> bytes:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.certificate.exists():
            context = ssl.create_default_context(cafile=str(self.certificate))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        request = urllib.request.Request(url, method=method, data=json.dumps(body).encode() if body else None)  # noqa: S310
        request.add_header("Authorization", f"Bearer {ADMIN}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.build_opener(*handlers).open(request, timeout=30) as answer:
            return bytes(answer.read())

    def _get(self, url: str) -> bytes:
        """Empty while nothing useful answers."""
        try:
            return self._open(url)
        except OSError:
            return b""

    def _ready(self) -> bool:
        # The namespace is made only after /readyz says yes.
        return self._get(f"{self.server}/readyz") == b"ok" and bool(
            self._get(f"{self.server}/api/v1/namespaces/default")
        )

    def _controllers_work(self) -> bool:
        """A disruption budget has been looked at."""
        budgets = f"{self.server}/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        probe = {
            "metadata": {"name": "probe"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"probe": "1"}}},
        }
        try:
            found = self._get(f"{budgets}/probe")
            if not found:
                self._open(budgets, "POST", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **probe})
                return False
            if not json.loads(found).get("status", {}).get("observedGeneration"):
                return False
            self._open(f"{budgets}/probe", "DELETE")
        except OSError:  # no answer in time: it is asked again
            return False
        return True


def _die_with(parent: int) -> None:
    """In the child: it ends when the thread that started it does, so also where the tests are ended from outside and
    clean nothing up.
    """
    if PRCTL is None:
        return
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended in between
        os._exit(1)


def write_kubeconfig(path: Path, token: str, server: str, certificate: Path) -> Path:
    secured = {} if server.startswith("http://") else {"certificate-authority": str(certificate)}
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, **secured}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }))  # fmt: skip
    path.chmod(0o600)
    return path


def _free_ports(count: int) -> list[int]:
    """None of those that outgoing connections take, or a program that is started again might find its own taken."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


def main() -> None:
    stopped = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stopped.set())
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder, ControlPlane(Path(folder)) as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
