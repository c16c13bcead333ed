"""deploy/kubernetes keeps its promises: no more privilege than needed, secrets by reference, commands that exist.

What the API server itself makes of the files is in tests/integration/kubernetes/test_manifests.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from tests.deploy.compose import ROOT
from worker.cli.app import app
from worker.config import Config, load_config
from worker.parts import build_registry
from worker.settings import PREFIX, Settings

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = ("worker.yaml", "gateway.yaml", "watcher.yaml", "setup.yaml")
PORTS = {"worker": "worker_port", "gateway": "gateway_port", "watch": "intake_port"}


def things(name: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(FOLDER / name))


def workload(name: str) -> dict[str, Any]:
    (found,) = (thing for thing in things(name) if thing["kind"] in ("Deployment", "Job"))
    return found


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = workload(name)["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_command_and_its_settings_exist(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = pod(name)["containers"]
    (command,) = container["args"]
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for one in container["env"]:
        assert not one["name"].startswith(PREFIX) or one["name"].removesuffix("_FILE") in known, one["name"]
        if one["name"].endswith("_FILE") or one["name"] == "MEDEVAC_CONFIG":
            assert one["value"].rpartition("/")[0] in mounts, one
        else:
            monkeypatch.setenv(one["name"], one["value"])
    settings = Settings()
    if command in PORTS:
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        probes = [container[kind] for kind in ("readinessProbe", "livenessProbe") if kind in container]
        assert probes
        assert {ports[probe["httpGet"]["port"]] for probe in probes} == {getattr(settings, PORTS[command])}
        host = settings.gateway_host if command == "gateway" else settings.worker_host
        assert host == "0.0.0.0"  # noqa: S104 - or no probe reaches it
    if command == "worker":
        assert pod(name)["terminationGracePeriodSeconds"] >= settings.shutdown_s + 15


@pytest.mark.parametrize("name", FILES)
def test_it_runs_with_no_more_than_it_needs(name: str) -> None:
    spec = pod(name)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert container["resources"]["requests"]["memory"]
    assert container["resources"]["limits"]["memory"]
    assert spec["serviceAccountName"] in ("medevac-observe", "medevac-watch"), "as shipped nothing may change anything"


@pytest.mark.parametrize("name", FILES)
def test_secrets_come_by_reference_and_only_to_whom_they_concern(name: str) -> None:
    spec = pod(name)
    (container,) = spec["containers"]
    for one in container["env"]:
        assert "PASS" not in one["name"]
        assert "SECRET" not in one["name"]
        if "KEY" in one["name"] or "DATABASE_URL" in one["name"]:
            assert one["name"].endswith("_FILE")
    (secrets,) = (volume for volume in spec["volumes"] if volume["name"] == "secrets")
    assert ("vote_key" in str(secrets)) == (name == "gateway.yaml"), "only the gateway signs votes"


@pytest.mark.parametrize("name", ["worker.yaml", "gateway.yaml"])
def test_several_are_spread_and_never_all_disrupted(name: str) -> None:
    made = workload(name)["spec"]
    labels = made["template"]["metadata"]["labels"]
    assert made["replicas"] >= 2
    assert made["selector"]["matchLabels"].items() <= labels.items()
    spread = made["template"]["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    (budget,) = (thing["spec"] for thing in things(name) if thing["kind"] == "PodDisruptionBudget")
    assert budget["maxUnavailable"] == 1
    for selector in (budget["selector"], *(one["labelSelector"] for one in spread)):
        assert selector["matchLabels"].items() <= labels.items()


def test_the_gateways_service_finds_it() -> None:
    (service,) = (thing["spec"] for thing in things("gateway.yaml") if thing["kind"] == "Service")
    template = workload("gateway.yaml")["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    named = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= named


def kubeconfig(folder: Path) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


def test_the_configuration_can_be_read_and_only_observes(tmp_path: Path) -> None:
    (config,) = things("config.yaml")
    (tmp_path / "medevac.yaml").write_text(config["data"]["medevac.yaml"])
    read: Config = load_config(tmp_path / "medevac.yaml")
    assert {cluster.options["rights"] for cluster in read.clusters} == {"observe"}
    assert {cluster.name for cluster in read.clusters} == {"main"}, "as the shipped policy calls it"
    (cluster,) = read.clusters
    outside = cluster.model_copy(update={"options": cluster.options | {"kubeconfig": str(kubeconfig(tmp_path))}})
    built = build_registry(read.model_copy(update={"clusters": (outside,)}), tmp_path)
    assert [part.name for part in (*built.clusters(), *built.providers())] == ["main", "aws"]


def test_a_worker_can_write_where_the_configuration_keeps_evidence(tmp_path: Any) -> None:
    """Its root is read-only: a folder that isn't mounted would refuse every piece."""
    (config,) = things("config.yaml")
    (tmp_path / "medevac.yaml").write_text(config["data"]["medevac.yaml"])
    evidence = load_config(tmp_path / "medevac.yaml").evidence
    if evidence is None or evidence.kind == "folder":
        path = (evidence and evidence.path) or Path("/var/lib/medevac/evidence")
        (template,) = (thing["spec"]["template"] for thing in things("worker.yaml") if thing["kind"] == "Deployment")
        mounts = [m for m in template["spec"]["containers"][0]["volumeMounts"] if not m.get("readOnly")]
        assert any(path.is_relative_to(mount["mountPath"]) for mount in mounts)
    else:
        assert evidence.s3
