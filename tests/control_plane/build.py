"""Finds the control plane's programs, or builds them once into the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medevac"
GO = (1, 26)
NEEDED_GIB = 6.0
"""Free space that a first build takes: Go's caches and the program, with room for the linker."""
FETCH_RETRIES_S = (2.0, 10.0, 30.0)
"""Waits between the attempts to download modules."""
DEFINITIONS = {
    "JobSet": ("sigs.k8s.io/jobset@v0.11.0", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "LeaderWorkerSet": (
        "sigs.k8s.io/lws@v0.7.0",
        "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    ),
    "PyTorchJob": (
        "github.com/kubeflow/training-operator@v1.8.1",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "MachineHealthCheck": (
        "sigs.k8s.io/cluster-api@v1.14.2",
        "core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",
    ),
    "NodeClaim": ("sigs.k8s.io/karpenter@v1.8.0", "pkg/apis/crds/karpenter.sh_nodeclaims.yaml"),
    "Machine": ("sigs.k8s.io/cluster-api@v1.14.2", "core/config/crd/bases/cluster.x-k8s.io_machines.yaml"),
    "MachineSet": ("sigs.k8s.io/cluster-api@v1.14.2", "core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml"),
    "NodePool": ("sigs.k8s.io/karpenter@v1.8.0", "pkg/apis/crds/karpenter.sh_nodepools.yaml"),
    "TrainJob": ("github.com/kubeflow/trainer/v2@v2.0.0", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "MPIJob": ("github.com/kubeflow/mpi-operator@v0.6.0", "manifests/base/kubeflow.org_mpijobs.yaml"),
    "Workload": ("sigs.k8s.io/kueue@v0.17.0", "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml"),
    "RayJob": ("github.com/ray-project/kuberay/ray-operator@v1.5.0", "config/crd/bases/ray.io_rayjobs.yaml"),
    "RayCluster": ("github.com/ray-project/kuberay/ray-operator@v1.5.0", "config/crd/bases/ray.io_rayclusters.yaml"),
}
"""Kind of a thing: the module that defines it, and where in it."""


class NotBuilt(RuntimeError):
    """There are no programs to start; the message says how to get them."""


def find() -> dict[str, Path]:
    """By name: of one folder that has them all (`KUBEBUILDER_ASSETS`, the cache), or from PATH.

    Never a mixture: programs of different versions don't belong together.
    """
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), str(_built())):
        if folder and all(os.access(Path(folder) / name, os.X_OK) for name in PROGRAMS):
            return {name: Path(folder) / name for name in PROGRAMS}
    on_path = {name: found for name in PROGRAMS if (found := shutil.which(name))}
    if len(on_path) == len(PROGRAMS):
        return {name: Path(found) for name, found in on_path.items()}
    raise NotBuilt(
        "there is no Kubernetes control plane on this machine; `make control-plane` builds one (needs Go), or set"
        f" KUBEBUILDER_ASSETS to a folder with {', '.join(PROGRAMS)}"
    )


def build() -> dict[str, Path]:
    """Seven minutes on two idle cores where Go's caches are cold, nothing where it is built already."""
    try:
        return find()
    except NotBuilt:
        pass
    go, folder = _go(), _built()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / PROGRAMS[0]).exists():
            print(f"Building the control plane into {folder} (5 to 15 minutes, once) ...", flush=True)
            _compile(go, folder)
    return find()


def kubectl() -> str | None:
    """The one beside the programs, as envtest ships it, else PATH's; of whatever version it is."""
    beside = find()[PROGRAMS[0]].parent / "kubectl"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("kubectl")


def _go() -> str:
    go = shutil.which("go")
    if go is not None:
        # Asked in this folder, a Go that fetches newer toolchains by itself answers with the one that go.mod wants.
        said = subprocess.run([go, "version"], cwd=HERE, capture_output=True, text=True).stdout
        version = re.search(r"go(\d+)\.(\d+)", said)
        if version is not None and (int(version[1]), int(version[2])) >= GO:
            return go
    raise NotBuilt(
        f"building the control plane needs Go {GO[0]}.{GO[1]} or newer on PATH; or set KUBEBUILDER_ASSETS to a"
        f" folder with {', '.join(PROGRAMS)}"
    )


def _compile(go: str, folder: Path) -> None:
    """All or nothing: the folder gets its name only once each of its programs has said its version."""
    free = shutil.disk_usage(folder.parent).free / 2**30
    if free < NEEDED_GIB:
        raise NotBuilt(
            f"building the control plane takes up to {NEEDED_GIB:g} GiB and {folder.parent} has {free:.1f} GiB free;"
            " make room, or set XDG_CACHE_HOME to a folder that has it"
        )
    new = folder.with_suffix(".new")
    for left in (new, folder):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir()
    _fetch([go, "list", "-deps", "."], cwd=HERE, env=_environment())
    _link(go, new / "controlplane")
    for name in PROGRAMS:
        (new / name).symlink_to("controlplane")
    wanted = dict.fromkeys(PROGRAMS, _pinned("k8s.io/kubernetes")) | {
        "etcd": _pinned("go.etcd.io/etcd/server/v3"),
        "kwok": _pinned("sigs.k8s.io/kwok"),
    }
    for name, version in wanted.items():
        said = subprocess.run([new / name, "--version"], capture_output=True, text=True, timeout=60)
        if version not in said.stdout + said.stderr:
            raise NotBuilt(f"{new / name} does not say that it is {version}, but: {said.stdout}{said.stderr}")
    new.replace(folder)


def _link(go: str, to: Path) -> None:
    kubernetes, kwok = _pinned("k8s.io/kubernetes"), _pinned("sigs.k8s.io/kwok")
    about = "k8s.io/component-base/version"
    major, minor, _ = kubernetes.split(".")
    stamps = {
        f"{about}.gitVersion": f"v{kubernetes}",
        f"{about}.gitMajor": major,
        f"{about}.gitMinor": minor,
        f"{about}.gitTreeState": "clean",
        "sigs.k8s.io/kwok/pkg/consts.Version": f"v{kwok}",
    }
    linked = "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())
    command = [go, "build", "-trimpath", f"-ldflags={linked}", "-o", str(to), "."]
    subprocess.run([*_politely(), *command], cwd=HERE, env=_environment(), check=True)


def _politely() -> list[str]:
    """Whatever else runs on the machine goes first."""
    wrappers = (["chrt", "--idle", "0"], ["ionice", "-c", "3"], ["nice", "-n", "19"])
    return [word for wrapper in wrappers if shutil.which(wrapper[0]) for word in wrapper]


def _environment() -> dict[str, str]:
    fixed = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    return {"GOCACHE": str(CACHE / "go-build"), "GOMODCACHE": str(CACHE / "go-mod"), **os.environ, **fixed}


def _fetch(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> str:
    """What Go printed. It keeps what it has already downloaded, so another attempt only fetches the rest."""
    for wait_s in (*FETCH_RETRIES_S, None):
        done = subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True)
        if done.returncode == 0:
            return done.stdout
        said = (done.stderr or done.stdout)[-2000:]
        if wait_s is None:
            raise NotBuilt(f"the modules could not be downloaded (`{' '.join(command)}`): {said}")
        print(f"downloading modules failed, again in {wait_s:g} s: {said}", file=sys.stderr, flush=True)
        time.sleep(wait_s)
    raise AssertionError("unreachable")


def _pinned(module: str) -> str:
    found = re.search(rf"^\t{re.escape(module)} v(\S+)$", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert found, module
    return found[1]


def _built() -> Path:
    """Its name changes with whatever goes into it."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((HERE / name).read_bytes())
    return CACHE / "control-plane" / digest.hexdigest()[:16]


def definitions(kind: str) -> Path:
    """The real CustomResourceDefinition of a kind, out of its own project's release."""
    go = shutil.which("go")
    if go is None:
        raise NotBuilt("the definitions of other projects are fetched with Go, which is not on PATH")
    module, path = DEFINITIONS[kind]
    environment = _environment() | {"GOFLAGS": "-mod=mod"}
    CACHE.mkdir(parents=True, exist_ok=True)
    told = _fetch([go, "mod", "download", "-json", module], cwd=CACHE, env=environment)
    return Path(json.loads(told)["Dir"]) / path


def main() -> int:
    try:
        programs = build()
        if shutil.which("go"):
            for kind in DEFINITIONS:
                definitions(kind)
    except (NotBuilt, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{PROGRAMS[1]} and the others: {programs[PROGRAMS[1]].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
