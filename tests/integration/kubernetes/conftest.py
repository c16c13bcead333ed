"""One control plane for all tests here; each test has its own nodes, namespace, and way through the proxy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config
from ruamel.yaml import YAML

from activities.kubernetes.client import MERGE, Client, Object
from activities.kubernetes.cluster import KubernetesCluster, make
from activities.kubernetes.nodes import labels, metadata, notes
from activities.kubernetes.options import Options
from tests.control_plane.build import NotBuilt, find
from tests.control_plane.processes import ControlPlane, write_kubeconfig
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
LEVELS = ("observe", "mark", "evict")
MANIFESTS = (*LEVELS, "checks", "node-side")
PLACES = {
    "Namespace": ("api/v1", "namespaces"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "ClusterRole": ("apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}


@dataclass(frozen=True)
class Plane:
    kubeconfig: Path
    server: str
    certificate: Path
    started: ControlPlane | None = None
    """None where it is a person's own cluster."""


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """A busy machine is no API server that doesn't answer: where that is tried, the connection is dropped."""
    init = Client.__init__

    def patiently(self: Client, options: Options, *more: Any, **named: Any) -> None:
        init(self, options.model_copy(update={"connect_timeout_s": 10.0, "read_timeout_s": 30.0}), *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "__init__", patiently)
        yield


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("control-plane")
    if own := os.environ.get("KUBECONFIG"):
        configuration = Configuration()
        load_kube_config(config_file=own, client_configuration=configuration)  # type: ignore[no-untyped-call]
        _only_for_tests(Client(Options(kubeconfig=Path(own))))
        yield Plane(Path(own), configuration.host, Path(str(configuration.ssl_ca_cert)))
        return
    try:
        find()
    except NotBuilt as error:
        pytest.skip(str(error))
    with ControlPlane(folder, audit=True) as started:
        yield Plane(started.kubeconfig, started.server, started.certificate, started)


def _only_for_tests(admin: Client) -> None:
    """These tests create nodes and change access rights: never in a cluster that someone works in."""
    for node in admin.list("/api/v1/nodes"):
        played = notes(node).get("kwok.x-k8s.io/node") == "fake"
        if not played and "node-role.kubernetes.io/control-plane" not in labels(node):
            pytest.exit(
                f"KUBECONFIG leads to a cluster with a real node ({metadata(node)['name']}); these tests want one of"
                " their own, whose nodes KWOK plays (`kwokctl create cluster`); unset KUBECONFIG for a fresh one",
                returncode=2,
            )


@pytest.fixture(scope="session")
def accounts(plane: Plane) -> None:
    """The shipped access rights, exactly as they are."""
    admin = Client(Options(kubeconfig=plane.kubeconfig))
    for name in MANIFESTS:
        for thing in YAML(typ="safe").load_all(DEPLOY / f"{name}.yaml"):
            _apply(admin, thing)
    admin.close()


def _apply(admin: Client, thing: Object) -> None:
    api, plural = PLACES[thing["kind"]]
    namespace = thing["metadata"].get("namespace")
    path = "/".join(("", api, *(("namespaces", quote(namespace)) if namespace else ()), plural))
    answer = admin.write("POST", path, thing)
    if answer.code == 409:  # of an earlier run
        answer = admin.write("PATCH", f"{path}/{quote(thing['metadata']['name'])}", thing, MERGE)
    assert answer.ok, answer.message


@pytest.fixture
def allowed(plane: Plane, accounts: None) -> Iterator[Callable[[str], None]]:
    """Gives the account that evicts what an optional manifest allows, until the test ends."""
    admin, bound = Client(Options(kubeconfig=plane.kubeconfig)), list[str]()

    def allow(name: str) -> None:
        for thing in YAML(typ="safe").load_all(DEPLOY / f"{name}.yaml"):
            _apply(admin, thing)
            if thing["kind"] == "ClusterRoleBinding":
                bound.append(thing["metadata"]["name"])

    yield allow
    for name in bound:
        admin.write("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}", {})
    admin.close()


@pytest.fixture
def site(plane: Plane, accounts: None) -> Iterator[Site]:
    site = Site(plane.kubeconfig)
    yield site
    site.close()


@pytest.fixture
def proxy(plane: Plane) -> Iterator[Proxy]:
    with Proxy(plane.server, plane.certificate) as proxy:
        yield proxy


Connect = Callable[..., KubernetesCluster]


@pytest.fixture
def connect(plane: Plane, proxy: Proxy, site: Site, tmp_path: Path) -> Iterator[Connect]:
    """A cluster adapter under the account of a level, through the proxy."""
    made: list[KubernetesCluster] = []

    def connect(level: str = "evict", *, server: str = "", token: str = "", **options: Any) -> KubernetesCluster:
        path = tmp_path / f"{len(made)}.kubeconfig"
        token = token or site.token(f"medevac-{level}")
        write_kubeconfig(path, token, server or proxy.url, plane.certificate)
        made.append(make("real", {"kubeconfig": str(path), "rights": level, **options}))
        return made[-1]

    yield connect
    for cluster in made:
        cluster.close()
