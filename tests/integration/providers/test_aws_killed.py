"""A worker killed with -9 between call and answer, and before the call: no effect twice, counted at the far side.

`PROVIDER_KILLS` says how often for each verb and point; `make test-providers` has it 100 times.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from activities.ports import Verb
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.integration.providers.aws_rig import CAN, AwsRig
from tests.integration.providers.far_side import REGION, FarSide
from tests.integration.providers.mortal import Attempt, killed

KILLS = int(os.environ.get("PROVIDER_KILLS", "5"))


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("verb", sorted(CAN))
def test_a_killed_worker_leaves_no_effect_twice(far: FarSide, tmp_path: Path, verb: Verb, point: str) -> None:
    options: dict[str, Any] = {"regions": [REGION], "reinstall": True, "endpoint": far.url, "share": 1.0}
    rig = AwsRig(far)
    ledger = tmp_path / "ledger.sqlite"
    for n in range(KILLS):
        rig.node = rig.join(f"gpu-{n + 2}", rig.launch())
        incident = f"inc-{verb}-{n}"
        assert killed(far, rig.apis[verb], point, Attempt(ledger, options, rig.node, verb, incident)) == -signal.SIGKILL
        desk = Desk(rig, ledger, incident)  # of the next worker
        again = [desk.act(verb, attempt=2), desk.act(verb, attempt=3)]
        assert {result.outcome for result in again} == {Outcome.ALREADY}
        assert "not called again" in again[0].reason
        effects = [call for call in far.done(rig.apis[verb]) if rig.node.machine.id in " ".join(call.given.values())]
        assert len(effects) == (1 if point == "after" else 0)
        rig.pass_time()
        proof = desk.prove(verb, deadline_s=120.0 if point == "after" else 0.1)
        assert proof.outcome is (Outcome.DONE if point == "after" else Outcome.TIMED_OUT), proof.reason
        desk.close()
    assert far.count(rig.apis[verb]) == KILLS
