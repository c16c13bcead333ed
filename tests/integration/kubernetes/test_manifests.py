"""What we ship to run in a cluster: a real API server takes it, strictly read, as `restricted`; and the doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from activities.kubernetes.client import JSON, Answer, Object
from tests.control_plane.processes import write_kubeconfig
from tests.integration.kubernetes.conftest import DEPLOY, PLACES, Plane
from tests.integration.kubernetes.site import Site
from tests.integration.kubernetes.stack import ROOT, write_config

KINDS = PLACES | {
    "ConfigMap": ("api/v1", "configmaps"),
    "Service": ("api/v1", "services"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Job": ("apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
}
FILES = ("config.yaml", "setup.yaml", "worker.yaml", "gateway.yaml", "watcher.yaml")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def things(name: str) -> list[Object]:
    return list(YAML(typ="safe").load_all(DEPLOY / name))


def dry(site: Site, path: str, body: Object) -> Answer:
    return site.admin._call("POST", path, {"dryRun": "All", "fieldValidation": "Strict"}, body, JSON, 1)


@pytest.mark.parametrize("name", FILES)
def test_the_api_server_takes_it(site: Site, name: str) -> None:
    for thing in things(name):
        api, plural = KINDS[thing["kind"]]
        within = f"/namespaces/{site.run}" if "namespace" in thing["metadata"] else ""
        thing["metadata"].pop("namespace", None)
        answer = dry(site, f"/{api}{within}/{plural}", thing)
        assert answer.ok or (answer.code == 409 and not within), f"{thing['kind']}: {answer.message}"


def test_its_pods_are_restricted(site: Site) -> None:
    site.patch(f"/api/v1/namespaces/{site.run}", {"metadata": {"labels": RESTRICTED}})
    specs = [
        thing["spec"]["template"]["spec"]
        for name in FILES
        for thing in things(name)
        if thing["kind"] in ("Deployment", "Job")
    ]
    assert len(specs) == 4
    for spec in specs:
        spec.pop("serviceAccountName")
        assert dry(site, site.within("pods"), _pod(spec)).ok
    loose: dict[str, Any] = {**specs[0], "hostNetwork": True}
    assert dry(site, site.within("pods"), _pod(loose)).code == 403


def _pod(spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}


def test_the_namespace_takes_no_other_pods(site: Site, accounts: None) -> None:
    (namespace,) = (thing for thing in things("observe.yaml") if thing["kind"] == "Namespace")
    assert namespace["metadata"]["labels"].items() >= RESTRICTED.items()


def test_the_doctor_names_exactly_what_is_missing(site: Site, plane: Plane, tmp_path: Path) -> None:
    """An account with all rights of `evict` but one."""
    account = f"{site.run}-lame"
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    files = (thing for level in ("observe", "mark", "evict") for thing in things(f"{level}.yaml"))
    rules = [rule for thing in files if thing["kind"] == "ClusterRole" for rule in thing["rules"]]
    for rule in rules:
        rule["resources"] = [one for one in rule["resources"] if one != "pods/eviction"] or ["none"]
    site.create(site.within("serviceaccounts"), {"metadata": {"name": account}})
    site.create(roles, {"metadata": {"name": account}, "rules": rules})
    site.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": site.run}],
    })  # fmt: skip
    site.add_node()
    try:
        kubeconfig = write_kubeconfig(tmp_path / "lame", site.token(account, site.run), plane.server, plane.certificate)
        write_config(tmp_path, kubeconfig, rights="evict")
        told = subprocess.run(
            [sys.executable, "-m", "worker.cli", "doctor", "--json"], capture_output=True, text=True, cwd=tmp_path,
            env=os.environ | {
                "PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}", "MEDEVAC_CONFIG": str(tmp_path / "medevac.yaml"),
                "MEDEVAC_DATA_DIR": str(tmp_path), "TEMPORAL_ADDRESS": "127.0.0.1:1",
            },
        )  # fmt: skip
        (found,) = (one for one in json.loads(told.stdout) if one["what"] == "cluster main")
        assert found["ok"] is False
        assert found["text"] == "lacks: create pods/eviction"
        assert "docs/kubernetes.md" in found["fix"]
    finally:
        site.send("DELETE", f"{roles}/{account}")
        site.send("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{account}")
