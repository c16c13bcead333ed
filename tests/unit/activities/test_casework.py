"""Cases with a real ticket desk: opened once, said what may be said, chased, proved, closed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.ports import CheckResult, Unreadable
from activities.storage.machine_tables import cases
from medevac.cases import course
from medevac.cases.case import CaseState
from medevac.cases.replies import Proposal
from medevac.incident import End, Outcome, State, StepKey, StepResult
from simulation.hazards import Manner, Read
from tests.contracts.rigs import Trouble
from tests.unit.activities.casehouse import PROVIDER, CaseHouse
from tests.unit.activities.house import run


@pytest.fixture
def at(tmp_path: Path) -> Iterator[CaseHouse]:
    house = CaseHouse(tmp_path)
    yield house
    house.close()


# -- opening ------------------------------------------------------------------------------------------------------


def test_the_first_ticket_of_a_provider_waits_for_a_persons_yes(at: CaseHouse) -> None:
    _, incident = at.sick()
    assert at.ask(incident).outcome is Outcome.BLOCKED
    stepped = at.step(incident)
    assert stepped.ask is not None
    assert "xid/79" in stepped.ask.waiter.text
    assert stepped.ask.waiter.plan_hash
    assert at.desk.opened() == 0

    _, second = at.sick(1)
    at.ask(second)
    assert at.step(second).ask is None, "one question, however many wait"

    assert at.step(incident, decided=True, reason="approved by ada").state is CaseState.WAITING
    assert at.step(second).state is CaseState.WAITING
    _, third = at.opened(2)
    assert at.case(third).ticket is not None, "once introduced nobody is asked"
    assert at.desk.opened() == 3


def test_a_no_is_a_hand_over_with_its_reason_and_is_not_asked_again(at: CaseHouse) -> None:
    _, incident = at.sick()
    at.ask(incident)
    assert at.step(incident, decided=False, reason="rejected by ada: not under contract").state is CaseState.FAILED
    result = at.ask(incident, n=2)
    assert result.outcome is Outcome.FAILED
    assert "not under contract" in result.reason
    assert at.desk.opened() == 0


def retry(at: CaseHouse, incident: str) -> None:
    at.cases.change(at.case(incident).id, lambda case: course.retried(case, "otto", at.now()), at.now())


def test_an_operators_retry_asks_again_and_lets_no_other_letter_out(at: CaseHouse) -> None:
    (_, incident), (_, second) = at.sick(), at.sick(1)
    at.ask(incident)
    at.ask(second)
    first = at.step(incident).ask
    at.step(incident, decided=False, reason="rejected by ada: not under contract")
    retry(at, incident)
    assert at.step(second).state is CaseState.ASKED
    again = at.step(incident).ask
    assert at.desk.opened() == 0, "an operator's wish is no yes"
    assert first is not None
    assert again is not None
    assert again.id != first.id, "a question that was answered is not put again"
    assert any("not let this letter go" in why for why in again.need.why)
    at.step(incident, decided=True, reason="approved by ada")
    assert at.step(second).state is CaseState.WAITING
    assert at.desk.opened() == 2


def test_what_people_have_denied_goes_by_no_yes_to_another_letter(at: CaseHouse) -> None:
    (_, incident), (_, second) = at.sick(), at.sick(1)
    at.ask(incident)
    at.step(incident, decided=False, reason="rejected by ada: not under contract")
    at.ask(second)
    at.step(second, decided=True, reason="approved by ada")
    retry(at, incident)
    assert at.step(incident).ask is not None
    assert at.desk.opened() == 1


def test_a_yes_that_came_to_nothing_lets_no_other_letter_out(at: CaseHouse) -> None:
    (_, incident), (_, second) = at.sick(), at.sick(1)
    at.ask(incident)
    at.ask(second)
    at.desk.unreadable()
    assert at.step(incident, decided=True, reason="approved by ada").state is CaseState.OPENING
    stepped = at.step(second)
    assert (stepped.state, stepped.ask) == (CaseState.ASKED, None), "it waits for what becomes of the first"
    at.desk.trouble(Trouble.REFUSE)
    assert at.step(incident).state is CaseState.FAILED
    assert at.step(second).ask is not None
    assert at.desk.opened() == 0


def test_once_there_is_a_ticket_a_retry_asks_nobody(at: CaseHouse) -> None:
    at.opened()
    _, second = at.sick(1)
    at.ask(second)
    at.desk.trouble(Trouble.REFUSE)
    assert at.step(second).state is CaseState.FAILED
    retry(at, second)
    assert at.step(second).state is CaseState.WAITING
    assert at.desk.opened() == 2


def test_a_ticket_is_opened_once_whoever_asks_how_often(at: CaseHouse) -> None:
    node, incident = at.opened()
    for n in (1, 2, 3):
        result = at.ask(incident, n=n)
        assert result.proof["ticket"] == "T-1"
    at.step(incident)
    assert at.desk.opened() == 1
    assert at.ticket()["key"] == at.case(incident).id
    assert node.machine.id in at.ticket()["title"]


def test_only_what_the_list_allows_leaves_the_company(at: CaseHouse) -> None:
    node, incident = at.opened()
    text = f"{at.ticket()['title']}\n{at.ticket()['body']}"
    assert node.machine.id in text
    assert "xid/79" in text
    for ours in (node.name, node.cluster, "secret-run"):
        assert ours not in text.replace(node.machine.id, "")
    case = at.case(incident)
    kept = (at.store.get(f"{incident}/{case.id}.json") or b"").decode()
    assert node.name in kept, "the whole bundle stays with us"


def test_another_list_says_more(tmp_path: Path) -> None:
    at = CaseHouse(tmp_path, share=["node", "reasons"])
    node, _ = at.opened()
    text = f"{at.ticket()['title']}\n{at.ticket()['body']}"
    assert node.name in text
    assert "secret-run" in text
    assert "xid/79" not in text
    assert node.machine.id not in text.replace(node.name, "")
    at.close()


def test_secrets_stay_out_of_tickets(tmp_path: Path) -> None:
    at = CaseHouse(tmp_path, share=["reasons"])
    _, incident = at.sick()
    at.ask(incident, body="login failed: password=hunter2 at https://bot:hunter2@bmc/")
    at.step(incident, decided=True)
    assert "login failed" in at.ticket()["body"]
    assert "hunter2" not in str(at.ticket())
    at.close()


def test_one_machine_is_one_case_and_the_ticket_is_told(at: CaseHouse) -> None:
    node, incident = at.opened()
    at.moves(node, "inc-again", 1, fault="xid/48")
    assert at.ask("inc-again").outcome is Outcome.ALREADY
    assert at.case("inc-again").id == at.case(incident).id
    at.step(incident)
    at.step(incident)
    assert at.desk.opened() == 1
    assert len([text for text in at.desk.comments("T-1") if "Also affected" in text and "xid/48" in text]) == 1


def test_at_most_five_in_an_hour_then_one_for_all_and_a_person(at: CaseHouse) -> None:
    nodes = [at.opened(n) for n in range(8)]
    assert at.desk.opened() == 6
    gathering = at.case(nodes[7][1])
    assert gathering.summary
    assert gathering.incidents == ("inc-5", "inc-6", "inc-7")
    assert len([saying for saying in at.said if saying.page and "more than 5" in saying.text]) == 1
    at.ahead = timedelta(minutes=11)
    at.step("inc-7")
    (comment,) = at.desk.comments("T-6")
    assert nodes[6][0].machine.id in comment
    assert nodes[7][0].machine.id in comment
    at.ahead = timedelta(minutes=61)
    at.opened(8)
    assert not at.case("inc-8").summary


@pytest.mark.parametrize("trouble", [Trouble.TIMEOUT_AFTER, Trouble.TIMEOUT_BEFORE])
def test_in_doubt_it_is_searched_for_and_never_opened_again(at: CaseHouse, trouble: Trouble) -> None:
    _, incident = at.sick()
    at.ask(incident)
    at.desk.trouble(trouble)
    if trouble is Trouble.TIMEOUT_AFTER:
        assert at.step(incident, decided=True).state is CaseState.WAITING
        assert at.desk.opened() == 1
        return
    with pytest.raises(ApplicationError) as caught:
        at.step(incident, decided=True)
    assert caught.value.type == "Unclear"
    with pytest.raises(ApplicationError, match="looking again"):
        at.step(incident)
    assert at.desk.opened() == 0


def test_a_refusal_is_final_and_says_why_without_its_secret(at: CaseHouse) -> None:
    _, incident = at.sick()
    at.ask(incident)
    at.desk.trouble(Trouble.REFUSE)
    stepped = at.step(incident, decided=True)
    assert stepped.state is CaseState.FAILED
    assert any(saying.page and "no such queue" in saying.text for saying in stepped.sayings)
    result = at.ask(incident, n=2)
    assert result.outcome is Outcome.FAILED
    assert "no such queue" in result.reason
    assert "hunter2" not in result.reason


def test_wrong_credentials_end_it_at_once(at: CaseHouse) -> None:
    _, incident = at.sick()
    at.ask(incident)
    at.desk.denied()
    assert at.step(incident, decided=True).state is CaseState.FAILED
    assert at.desk.opened() == 0


def test_a_desk_that_is_down_is_tried_again_slower_and_a_person_hears_of_it_once(at: CaseHouse) -> None:
    _, incident = at.sick()
    at.ask(incident)
    at.desk.unreadable()
    first = at.step(incident, decided=True)
    assert first.state is CaseState.OPENING
    pages, looks = [], [first.look_again_s]
    for minutes in (10, 50, 70, 90):
        at.ahead = timedelta(minutes=minutes)
        at.desk.unreadable()
        stepped = at.step(incident)
        pages += [saying for saying in stepped.sayings if saying.page]
        looks.append(stepped.look_again_s)
    assert len(pages) == 1
    assert looks == sorted(looks)
    assert looks[-1] > looks[0]
    assert at.step(incident).state is CaseState.WAITING
    assert at.desk.opened() == 1


# -- frozen -------------------------------------------------------------------------------------------------------


def thaw(at: CaseHouse, scope: str) -> None:
    for person in ("ada", "bob"):
        at.fences.thaw(scope, person)


@pytest.mark.parametrize("scope", ["all", "cluster/sim-a", "pool/sim-a/train", "provider/ironworks", "node/sim-a/{}"])
def test_a_freeze_holds_the_ticket_back_and_a_thaw_lets_it_go(at: CaseHouse, scope: str) -> None:
    node, incident = at.sick()
    at.moves(node, incident, rev=2, pool="train")
    at.ask(incident)
    scope = scope.format(node.name)
    at.fences.freeze(scope, "kim", "something is wrong")
    assert at.step(incident, decided=True, reason="ada said yes").state is CaseState.OPENING
    assert at.step(incident).state is CaseState.OPENING
    assert at.desk.opened() == 0
    waits = at.ask(incident, n=2)
    assert waits.outcome is Outcome.BLOCKED
    assert f"frozen: {scope} by kim: something is wrong" in waits.reason
    assert not at.said, "nobody is called: it is meant"
    thaw(at, scope)
    assert at.step(incident).state is CaseState.WAITING
    assert at.desk.opened() == 1
    assert "frozen" not in at.case(incident).why


def test_a_freeze_elsewhere_holds_no_ticket_back(at: CaseHouse) -> None:
    for scope in ("cluster/sim-b", "pool/sim-a/serve", "provider/another", "node/sim-a/another"):
        at.fences.freeze(scope, "kim", "something is wrong")
    _, incident = at.opened()
    assert at.case(incident).ticket is not None


def test_one_frozen_machine_holds_the_ticket_of_all(at: CaseHouse) -> None:
    for n in range(5):
        at.opened(n)
    _, incident = at.sick(5)
    at.ask(incident)
    frozen, another = at.sick(6)
    at.ask(another)
    assert at.case(incident).id == at.case(another).id
    at.fences.freeze(f"node/sim-a/{frozen.name}", "kim", "evidence")
    assert at.step(incident).state is CaseState.OPENING
    assert at.desk.opened() == 5


def test_a_freeze_while_the_ticket_is_looked_for_holds_it_back(at: CaseHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    _, incident = at.sick()
    at.ask(incident)
    tickets = at.registry.tickets(PROVIDER)
    with monkeypatch.context() as patch:
        find = tickets.find

        def slowly(key: str) -> object:
            at.fences.freeze("all", "kim", "something is wrong")
            return find(key)

        patch.setattr(tickets, "find", slowly)
        assert at.step(incident, decided=True, reason="ada said yes").state is CaseState.OPENING
    assert at.desk.opened() == 0
    assert at.case(incident).why.startswith("frozen: all by kim")
    thaw(at, "all")
    assert at.step(incident).state is CaseState.WAITING
    assert at.desk.opened() == 1


def test_a_freeze_that_cannot_be_read_is_not_none(at: CaseHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    _, incident = at.sick()
    at.ask(incident)

    def lost(*_: object, **__: object) -> None:
        raise Unreadable("ledger: no answer")

    with monkeypatch.context() as patch:
        patch.setattr(at.fences, "blocking", lost)
        with pytest.raises(ApplicationError, match="can't be read, so nothing is done"):
            at.step(incident, decided=True, reason="ada said yes")
    assert at.desk.opened() == 0
    assert at.step(incident, decided=True, reason="ada said yes").state is CaseState.WAITING


def test_what_is_begun_goes_on_in_a_freeze(at: CaseHouse) -> None:
    node, incident = at.opened()
    at.fences.freeze("all", "kim", "something is wrong")
    at.cases.change(at.case(incident).id, lambda case: case.commenting("It is in rack 4."), at.now())
    at.step(incident)
    assert any("rack 4" in said for said in at.desk.comments("T-1"))
    at.moves(node, incident, rev=3, end=End.RETURNED)
    at.step(incident)
    assert at.step(incident).state is CaseState.CLOSED


# -- replies, chasing, proof --------------------------------------------------------------------------------------


def test_a_reply_proposes_and_changes_nothing(at: CaseHouse) -> None:
    _, incident = at.opened()
    at.desk.answer("T-1", "The GPU has been replaced.\n\n> xid/79", author="support@provider")
    stepped = at.step(incident)
    assert stepped.state is CaseState.WAITING
    (saying,) = stepped.sayings
    assert "seems to say that it was replaced" in saying.text
    assert "“The GPU has been replaced.”" in saying.text
    assert "medevac confirm" in saying.text
    assert at.confirmed == []
    view = at.ledger.incident(incident)
    assert view is not None
    assert (view.state, view.end) == (State.HANDED_OVER, None)
    assert at.step(incident).sayings == (), "said once"
    assert not at.case(incident).settled


@pytest.mark.parametrize(
    "text", ["It has NOT been replaced yet.", "Out of office: the GPU has been replaced.", "Die GPU wurde getauscht."]
)
def test_what_claims_nothing_makes_nobody_look_at_the_boot(at: CaseHouse, text: str) -> None:
    node, incident = at.opened()
    at.desk.answer("T-1", text)
    rebooted(at, node)
    at.step(incident)
    assert at.confirmed == []


def rebooted(at: CaseHouse, node: Any) -> None:
    with at.world.write() as moment:
        moment.run("UPDATE machines SET boot_id = 'another-boot' WHERE id = ?", node.machine.id)
    found = at.registry.cluster(node.cluster).node(node.name)
    assert found is not None
    assert found.machine.boot_id != node.machine.boot_id


def test_another_boot_counts_only_with_the_providers_word(at: CaseHouse) -> None:
    node, incident = at.opened()
    rebooted(at, node)
    at.step(incident)
    assert at.confirmed == [], "a technician may be at it"
    at.desk.answer("T-1", "We have repaired the node.")
    at.step(incident)
    assert [one for one, _ in at.confirmed] == [incident]
    at.step(incident)
    assert len(at.confirmed) == 1


def test_another_machine_is_verified_by_its_incident_and_only_then_the_ticket_is_closed(at: CaseHouse) -> None:
    node, incident = at.opened()
    other = at.other_machine(node)
    at.step(incident)
    assert [one for one, _ in at.confirmed] == [incident]
    assert at.step(incident).state is CaseState.WAITING
    assert at.desk.closed("T-1") is False

    at.moves(other, incident, 2, state=State.ENDED, end=End.RETURNED)
    stepped = at.step(incident)
    assert stepped.state is CaseState.CLOSED
    assert at.desk.closed("T-1")
    assert "passed" in at.desk.comments("T-1")[-1]
    case = at.case(incident)
    assert other.machine.id in case.why
    assert case.closed_by == "medevac"
    assert node.machine.serial
    (part,) = at.cases.known_bad([node.machine.serial])
    assert (part.incident, part.machine_id) == (incident, node.machine.id)
    for about in (incident, case.id):
        (line,) = (line for line in at.ledger.lines(about) if line.kind == "parts")
        assert f"machine {node.machine.id} is now {other.machine.id}" in line.text


GPUS = ["GPU-0000000a-1111", "GPU-0000000b-1111", "GPU-0000000c-1111"]


def check_sees(at: CaseHouse, incident: str, n: int, *gpus: tuple[str, str, str]) -> None:
    """A check's line, as `verify` leaves it."""
    detail = {
        "gpus": [[f"pci:0000:{place}:00", f"gpu-uuid:{uuid}", f"gpu-serial:{serial}"] for place, uuid, serial in gpus]
    }
    check = CheckResult(passed=True, covers=(), started_at=at.now(), detail=detail)
    proof = {"check": check.model_dump(mode="json")}
    key = StepKey(incident=incident, step="verify", n=n)
    at.ledger.add_lines([StepResult(outcome=Outcome.DONE, proof=proof, at=at.now()).line(key, "verify", at.now())])


