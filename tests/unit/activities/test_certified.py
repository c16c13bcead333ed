"""The planner hears from the ledger whether a real machine's provider was proved here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from activities.planning import PlanActivities
from activities.storage.certificates import Certificate, Certificates
from medevac.fleet.node import Node
from medevac.policy.loading import load, preset
from medevac.policy.plan import Mode, Plan, Rung
from tests.unit.activities.house import CLUSTER, House, run
from tests.unit.activities.test_planning import faults, request


def shown(**steps: bool | None) -> dict[str, JsonValue]:
    """As `medevac provider certify` stores it."""
    return {"steps": [{"name": name, "passed": passed, "seen": "x"} for name, passed in steps.items()], "node": "n"}


def real_machine(house: House, monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Certificates, PlanActivities]:
    """Of a provider without any proof yet, alone in a pool that is `auto`."""
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
    return real, proofs, plans


def test_a_real_machines_provider_is_capped_until_it_is_certified(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, proofs, plans = real_machine(house, monkeypatch)
    made = run(plans.plan, request(real, faults=faults("xid/119")))
    assert made.mode is Mode.APPROVE
    assert "ironworks isn't certified here" in " ".join(made.reasons)
    proof = Certificate(
        provider="ironworks", at=datetime.now(UTC), by="ada", machine_id="bm-1", passed=True,
        proof=shown(reboot=True, reinstall=None),
    )  # fmt: skip
    proofs.add(proof)
    made = run(plans.plan, request(real, faults=faults("xid/119")))
    assert (made.mode, made.rung, made.approval) == (Mode.AUTO, Rung.REBOOT, None)


def test_a_rung_whose_verb_was_not_proved_is_asked_about(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    real, proofs, plans = real_machine(house, monkeypatch)

    def planned(minutes: int, **steps: bool | None) -> Plan:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
        proofs.add(
            Certificate(provider="ironworks", at=at, by="ada", machine_id="bm-1", passed=True, proof=shown(**steps))
        )
        return run(plans.plan, request(real, faults=faults("xid/119")))

    made = planned(1, reboot=None, reinstall=True)
    assert (made.mode, made.rung) == (Mode.AUTO, Rung.REBOOT)
    assert made.approval is not None
    assert "provider ironworks wasn't seen to reboot a machine here" in " ".join(made.approval.why)
    assert planned(2, reboot=True, reinstall=None).approval is None
    assert planned(3, reinstall=True).approval is None, "what a later proof doesn't speak of stays proved"
    assert planned(4, reboot=False, reinstall=True).approval is not None


def test_a_proof_is_of_what_was_configured_then(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program, account or way to reboot under the same name proves itself."""
    real, proofs, plans = real_machine(house, monkeypatch)
    forms: dict[str, str] = {}
    monkeypatch.setattr(house.registry, "form", lambda name: forms.get(name, ""))
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def certify(minutes: int, form: str, passed: bool = True) -> None:
        proof = shown(reboot=passed) | ({"form": form} if form else {})
        when = at + timedelta(minutes=minutes)
        proofs.add(
            Certificate(provider="ironworks", at=when, by="ada", machine_id="m", passed=passed, proof=proof)
        )  # fmt: skip

    def mode(form: str) -> Mode | None:
        forms["ironworks"] = form
        assert proofs.certified("ironworks", form) is bool(proofs.proved("ironworks", form))
        return run(plans.plan, request(real, faults=faults("xid/119"))).mode

    certify(1, "")
    assert mode("a") is Mode.APPROVE, "of an older form, which nobody knows"
    certify(2, "a")
    assert (mode("a"), mode("b")) == (Mode.AUTO, Mode.APPROVE)
    certify(3, "b", passed=False)
    assert (mode("a"), mode("b")) == (Mode.AUTO, Mode.APPROVE), "what failed was another one"
