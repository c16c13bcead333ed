"""The planner hears from the ledger whether a real machine's provider was proved here."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from activities.planning import PlanActivities
from activities.storage.certificates import Certificate, Certificates
from medevac.policy.loading import load, preset
from medevac.policy.plan import Mode
from tests.unit.activities.house import CLUSTER, House, run
from tests.unit.activities.test_planning import faults, request


def test_a_real_machines_provider_is_capped_until_it_is_certified(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.idle_node("ironworks")
    real = node.model_copy(update={"simulated": False})
    monkeypatch.setattr(house.registry.cluster(CLUSTER), "node", lambda name: real)
    base = load(preset("default")).model_dump(mode="json")
    base["pools"] = {"all": {"clusters": [CLUSTER], "select": {"nodes": [node.name]}, "mode": "auto"}}
    version = house.policies.propose(json.dumps(base), "test", datetime.now(UTC))
    house.policies.activate(version, None, datetime.now(UTC))
    proofs = Certificates(house.db)
    plans = PlanActivities(
        house.registry, house.ledger, house.policies, house.census, house.bounded, certificates=proofs
    )  # fmt: skip
    made = run(plans.plan, request(real, faults=faults("xid/119")))
    assert made.mode is Mode.APPROVE
    assert "ironworks isn't certified here" in " ".join(made.reasons)
    proof = Certificate(
        provider="ironworks", at=datetime.now(UTC), by="ada", machine_id="bm-1", passed=True, proof={}
    )  # fmt: skip
    proofs.add(proof)
    assert run(plans.plan, request(real, faults=faults("xid/119"))).mode is Mode.AUTO