def test_a_gpu_that_was_exchanged_is_recorded_with_both_names_and_known_again(at: CaseHouse) -> None:
    node, incident = at.sick()
    check_sees(at, incident, 1, ("1b", GPUS[0], "1001"), ("4e", GPUS[1], "1002"))
    at.ask(incident, entities=("gpu:1", "pci:0000:4e:00"))
    at.step(incident, decided=True)
    assert f"GPU {GPUS[1]} = 1002 (at fault)" in at.ticket()["body"]
    assert f"GPU {GPUS[0]} = 1001," in at.ticket()["body"]

    check_sees(at, incident, 2, ("1b", GPUS[0], "1001"), ("4e", GPUS[2], "1003"))
    at.moves(node, incident, 2, state=State.ENDED, end=End.RETURNED)
    at.step(incident)
    case = at.case(incident)
    for about in (incident, case.id):
        (line,) = (line for line in at.ledger.lines(about) if line.kind == "parts")
        assert f"GPU {GPUS[1]} = 1002 is now GPU {GPUS[2]} = 1003" in line.text
    assert {part.serial for part in at.cases.known_bad([*GPUS, "1001", "1002", "1003", node.machine.serial or ""])} == {
        GPUS[1], "1002",
    }  # fmt: skip
    assert GPUS[2] in case.why


