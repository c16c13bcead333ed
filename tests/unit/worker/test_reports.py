"""The hand-over leaves nothing out; the shadow report sets people's hands beside medevac's words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx

from activities.chat.blocks import escape
from medevac.events.event import HealthEvent, Kind, Statement
from medevac.faults.classes import FaultClass
from medevac.fleet.node import Node
from medevac.incident import End, Hold, Line, State, StepKey
from medevac.policy.silences import Holds, Matcher, Silence
from simulation.world import World
from tests.unit.worker.conftest import bearer, view_of
from tests.unit.worker.test_cases import case, put
from tests.unit.worker.test_orders import asked
from worker.handover import MESSAGES, Handover, messages, take, words
from worker.shadow import ShadowReport
from worker.shadow import words as shadow_words
from worker.stores import Stores

OTTO, VERA = bearer("otto-token"), bearer("vera-token")
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


async def handover(client: httpx.AsyncClient) -> tuple[Handover, str]:
    answer = await client.get("/v1/reports/handover", headers=VERA)
    assert answer.status_code == 200, answer.text
    found = Handover.model_validate(answer.json())
    return found, "\n".join(words(found))


async def test_all_that_waits_stands_in_it(client: httpx.AsyncClient, stores: Stores, node: Node, world: World) -> None:
    hold = Hold(owner="ada", reason="she looks at it", until=NOW + HOUR)
    stores.ledger.upsert_incident(view_of(node, owner="otto", fault="xid/79", state=State.HANDED_OVER, hold=hold))
    gone = node.model_copy(update={"name": "ended"})
    stores.ledger.upsert_incident(view_of(gone, id="inc-2", state=State.ENDED, end=End.RETURNED, updated_at=NOW))
    stores.fences.freeze("all", "vera", "power works")
    other = next(n for n in world.nodes("sim-a") if n.name != node.name)
    world.cordon(other.name, "alice", cluster="sim-a")
    found, said = await handover(client)
    for wanted in (
        node.name,
        "xid/79",
        "owner otto",
        "held by ada",
        "1 returned",
        "all by vera: power works",
        other.name,
    ):
        assert wanted in said
    assert [one.node for one in found.nodes_out] == [other.name]
    assert "alice" in found.nodes_out[0].why


async def test_an_overdue_case_stands_first_and_says_since_when(client: httpx.AsyncClient, stores: Stores) -> None:
    put(stores, case(opened_at=NOW - 5 * HOUR))
    stores.cases.join("inc-2", "m-2", "ironworks", NOW, lambda *_: case(id="case-1", due_at=NOW - 3 * HOUR))
    stores.cases.join("inc-3", "m-3", "ironworks", NOW, lambda *_: case(id="case-2", due_at=NOW + HOUR))
    found, said = await handover(client)
    assert [one.id for one in found.cases if one.overdue_since] == [found.cases[0].id] == ["case-1"]
    assert said.count("overdue for 3 h") == said.count("overdue") == 1


async def test_a_silenced_latched_fault_is_in_it_all_the_same(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    stores.silences.add(
        Silence(
            id="s-1", by="otto", reason="loud", at=NOW - HOUR, until=NOW + HOUR, matcher=Matcher(node=node.name),
            holds=tuple(Holds),
        )
    )  # fmt: skip
    critical = FaultClass.CRITICAL
    stores.ledger.upsert_incident(view_of(node, fault="xid/79", fault_class=critical, state=State.HANDED_OVER))
    found, said = await handover(client)
    (incident,) = found.incidents
    assert incident.latched
    assert incident.silences == ("s-1",)
    assert [one.id for one in found.silences] == ["s-1"]
    assert "silenced (s-1)" in said


async def test_a_silence_of_one_source_is_listed_with_what_that_source_raised(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    said = HealthEvent(
        source="kmsg", sender="syslog", id="1", dedupe_key="1", fault="xid/79", kind=Kind.FAULT,
        statement=Statement.EDGE, received_at=NOW, cluster=node.cluster,
    )  # fmt: skip
    stores.ledger.see_events([(said, node.name, "recorded")])
    for id, source in (("s-1", "kmsg"), ("s-2", "alertmanager")):
        matcher = Matcher(source=source)
        stores.silences.add(
            Silence(
                id=id, by="otto", reason="loud", at=NOW - HOUR, until=NOW + HOUR, matcher=matcher, holds=tuple(Holds)
            )
        )
    stores.ledger.upsert_incident(view_of(node, fault="xid/79"))
    found, _ = await handover(client)
    assert found.incidents[0].silences == ("s-1",)


async def test_it_is_said_in_chat_by_those_who_may(
    client: httpx.AsyncClient, stores: Stores, node: Node, world: World
) -> None:
    stores.ledger.upsert_incident(view_of(node, fault="xid/79"))
    assert (await client.post("/v1/reports/handover", json={}, headers=VERA)).status_code == 403
    answer = await client.post("/v1/reports/handover", json={"since_s": 3_600}, headers=OTTO)
    assert answer.status_code == 200, answer.text
    (message,) = world.messages()
    assert node.name in message
    assert "otto" in message


async def test_in_chat_no_number_of_incidents_pushes_the_rest_out(
    client: httpx.AsyncClient, stores: Stores, node: Node, world: World
) -> None:
    for n in range(60):
        sick = node.model_copy(update={"name": f"gpu-<{n:03d}>"})
        state = State.HANDED_OVER if n % 2 else State.WATCHING
        stores.ledger.upsert_incident(view_of(sick, id=f"inc-{n}", fault="xid/79", state=state))
    stores.fences.freeze("all", "vera", "power works")
    stores.ledger.upsert_approval(asked(title="replace gpu-7?"))
    put(stores, case(id="case-9"))
    answer = await client.post("/v1/reports/handover", json={"since_s": 3_600}, headers=OTTO)
    assert answer.status_code == 200, answer.text
    first, *rest = world.messages()
    assert rest
    assert all(len(escape(one)) <= 3_000 for one in (first, *rest)), "Slack cuts there"
    for pressing in ("60 open incidents, 30 of them wait for a person", "1 freezes", "1 questions", "1 cases",
                     "frozen: all by vera: power works", "replace gpu-7?"):  # fmt: skip
        assert pressing in first, pressing
    said = "\n".join((first, *rest))
    assert [f"gpu-<{n:03d}>" in said for n in range(60)] == [True] * 60
    assert "case case-9" in said


def test_a_hand_over_that_is_too_long_for_a_chat_says_how_much_more_there_is(stores: Stores, node: Node) -> None:
    for n in range(600):
        sick = node.model_copy(update={"name": f"gpu-{n:03d}"})
        stores.ledger.upsert_incident(view_of(sick, id=f"inc-{n}", fault="xid/79", state=State.HANDED_OVER))
    found = take(stores, [], NOW, NOW - HOUR)
    texts = messages("Hand-over", found)
    assert len(texts) == MESSAGES
    said = sum(text.count("gpu-") for text in texts)
    assert texts[-1].endswith(f"… and {600 - said} lines more: `medevac handover` shows all")
    assert all(len(text) <= 3_000 for text in texts)


async def test_peoples_hands_stand_beside_what_it_would_have_done(
    client: httpx.AsyncClient, stores: Stores, node: Node
) -> None:
    stores.ledger.upsert_incident(view_of(node, fault="xid/79", state=State.OBSERVED))
    other = node.model_copy(update={"name": "untouched"})
    stores.ledger.upsert_incident(view_of(other, id="inc-2", fault="xid/119", state=State.OBSERVED))

    def line(incident: str, step: str, n: int, at: datetime, kind: str, text: str, **data: str) -> Line:
        return Line(key=StepKey(incident=incident, step=step, n=n), at=at, kind=kind, text=text, data=dict(data))

    at = NOW - 3 * HOUR
    stores.ledger.add_lines(
        [
            line("inc-1", "plan", 1, at, "decision", "observe", would="mark, drain, replace"),
            line("inc-1", "plan", 2, at + HOUR, "decision", "observe", would="mark, drain, replace"),
            line("inc-1", "meanwhile", 1, at, "meanwhile", "as the incident left it: in service"),
            line("inc-1", "meanwhile", 2, at + 2 * HOUR, "meanwhile", "it was booted again"),
            line("inc-2", "plan", 1, at, "decision", "observe", would="reboot"),
        ]
    )
    answer = await client.get("/v1/reports/shadow", headers=VERA)
    assert answer.status_code == 200, answer.text
    found = ShadowReport.model_validate(answer.json())
    touched = next(one for one in found.nodes if one.incident == "inc-1")
    assert [said.text for said in touched.would] == ["mark, drain, replace"]
    assert [said.text for said in touched.did] == ["it was booted again"]
    assert touched.first_hand_s == 7_200
    assert found.untouched == 1
    said = "\n".join(shadow_words(found))
    assert "120 min later" in said or "2 h later" in said
    assert "nothing that shows" in said
