"""The cluster contract, on a real API server, under the account that evicts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from activities.kubernetes.nodes import metadata
from activities.ports import Cluster, Pod
from tests.contracts.cluster import ClusterContract
from tests.contracts.rigs import ClusterRig, Trouble
from tests.integration.kubernetes.conftest import Connect
from tests.integration.kubernetes.kubelet import dies
from tests.integration.kubernetes.proxy import Proxy
from tests.integration.kubernetes.site import Site, until


class KubernetesRig:
    """Two nodes; on one a training pod, on both a daemon that tolerates everything."""

    def __init__(self, site: Site, connect: Connect, proxy: Proxy) -> None:
        self.site = site
        self.proxy = proxy
        self.cluster: Cluster = connect()
        for _ in range(2):
            site.add_node()
        site.set_of("DaemonSet", "agent", tolerates_all=True, gpus=0)
        site.set_of("StatefulSet", "train", held=True, gpus=8)
        train = next(pod for pod in site.running(3) if metadata(pod)["name"] == "train-0")
        self.node = str(train["spec"]["nodeName"])

    def own(self) -> set[str]:
        return set(self.site.names)

    def pass_time(self) -> None:
        self.site.release()
        self.site.running(3)

    def answer(self) -> None:
        note = {"medevac.dev/ready-to-evict": "true"}
        self.site.patch(self.site.within("pods", "train-0"), {"metadata": {"annotations": note}})

    def cordon(self, who: str) -> None:
        self.site.cordon(self.node, who)

    def uncordon(self) -> None:
        self.site.cordon(self.node, "kubectl", on=False)

    def guard(self, pod: Pod) -> str:
        name = self.site.budget("never", {"app": "train"})
        until("the adapter sees the budget", lambda: name in {p.budget for p in self.cluster.pods(self.node)})
        return name

    def replace(self, pod: Pod) -> None:
        self.site.send("DELETE", self.site.within("pods", pod.name), {"gracePeriodSeconds": 0})
        self.pass_time()

    def silence(self) -> None:
        dies(self.site, self.node)

    def grow_late(self) -> None:
        late = datetime.now(UTC) + timedelta(seconds=6)
        until("the grace is over", lambda: datetime.now(UTC) > late)

    def trouble_evicting(self, trouble: Trouble) -> None:
        self.proxy.script("POST", "/eviction", trouble)

    def trouble_marking(self, trouble: Trouble) -> None:
        self.proxy.script("PATCH", f"/nodes/{re.escape(self.node)}\\?", trouble)

    def unreadable(self) -> None:
        self.proxy.script("GET", "/api", Trouble.REFUSE, times=1_000)


class TestKubernetesCluster(ClusterContract):
    @pytest.fixture
    def rig(self, site: Site, connect: Connect, proxy: Proxy) -> ClusterRig:
        return KubernetesRig(site, connect, proxy)