def test_a_machine_that_cannot_be_read_when_it_is_back_is_compared_once_it_can(
    at: CaseHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, incident = at.opened()
    at.moves(node, incident, 2, state=State.ENDED, end=End.RETURNED)
    at.world.script(Read.NODE, Manner.UNREADABLE)
    assert at.step(incident).state is CaseState.WAITING
    assert at.step(incident).state is CaseState.CLOSED
    assert at.cases.known_bad([node.machine.serial or ""]) == [], "it never left"


def test_what_has_left_is_remembered_though_the_worker_dies_before_the_case_says_so(
    at: CaseHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, incident = at.opened()
    other = at.other_machine(node)
    at.moves(other, incident, 2, state=State.ENDED, end=End.RETURNED)
    remember = at.cases.remember

    def dies(parts: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(at.cases, "remember", dies)
        with pytest.raises(SystemExit):
            at.step(incident)
    assert at.cases.remember == remember
    at.step(incident)
    at.step(incident)
    assert len(at.cases.known_bad([node.machine.serial or ""])) == 1
    assert len([line for line in at.ledger.lines(incident) if line.kind == "parts"]) == 1


def test_a_machine_that_comes_back_bad_is_told_and_chased(at: CaseHouse) -> None:
    node, incident = at.opened()
    other = at.other_machine(node)
    at.step(incident)
    at.moves(other, incident, 2)  # its check failed: it waits for people again
    at.ahead = timedelta(minutes=11)
    for _ in range(2):
        at.step(incident)
    assert [text for text in at.desk.comments("T-1") if "still there" in text][1:] == []
    assert at.case(incident).state is CaseState.WAITING


def test_silence_is_chased_by_the_policys_patience_and_then_a_person_is_called(at: CaseHouse) -> None:
    _, incident = at.opened()
    pages = []
    for days in (0.5, 1.1, 1.2, 2.2, 3.3, 4.4, 5.5):
        at.ahead = timedelta(days=days)
        pages += [saying.text for saying in at.step(incident).sayings if saying.page]
    assert len([text for text in at.desk.comments("T-1") if "any news" in text]) == 3
    assert len(pages) == 1
    assert "asked 3 times" in pages[0]


def test_a_ticket_closed_over_there_proves_nothing(at: CaseHouse) -> None:
    node, incident = at.opened()
    at.desk.close_there("T-1")
    stepped = at.step(incident)
    assert stepped.state is CaseState.WAITING
    assert any(saying.page and node.name in saying.text for saying in stepped.sayings)
    at.moves(node, incident, 2, state=State.ENDED, end=End.RETURNED)
    assert at.step(incident).state is CaseState.CLOSED


def test_a_desk_that_cannot_be_read_says_so_and_comes_back(at: CaseHouse) -> None:
    _, incident = at.opened()
    at.desk.unreadable()
    assert at.step(incident).state is CaseState.WAITING
    assert at.case(incident).trouble_since is not None
    at.step(incident)
    assert at.case(incident).trouble_since is None


def test_rights_that_are_taken_away_meanwhile_are_told_at_once_and_once(at: CaseHouse) -> None:
    _, incident = at.opened()
    pages, looks = [], []
    for minutes in (0, 20, 90):
        at.ahead = timedelta(minutes=minutes)
        at.desk.denied()
        stepped = at.step(incident)
        pages.append([saying.text for saying in stepped.sayings if saying.page])
        looks.append(stepped.look_again_s)
    assert [len(each) for each in pages] == [1, 0, 0]
    assert "77" in pages[0][0]
    assert looks == sorted(looks), "asked less and less"
    assert at.step(incident).state is CaseState.WAITING
    assert at.case(incident).trouble_since is None


def test_what_nobody_has_foreseen_of_a_desk_is_told_and_not_tried_for_ever(
    at: CaseHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, incident = at.opened()

    def odd(*_: object) -> None:
        raise KeyError("created")

    with monkeypatch.context() as patch:
        patch.setattr(at.desk.tickets, "thread", odd)
        stepped = at.step(incident)
        assert [saying.text for saying in stepped.sayings if saying.page and "KeyError" in saying.text]
        assert not at.step(incident).sayings
    assert at.step(incident).state is CaseState.WAITING
    assert at.case(incident).trouble_since is None


def test_another_ticket_system_is_never_told_of_a_ticket_that_it_does_not_have(at: CaseHouse) -> None:
    node, incident = at.opened()
    at.cases.change(at.case(incident).id, lambda one: one.commenting("Rack 4."), at.now())
    at.desk.tickets.name = "another"
    (saying,) = (saying for saying in at.step(incident).sayings if saying.page)
    assert "is in desk" in saying.text
    assert "another" in saying.text
    at.moves(node, incident, 2, state=State.ENDED, end=End.RETURNED)
    stepped = at.step(incident)
    assert stepped.state is CaseState.CLOSED
    assert any("close T-1 by hand" in saying.text for saying in stepped.sayings)
    assert not at.desk.comments("T-1")
    assert at.desk.closed("T-1") is False


def test_a_case_that_the_ledger_has_lost_ends_with_a_page(at: CaseHouse) -> None:
    _, incident = at.opened()
    case = at.case(incident)
    with at.db.transaction() as connection:
        connection.execute(sa.delete(cases).where(cases.c.id == case.id))
    request = sig.CaseStepRequest(case=case.id, n=1, told=3)
    stepped = run(at.casework.step, request, start_to_close_s=60)
    assert not stepped.state.open
    ((saying,),) = (stepped.sayings,)
    assert saying.page
    assert saying.n > 3, "one that was said before isn't said again"


def test_no_ticket_system_is_a_reason(at: CaseHouse) -> None:
    key = StepKey(incident="inc-0", step="ticket")
    result = run(at.ticketing.ticket, sig.TicketRequest(key=key, provider="nowhere", title="t", body="b"))
    assert result.outcome is Outcome.FAILED
    assert "nowhere" in result.reason
    assert PROVIDER in result.reason


def test_a_reply_is_kept_without_its_secrets(at: CaseHouse) -> None:
    _, incident = at.opened()
    at.desk.answer("T-1", "Log in with password=hunter2 please?")
    at.step(incident)
    assert "hunter2" not in str(at.said)
    (heard,) = at.case(incident).heard
    assert heard.proposal is Proposal.ANSWER
    assert "hunter2" not in heard.text + heard.quote
