"""A worker killed with -9 between call and answer, and before the call: no effect twice, counted at the far side.

`PROVIDER_KILLS` says how often for each verb and point; `make test-providers` has it 100 times.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from activities.ports import Verb
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.integration.providers.bmcs import SYSTEMS, Bmcs
from tests.integration.providers.mortal import Attempt, killed
from tests.integration.providers.redfish_rig import CAN, KINDS, RedfishRig

KILLS = int(os.environ.get("PROVIDER_KILLS", "5"))


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("verb", sorted(CAN))
def test_a_killed_worker_leaves_no_effect_twice(bmcs: Bmcs, tmp_path: Path, verb: Verb, point: str) -> None:
    ids = [bmcs.rack() for _ in range(KILLS)]
    machines = {id: {"address": bmcs.url, "system": f"{SYSTEMS}{id}"} for id in ids}
    rig = RedfishRig(bmcs, machines=machines, read_timeout_s=30)
    kind = KINDS[verb]
    for n, id in enumerate(ids):
        node = rig.join(f"gpu-{n + 2}", id)
        attempt = Attempt(tmp_path / "ledger.sqlite", rig.options, node, verb, f"inc-{verb}-{n}")
        assert killed(bmcs, kind, point, attempt) == -signal.SIGKILL
        rig.node = node
        desk = Desk(rig, tmp_path / "ledger.sqlite", attempt.incident)
        again = [desk.act(verb, attempt=2), desk.act(verb, attempt=3)]
        assert {result.outcome for result in again} == {Outcome.ALREADY}
        assert "not called again" in again[0].reason
        assert sum(call.machine == id for call in bmcs.done(kind)) == (1 if point == "after" else 0)
        rig.pass_time()
        proof = desk.prove(verb, deadline_s=120.0 if point == "after" else 0.1)
        assert proof.outcome is (Outcome.DONE if point == "after" else Outcome.TIMED_OUT), proof.reason
        desk.close()
    assert bmcs.count(kind) == KILLS
    assert {call.kind for call in bmcs.done("restart") + bmcs.done("install") + bmcs.done("off")} <= {kind}
