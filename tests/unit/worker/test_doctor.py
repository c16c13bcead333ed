"""The doctor hides nothing of one part behind another, and names providers that nobody has proved here."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from activities.ports import NotAllowed
from activities.registry import Registry
from activities.storage.certificates import Certificate
from worker import doctor
from worker.settings import Settings
from worker.stores import Stores

IDLE = "version: 1\nname: x\npools: {a: {clusters: [sim-a], select: {nodes: [gpu-a-000]}, mode: approve}}\n"


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, registry: Registry, stores: Stores) -> Settings:
    """The doctor looks at this test's parts."""
    monkeypatch.setattr(doctor, "find_config", lambda settings: None)
    monkeypatch.setattr(doctor, "build_registry", lambda config, data_dir: registry)
    monkeypatch.setattr(doctor, "open_stores", lambda url: stores)
    return Settings()


async def test_all_that_is_wrong_with_parts_is_said_and_no_secret(
    examined: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied() -> list[str]:
        raise NotAllowed("HTTP 401 for password=hunter2")

    one, other = registry.providers()[:2]
    monkeypatch.setattr(one, "missing_rights", denied, raising=False)
    monkeypatch.setattr(other, "missing_rights", lambda: ["RebootInstances", *("y" * 100)], raising=False)
    findings = {finding.what: finding for finding in await doctor.examine(examined)}
    parts = findings["parts"]
    assert not parts.ok
    assert f"provider {one.name}: HTTP 401" in parts.text
    assert f"provider {other.name} may not: RebootInstances" in parts.text
    assert "; and 93 more" in parts.text
    assert "docs/providers.md" in parts.fix
    assert "hunter2" not in str(findings)


async def test_providers_that_nobody_proved_are_named_with_the_command(
    examined: Settings, registry: Registry, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "none is real" in await doctor._trust(examined)
    one, other = registry.providers()[:2]
    for real in (one, other):
        monkeypatch.setattr(real, "simulated", False)
    now = datetime.now(UTC)
    stores.certificates.add(Certificate(provider=other.name, at=now, by="ada", machine_id="m", passed=True, proof={}))
    with pytest.raises(doctor._Bad) as bad:
        await doctor._trust(examined)
    assert f"not proved on a machine here: {one.name};" in str(bad.value)
    assert bad.value.fix == f"`medevac provider certify {one.name} --machine ID`"

    stores.policies.activate(stores.policies.propose(IDLE, "ada", now), "bob", now)
    assert f"here: {one.name}" in await doctor._trust(examined), "named, and not bad where nothing acts by itself"
    stores.certificates.add(Certificate(provider=one.name, at=now, by="ada", machine_id="m", passed=True, proof={}))
    assert "proved on a machine here" in await doctor._trust(examined)
