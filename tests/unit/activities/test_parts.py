"""The registry's refusals, what leaves in an error, and what `record` writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities import signatures as sig
from activities.failures import Bounded, redact, waits
from activities.ports import Chat, HasOthers, Provider, Unreadable
from activities.recording import RecordingActivities
from activities.registry import ConfigurationError, NotConfigured, Registry
from medevac.fleet.inventory import Inventory, Record
from medevac.incident import Line, StepKey
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run
from worker.intake.inventory import Found
from worker.intake.inventory import Inventory as Nodes


def part(name: str = "", *, simulated: bool = True) -> Any:
    return SimpleNamespace(name=name, simulated=simulated)


def registry(**changes: Any) -> Registry:
    given: dict[str, Any] = {"clusters": [part("c")], "providers": [part("p")], "chat": cast(Chat, part())}
    return Registry(**(given | changes))


@pytest.mark.parametrize("mixed", [
    {"clusters": [part("c"), part("d", simulated=False)]},
    {"providers": [part("p", simulated=False)]},
    {"checks": {"c": part(simulated=False)}},
    {"tickets": {"p": part(simulated=False)}},
    {"chat": part(simulated=False)},
])  # fmt: skip
def test_simulated_and_real_parts_are_never_mixed(mixed: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"mixed with real ones \("):
        registry(**mixed)


@pytest.mark.parametrize(("wrong", "says"), [
    ({"clusters": []}, "no cluster"),
    ({"clusters": [part("c"), part("c")]}, "used twice"),
    ({"providers": [part("")]}, "empty"),
    ({"checks": {"d": part()}}, "'d'"),
    ({"tickets": {"q": part()}}, "'q'"),
])  # fmt: skip
def test_a_wrong_configuration_says_what_is_wrong(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        registry(**wrong)


def test_names_that_nobody_answers_to() -> None:
    built = registry()
    for ask in (built.cluster, built.provider, built.tickets, built.checks):
        with pytest.raises(NotConfigured, match="nowhere"):
            ask("nowhere")


@pytest.mark.parametrize("secret", [
    "Authorization: Bearer s3cr3tvalue",
    "password=s3cr3tvalue",
    'api_key: "s3cr3tvalue"',
    "postgresql://ledger:s3cr3tvalue@db/ledger",
    "xoxb-12345-s3cr3tvalue",
    "AKIAS3CR3TVALUE00000",
    "https://hooks.slack.com/services/T0/B0/s3cr3tvalue",
    "eyJhbGciOiJIUzI1NiJ9.s3cr3tvalue.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\ns3cr3tvalue\n-----END RSA PRIVATE KEY-----",
    "https://bucket/x?X-Amz-Signature=s3cr3tvalue&a=1",
    "MEDEVAC_TOKEN=s3cr3tvalue",
])  # fmt: skip
def test_what_looks_like_a_secret_is_blanked(secret: str) -> None:
    text = redact(f"call failed: {secret} (node gpu-a-001)")
    assert "s3cr3tvalue" not in text.lower()
    assert text.startswith("call failed")


@pytest.mark.parametrize("plain", [
    "node gpu-a-001: boot id was 3f2a in the plan and is 9c1d now",
    "xid/79 on i-0adedec692ab70e8d: basic check failed",
    "rack sim-a/r1 is full; held by inc-1",
])  # fmt: skip
def test_what_people_need_stays(plain: str) -> None:
    assert redact(plain) == plain


def test_a_long_error_is_cut() -> None:
    assert len(redact("x" * 10_000)) == 500
    assert len(waits("y" * 10_000, 1).message) == 500


def test_a_call_that_takes_too_long_is_not_waited_for() -> None:
    from threading import Event

    free, bounded = Event(), Bounded(1)
    with pytest.raises(Unreadable):
        bounded.call(0.01, free.wait, 10)
    free.set()
    with pytest.raises(ZeroDivisionError):
        bounded.call(5, lambda: 1 // 0)
    bounded.close()


def test_record_writes_everything_and_twice_is_once(house: House) -> None:
    node = house.busy_node()
    until = datetime.now(UTC) + timedelta(hours=24)
    data: dict[str, Any] = {
        "machine_id": node.machine.id, "faults": ["xid/79"], "by": "ada", "until": until.isoformat()
    }  # fmt: skip
    latch = Line(
        key=StepKey(incident=INCIDENT, step="latch"),
        at=datetime.now(UTC),
        kind="latch",
        text="stopped by ada",
        data=data,
    )
    request = sig.RecordRequest(key=StepKey(incident=INCIDENT, step="record"), view=house.view(node), lines=(latch,))
    record = RecordingActivities(house.ledger).record
    assert run(record, request).lines == 1
    assert run(record, request, attempt=2).lines == 0
    assert house.ledger.incident(INCIDENT) == request.view
    history = house.ledger.history("inc-2", CLUSTER, node.name, node.machine.id, datetime.now(UTC))
    (held,) = history.latches
    assert (held.by, held.why, held.faults, held.until) == ("ada", "stopped by ada", ("xid/79",), until)


def test_an_inventory_reaches_every_node_and_the_providers_that_need_it(house: House) -> None:
    cluster = house.parts.clusters[0]
    node = house.busy_node("ironworks")
    taken: list[Inventory] = []
    metal = SimpleNamespace(name="metal", simulated=True, take_inventory=taken.append)
    record = Record(
        origins=("hall.csv:2",),
        cluster=CLUSTER,
        node=node.name,
        serial=node.machine.serial,
        pdu="pdu-3",
        bmc="10.0.0.7",
    )
    known = Inventory([record], [CLUSTER])
    made = Registry(
        clusters=[cluster],
        providers=[*house.parts.providers, cast(Provider, metal)],
        chat=house.parts.chat,
        inventory=known,
    )
    found = made.cluster(CLUSTER).node(node.name)
    assert found is not None
    assert (found.topology["pdu"], found.topology["rack"]) == ("pdu-3", node.topology["rack"])
    assert found == next(one for one in made.cluster(CLUSTER).nodes() if one.name == node.name)
    assert taken == [known]
    assert isinstance(made.cluster(CLUSTER), HasOthers), "its optional ports are still seen"
    other = known.enrich(node.model_copy(update={"machine": node.machine.model_copy(update={"serial": "another"})}))
    assert "pdu" not in other.topology, "it is said of the machine that was here before"
    heard = Nodes(made.clusters).resolve(node.machine.serial, CLUSTER)
    assert isinstance(heard, Found)
    assert heard.node.name == node.name
    assert Nodes(made.clusters).resolve("10.0.0.7", CLUSTER) == heard
