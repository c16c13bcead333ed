"""From the configuration file to checks, rungs from within a node and evidence; and how people read the last."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities.checks.kubernetes import KubernetesChecks
from activities.evidence_store import FolderStore
from activities.kubernetes.cluster import KubernetesCluster
from activities.registry import ConfigurationError, Registry
from tests.contracts.test_capabilities import Scripted
from worker import parts
from worker.cli.people import _tell
from worker.config import load_config

ENTRY_POINTS = parts.entry_points
PYTHON = "{kubeconfig: KUBECONFIG, image: python, runtime_class: nvidia, services: [kubelet], skus: {h100: {gpus: 8}}}"
NODE_SIDE = "{image: python, agents: [nvidia-dcgm], reset_gpu: {linked: refuse}, reboot: {}}"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    metal = SimpleNamespace(name="metal", load=lambda: lambda name, options: Scripted(frozenset()))
    monkeypatch.setattr(parts, "entry_points", lambda group: [*ENTRY_POINTS(group=group), metal])

    def built(checks: str = PYTHON, node_side: str = NODE_SIDE, evidence: str = "") -> Registry:
        path = tmp_path / "medevac.yaml"
        text = (
            f"installation: i\nproviders: [{{name: scripted, kind: metal}}]\n"
            f"clusters: [{{name: c, kind: kubernetes, options: {{kubeconfig: KUBECONFIG, node_side: {node_side}}}}}]\n"
            f"checks: [{{name: gpus, kind: kubernetes, options: {checks}}}]\n{evidence}"
        )
        path.write_text(text.replace("KUBECONFIG", str(kubeconfig)))
        return parts.build_registry(load_config(path), tmp_path)

    return built


def test_a_clusters_checks_rungs_and_evidence_are_what_the_file_says(built: Any, tmp_path: Path) -> None:
    registry = built()
    cluster, checks = registry.cluster("c"), registry.checks("c")
    assert isinstance(cluster, KubernetesCluster)
    assert isinstance(checks, KubernetesChecks)
    assert cluster.options.node_side is not None
    assert cluster.options.node_side.namespace == "medevac-node-side"
    assert isinstance(registry.evidence, FolderStore)
    registry.evidence.put("inc-1/a.txt", b"1")
    assert (tmp_path / "evidence/inc-1/a.txt").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"checks": "{}"}, "image"),
        ({"checks": "{kubeconfig: /nowhere, image: python}"}, "can't sign in"),
        ({"checks": "{image: python, imagee: x}"}, "imagee"),
        ({"checks": "{image: python, command: [/check]}"}, "only you know"),
        ({"node_side": "{image: python, reset_gpu: {linked: perhaps}}"}, "node_side.reset_gpu.linked"),
        ({"evidence": "evidence: {kind: s3}\n"}, "bucket"),
    ],
)
def test_what_is_wrong_is_refused_by_name(built: Any, wrong: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        built(**wrong)


def test_an_incident_lists_its_evidence_once(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {
        "pieces": [{"name": "node.json", "url": "s3://b/inc-1/cluster/node.json", "size": 9, "sha256": "ab" * 32}],
        "missing": ["provider: not allowed"],
    }  # fmt: skip
    line = {"at": "2026-05-01T12:00:00Z", "kind": "step", "text": "evacuate: done"}
    steps = [{**line, "data": {"step": step, "result": {"proof": {"evidence": kept}}}} for step in ("evacuate", "act")]
    view = {"id": "inc-1", "cluster": "c", "node": "n", "fault": "xid/79", "end": None, "state": "acting"}
    _tell({"incident": {**view, "waiting_for": ""}, "lines": [*steps, {**line, "data": {}}]})
    said = capsys.readouterr().out
    assert said.count("s3://b/inc-1/cluster/node.json") == 1
    assert "sha256 abababababab" in said
    assert "missing: provider: not allowed" in said
