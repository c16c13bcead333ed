"""A whole installation as shipped, in a storm: it decides and records, and touches nothing and nobody."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from medevac.incident import State
from tests.control_plane.processes import write_kubeconfig
from tests.integration.kubernetes.conftest import Plane
from tests.integration.kubernetes.site import Site, as_left, until
from tests.integration.kubernetes.stack import installation
from tests.integration.kubernetes.test_audit import READS, calls

XIDS = (79, 119, 95, 64)


async def test_a_storm_in_observe_mode_leaves_no_write_anywhere(site: Site, plane: Plane, tmp_path: Path) -> None:
    since = datetime.now(UTC)
    names = [site.add_node(labels={"nvidia.com/gpu.present": "true"}) for _ in range(12)]
    for name in names:
        site.pod(f"train-{name}", name)
    before = {name: as_left(site.node(name)) for name in names}
    kubeconfig = write_kubeconfig(
        tmp_path / "observing", site.token("medevac-observe"), plane.server, plane.certificate
    )
    async with installation(tmp_path, kubeconfig, rights="observe") as house:
        await house.start_worker()
        # Each node says each of its faults three times, all at once.
        lines = [(name, xid, gpu) for name in names for xid in XIDS for gpu in range(3)]
        await asyncio.gather(*(house.kernel_line(name, xid, gpu=gpu) for name, xid, gpu in lines))

        def settled() -> bool:
            found = {view.node: view.state for view in house.stores.ledger.incidents(limit=1000)}
            return set(names) <= set(found) and all(found[name] is State.OBSERVED for name in names)

        await asyncio.to_thread(until, "each node's incident is observed", settled, 400)
        for view in house.stores.ledger.incidents():
            if view.node in names:
                assert any(line.data.get("would") for line in house.stores.ledger.lines(view.id)), "it is on record"
        assert not [effect for effect in house.effects if not effect.startswith("chat ")], "people are told, no more"
    for name in names:
        node = site.node(name)
        assert "unschedulable" not in node["spec"]
        assert "medevac.dev/unhealthy" not in node["metadata"]["labels"]
        assert as_left(node) == before[name], "nobody has written to it"
    if plane.started is not None:
        seen = calls(plane.started.audit_log, "medevac-observe", since)
        assert seen, "it has looked"
        assert {verb for verb, _ in seen} <= READS
