"""The doctor hides nothing of one part behind another, and names providers that nobody has proved here."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import JsonValue

from activities.evidence_store import FolderStore
from activities.ports import NotAllowed, NotSent, Page, Unreadable
from activities.registry import Registry
from activities.storage.certificates import Certificate
from worker import doctor
from worker.doctor import Finding, House
from worker.parts import Built
from worker.settings import Settings
from worker.stores import Stores

IDLE = "version: 1\nname: x\npools: {a: {clusters: [sim-a], select: {nodes: [gpu-a-000]}, mode: approve}}\n"
REBOOTED: dict[str, JsonValue] = {"steps": [{"name": "reboot", "passed": True, "seen": "boot 1 → boot 2"}]}


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, registry: Registry, stores: Stores) -> Settings:
    """The doctor looks at this test's parts."""
    monkeypatch.setattr(doctor, "find_config", lambda settings: None)
    monkeypatch.setattr(doctor, "build_parts", lambda config, data_dir: Built.of(registry))
    monkeypatch.setattr(doctor, "open_stores", lambda url: stores)
    return Settings()


async def findings(settings: Settings) -> dict[str, Finding]:
    return {finding.what: finding for finding in await doctor.examine(settings)}


async def test_all_that_is_wrong_with_parts_is_said_and_no_secret(
    examined: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied() -> list[str]:
        raise NotAllowed("HTTP 401 for password=hunter2")

    one, other = registry.providers()[:2]
    monkeypatch.setattr(one, "missing_rights", denied, raising=False)
    monkeypatch.setattr(other, "missing_rights", lambda: ["RebootInstances", *("y" * 100)], raising=False)
    found = await findings(examined)
    assert found["parts"].ok
    assert not found[f"provider {one.name}"].ok
    assert found[f"provider {one.name}"].text.startswith("HTTP 401")
    assert found[f"provider {other.name}"].text.startswith("lacks: RebootInstances")
    assert "; and 93 more" in found[f"provider {other.name}"].text
    assert "docs/providers.md" in found[f"provider {other.name}"].fix
    assert found["cluster sim-a"].ok
    assert "hunter2" not in str(found)


async def test_a_part_that_hangs_holds_up_no_other(
    examined: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    one, other = registry.providers()[:2]
    monkeypatch.setattr(doctor, "LIMIT_S", 2.0)
    monkeypatch.setattr(one, "missing_rights", lambda: [str(never.wait(60))], raising=False)
    monkeypatch.setattr(other, "missing_rights", lambda: ["RebootInstances"], raising=False)
    found = await findings(examined)
    never.set()
    assert found[f"provider {one.name}"].text == "no answer within 2 s"
    assert found[f"provider {other.name}"].text == "lacks: RebootInstances"
    assert found["cluster sim-a"].ok
    assert found["trust"].ok


class Wakes:
    """A pager; `ask` is what its far side says."""

    simulated = True

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error

    def page(self, page: Page) -> None:
        raise AssertionError("the doctor wakes nobody")

    resolve = page

    def ask(self) -> str:
        if self.error is not None:
            raise self.error
        return "key accepted"


async def test_each_pager_is_asked_and_nobody_is_woken(
    examined: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Wakes("own")
    refused = NotSent("pager eu: HTTP 401: Could not authenticate", final=True)
    plain = SimpleNamespace(name=silent.name, simulated=True, page=silent.page, resolve=silent.resolve)
    monkeypatch.setattr(registry, "pagers", (Wakes("oncall"), Wakes("eu", refused), plain))
    found = await findings(examined)
    assert (found["pager oncall"].ok, found["pager oncall"].text) == (True, "key accepted")
    assert not found["pager eu"].ok
    assert "HTTP 401" in found["pager eu"].text
    assert "docs/operate/on-call.md" in found["pager eu"].fix
    assert "nothing was sent" in found["pager own"].text


BROKEN = """
installation: here
clusters: [{name: main, kind: kubernetes, options: {kubeconfig: /nowhere/kubeconfig}}]
providers:
  - {name: metal, kind: redfish, options: {graceful_s: 0}}
  - {name: shop, kind: nosuch}
chat: {name: slack, kind: slack, options: {}}
"""


async def test_each_part_that_cannot_be_made_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    """And what needs them says that it does, not the same once more with another cure."""
    file = tmp_path / "medevac.yaml"
    file.write_text(BROKEN)
    monkeypatch.setattr(doctor, "open_stores", lambda url: stores)
    found = await findings(Settings(config=file, data_dir=tmp_path))
    assert "kubeconfig" in found["cluster main"].text
    assert "`graceful_s`" in found["provider metal"].text
    assert "nothing installed is of kind nosuch" in found["provider shop"].text
    assert not found["chat"].ok
    assert found["parts"].text == "cluster main, provider metal, provider shop and chat can't be made"
    assert found["ledger"].ok
    for what in ("trust", "policy", "other remediators"):
        assert found[what].text.startswith("not looked at: it needs the parts, and cluster main, "), what
        assert found[what].fix == doctor.PARTS_FIRST
    assert sum("kubeconfig" in one.text for one in found.values()) == 1


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
    kept = await doctor._evidence(House(examined))
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
        await doctor._evidence(House(examined))
    assert "list" in bad.value.fix


async def test_providers_that_nobody_proved_are_named_with_the_command(
    examined: Settings, registry: Registry, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def certify(name: str) -> None:
        stores.certificates.add(
            Certificate(provider=name, at=now, by="ada", machine_id="m", passed=True, proof=REBOOTED)
        )

    assert "none is real" in await doctor._trust(House(examined))
    one, other = registry.providers()[:2]
    for real in (one, other):
        monkeypatch.setattr(real, "simulated", False)
    now = datetime.now(UTC)
    certify(other.name)
    with pytest.raises(doctor._Bad) as bad:
        await doctor._trust(House(examined))
    assert f"not proved on a machine here: {one.name};" in str(bad.value)
    assert f"{other.name} was proved to reboot a machine here" in str(bad.value)
    assert bad.value.fix == f"`medevac provider certify {one.name} --machine ID`"
    with monkeypatch.context() as changed:
        changed.setattr(registry, "form", lambda name: "as it is now")
        with pytest.raises(doctor._Bad, match=f"{other.name} was configured otherwise when it was proved"):
            await doctor._trust(House(examined))

    stores.policies.activate(stores.policies.propose(IDLE, "ada", now), "bob", now)
    assert f"here: {one.name}" in await doctor._trust(House(examined)), (
        "named, and not bad where nothing acts by itself"
    )
    certify(one.name)
    assert f"{one.name} was proved to reboot" in await doctor._trust(House(examined))


async def test_what_can_not_be_spared_because_nobody_knows_its_pods_is_said(
    examined: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.cluster("sim-a"), "own_unknown", lambda: ("Temporal", "PostgreSQL"), raising=False)
    found = (await findings(examined))["cluster sim-a"]
    assert found.ok, "both may run elsewhere"
    assert "no pod of Temporal and PostgreSQL is known in it" in found.text
    assert "`own_pods`" in found.text
