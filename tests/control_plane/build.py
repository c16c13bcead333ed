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
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medevac"
GO = (1, 26)
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
    "RayCluster": ("github.com/ray-project/kuberay/ray-operator@v1.5.0", "config/crd/bases/ray.io_rayclusters.yaml"),
}
"""Kind of a workload: the module that defines it, and where in it."""


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
    """Ten to fifteen minutes on two cores where Go's caches are cold, nothing where it is built already."""
    try:
        return find()
    except NotBuilt:
        pass
    go = shutil.which("go")
    version = (
        re.search(r"go(\d+)\.(\d+)", subprocess.run([go, "version"], capture_output=True, text=True).stdout)
        if go
        else None
    )
    if go is None or version is None or (int(version[1]), int(version[2])) < GO:
        raise NotBuilt(
            f"building the control plane needs Go {GO[0]}.{GO[1]} or newer on PATH; or set KUBEBUILDER_ASSETS to a"
            f" folder with {', '.join(PROGRAMS)}"
        )
    folder = _built()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / PROGRAMS[0]).exists():
            print(f"Building the control plane into {folder} (10 to 15 minutes, once) ...", flush=True)
            _compile(go, folder)
    return find()


def _compile(go: str, folder: Path) -> None:
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
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
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    environment.setdefault("GOCACHE", str(CACHE / "go-build"))
    environment.setdefault("GOMODCACHE", str(CACHE / "go-mod"))
    polite = ["nice", "-n", "19"] if shutil.which("nice") else []
    command = [*polite, go, "build", "-p", "2", "-trimpath", "-ldflags", linked, "-o", str(new / "controlplane"), "."]
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    for name in PROGRAMS:
        (new / name).symlink_to("controlplane")
    new.replace(folder)


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
    """The real CustomResourceDefinition of a workload's kind, out of its own project's release."""
    go = shutil.which("go")
    if go is None:
        raise NotBuilt("the definitions of other projects are fetched with Go, which is not on PATH")
    module, path = DEFINITIONS[kind]
    environment = {"GOMODCACHE": str(CACHE / "go-mod"), **os.environ, "GOFLAGS": "-mod=mod"}
    told = subprocess.run(
        [go, "mod", "download", "-json", module], cwd=CACHE, env=environment, check=True, capture_output=True, text=True
    )
    return Path(json.loads(told.stdout)["Dir"]) / path


def main() -> int:
    try:
        programs = build()
    except (NotBuilt, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{PROGRAMS[1]} and the others: {programs[PROGRAMS[1]].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
