"""The helper for training scripts, as a pod would use it: its own account, its own annotations."""

from __future__ import annotations

import importlib.util
import json
import urllib.error
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from activities.kubernetes.client import url
from activities.kubernetes.nodes import notes
from tests.integration.kubernetes.conftest import DEPLOY, Connect, Plane
from tests.integration.kubernetes.site import Site, until


@pytest.fixture
def evacuation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evacuation", DEPLOY / "evacuation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def account(site: Site, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a kubelet mounts into the pod `train`, for an account that may patch pods."""
    api = ("apis", "rbac.authorization.k8s.io", "v1")
    site.create(site.within("serviceaccounts"), {"metadata": {"name": "trainer"}})
    site.create(site.within("roles", api=api), {
        "metadata": {"name": "trainer"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}],
    })  # fmt: skip
    site.create(site.within("rolebindings", api=api), {
        "metadata": {"name": "trainer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trainer"},
        "subjects": [{"kind": "ServiceAccount", "name": "trainer", "namespace": site.run}],
    })  # fmt: skip
    path = url("api", "v1", "namespaces", site.run, "serviceaccounts", "trainer", "token")
    token = site.create(path, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}})
    (tmp_path / "token").write_text(token["status"]["token"])
    (tmp_path / "namespace").write_text(site.run)
    (tmp_path / "ca.crt").write_bytes(plane.certificate.read_bytes())
    server = urlsplit(plane.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("POD_NAME", "train")
    return tmp_path


def test_a_job_that_speaks_is_heard(site: Site, connect: Connect, evacuation: ModuleType, account: Path) -> None:
    node = site.add_node()
    site.pod("train", node)
    cluster = connect()
    by = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=15)
    podinfo = account / "annotations"

    def kubelet() -> None:
        """One a line, the value quoted."""
        told = "\n".join(f"{name}={json.dumps(value)}" for name, value in notes(site.pods()[0]).items())
        podinfo.write_text(told)

    def is_ready() -> bool:
        return cluster.workloads(node)[0].ready_to_evict

    cluster.notice(node, by)
    kubelet()
    assert evacuation.due(podinfo) == by
    evacuation.checkpointed(datetime(2026, 5, 4, 12, 20, tzinfo=UTC), account)
    evacuation.ready(by, account)
    (work,) = cluster.workloads(node)
    assert (work.ready_to_evict, work.last_checkpoint) == (True, datetime(2026, 5, 4, 12, 20, tzinfo=UTC))
    evacuation.ready(account=account, podinfo=podinfo, yes=False)
    assert not is_ready()
    evacuation.ready(account=account, podinfo=podinfo)
    assert is_ready()
    # The drain is cancelled, and another one comes before the kubelet has told of either.
    cluster.take_back_notice(node, by)
    assert not is_ready()
    cluster.notice(node, by + timedelta(hours=1))
    evacuation.ready(by, account)
    assert not is_ready(), "an answer to the notice of before"
    kubelet()
    evacuation.ready(account=account, podinfo=podinfo)
    assert is_ready()


def test_nobody_wants_the_pod_to_go(evacuation: ModuleType, tmp_path: Path) -> None:
    assert evacuation.due(tmp_path / "nothing-mounted") is None
    (tmp_path / "annotations").write_text('team="a=b"\n')
    assert evacuation.due(tmp_path / "annotations") is None
    evacuation.ready(account=tmp_path / "no-account", podinfo=tmp_path / "annotations")


@pytest.mark.parametrize(("ago", "stands"), [(timedelta(minutes=1), True), (timedelta(days=30), False)])
def test_a_notice_of_long_ago_is_nobodys(evacuation: ModuleType, tmp_path: Path, ago: timedelta, stands: bool) -> None:
    by = datetime.now(UTC) - ago
    (tmp_path / "annotations").write_text(f'medevac.dev/evacuate-by="{by:%Y-%m-%dT%H:%M:%SZ}"\n')
    assert (evacuation.due(tmp_path / "annotations") is not None) == stands


def test_what_is_not_allowed_is_said(site: Site, evacuation: ModuleType, account: Path) -> None:
    site.pod("train", site.add_node())
    api = ("apis", "rbac.authorization.k8s.io", "v1")
    site.must(site.send("DELETE", site.within("rolebindings", "trainer", api=api)))

    def refused() -> bool:
        try:
            evacuation.ready(datetime.now(UTC), account)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 403
        return False

    until("the API server has seen that the right is gone", refused)


def test_a_time_without_a_zone_is_refused(evacuation: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zone"):
        evacuation.checkpointed(datetime(2026, 5, 4), tmp_path)  # noqa: DTZ001
