"""The doctor hides nothing of one part behind another, and names providers that nobody has proved here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.evidence_store import FolderStore
from activities.ports import NotAllowed, Unreadable
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


async def test_evidence_is_written_read_and_removed_again(
    examined: Settings, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.evidence = FolderStore(tmp_path / "evidence")
    (said,) = [one for one in await doctor.examine(examined) if one.what == "evidence"]
    assert said.ok, said
    assert str(tmp_path / "evidence") in said.text
    assert not [path for path in (tmp_path / "evidence").rglob("*") if path.is_file()]

    def may_not(key: str) -> None:
        raise Unreadable("nothing can be removed from s3://b: AccessDenied")

    monkeypatch.setattr(registry.evidence, "remove", may_not)
    kept = await doctor._evidence(examined)
    assert "AccessDenied" in kept, "workers never remove any, so that is no fault"


async def test_evidence_that_cannot_be_kept_is_said_with_place_reason_and_way_out(
    examined: Settings, registry: Registry, tmp_path: Path
) -> None:
    registry.evidence = FolderStore(tmp_path / "evidence")
    (tmp_path / "evidence").write_text("not a folder")
    (said,) = [one for one in await doctor.examine(examined) if one.what == "evidence"]
    assert not said.ok
    assert str(tmp_path / "evidence") in said.text
    assert "mount a volume" in said.fix
    assert "`evidence: required`" in said.fix


async def test_a_bucket_that_does_not_say_what_is_missing_is_no_store(
    examined: Settings, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without s3:ListBucket what isn't there is `AccessDenied`, and no bundle is ever begun."""
    store = registry.evidence = FolderStore(tmp_path / "evidence")
    read = store.get

    def denied(key: str) -> bytes | None:
        if (found := read(key)) is None:
            raise Unreadable("evidence can't be read from s3://b: AccessDenied")
        return found

    monkeypatch.setattr(store, "get", denied)
    with pytest.raises(doctor._Bad, match="AccessDenied") as bad:
        await doctor._evidence(examined)
    assert "list" in bad.value.fix


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
