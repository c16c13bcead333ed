"""Tickets and messages take no token: one for a key, whatever dies, and never a second one in doubt."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.folding import Folding
from activities.messaging import MessageActivities
from activities.ports import NotSent, Unreadable
from activities.ticketing import TicketActivities
from medevac.incident import Line, Outcome, StepKey
from simulation.hazards import Effect, Manner, Read
from tests.unit.activities.house import INCIDENT, House, environment, run

KEY = StepKey(incident=INCIDENT, step="ticket")
TICKET = sig.TicketRequest(key=KEY, provider="skyline", title="xid/79 on i-1", body="tried: reboot")
MESSAGE = sig.NotifyRequest(key=StepKey(incident=INCIDENT, step="notify"), thread=INCIDENT, text="xid/79 → reboot")


@pytest.fixture
def tickets(house: House) -> TicketActivities:
    return TicketActivities(house.registry, house.once)


@pytest.fixture
def messages(house: House) -> MessageActivities:
    return MessageActivities(house.registry, house.once, Folding(house.ledger, house.bounded))


def sent(house: House, effect: Effect) -> int:
    return sum(e.applied for e in house.world.effects(verb=effect))


def test_a_ticket_is_opened_once_and_found_again(house: House, tickets: TicketActivities) -> None:
    first, again = run(tickets.ticket, TICKET), run(tickets.ticket, TICKET, attempt=2)
    assert (first.outcome, again.outcome) == (Outcome.DONE, Outcome.ALREADY)
    assert first.proof["ticket"] == again.proof["ticket"]
    assert sent(house, Effect.TICKET) == 1


def test_one_that_was_sent_though_nobody_heard_is_found(house: House, tickets: TicketActivities) -> None:
    house.world.script(Effect.TICKET, Manner.TIMEOUT_AFTER)
    assert run(tickets.ticket, TICKET).outcome is Outcome.DONE
    assert sent(house, Effect.TICKET) == 1


def test_one_that_is_in_doubt_is_searched_for_and_never_sent_again(house: House, tickets: TicketActivities) -> None:
    house.world.script(Effect.TICKET, Manner.TIMEOUT_BEFORE)
    with pytest.raises(ApplicationError) as caught:
        run(tickets.ticket, TICKET)
    assert caught.value.type == "Unclear"
    with pytest.raises(ApplicationError, match="looking again"):
        run(tickets.ticket, TICKET, attempt=2)
    assert sent(house, Effect.TICKET) == 0
    assert len(house.world.effects(verb=Effect.TICKET)) == 1


def test_the_search_ends_with_the_steps_time(house: House, tickets: TicketActivities) -> None:
    # Killed between intent and call, 50 of 60 seconds ago.
    old = environment(whole_s=60, ago_s=50)
    house.ledger.add_lines([Line(key=KEY, at=old.info.scheduled_time, kind="intent", text="ticket: try 1")])
    result = old.run(tickets.ticket, TICKET)
    assert result.outcome is Outcome.TIMED_OUT
    assert "not sent again" in result.reason
    assert house.world.effects(verb=Effect.TICKET) == []


def test_surely_not_sent_is_sent_later_and_refused_is_said(house: House, tickets: TicketActivities) -> None:
    env = environment()
    house.world.script(Effect.TICKET, Manner.THROTTLE, times=2)
    for _ in range(2):
        with pytest.raises(ApplicationError) as caught:
            env.run(tickets.ticket, TICKET)
        assert caught.value.type == "NotSent"
    assert env.run(tickets.ticket, TICKET).outcome is Outcome.DONE
    house.world.script(Effect.TICKET, Manner.REFUSE)
    other = TICKET.model_copy(update={"key": KEY.model_copy(update={"n": 2})})
    assert env.run(tickets.ticket, other).outcome is Outcome.FAILED
    assert sent(house, Effect.TICKET) == 1


def test_no_ticket_system_and_an_unreadable_one(house: House, tickets: TicketActivities) -> None:
    elsewhere = TICKET.model_copy(update={"provider": "nowhere"})
    result = run(tickets.ticket, elsewhere)
    assert result.outcome is Outcome.FAILED
    assert "nowhere" in result.reason
    house.world.script(Read.TICKETS, Manner.UNREADABLE)
    with pytest.raises(ApplicationError, match="can't be read"):
        run(tickets.ticket, TICKET)
    assert house.world.effects(verb=Effect.TICKET) == []


def test_a_ticket_waits_for_its_intent(
    house: House, tickets: TicketActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise Unreadable("disk is gone")

    monkeypatch.setattr(house.ledger, "add_lines", dead)
    with pytest.raises(ApplicationError, match="the ledger can't be read"):
        run(tickets.ticket, TICKET)
    assert house.world.effects(verb=Effect.TICKET) == []


def test_secrets_stay_out_of_tickets_and_chat(
    house: House, tickets: TicketActivities, messages: MessageActivities
) -> None:
    secret = "login failed: password=hunter2 at https://bot:hunter2@bmc/"
    run(tickets.ticket, TICKET.model_copy(update={"title": secret, "body": secret}))
    run(messages.notify, MESSAGE.model_copy(update={"text": secret}))
    with house.world.read() as moment:
        row = moment.one("SELECT title, body FROM tickets")
    assert row is not None
    assert "hunter2" not in row["title"] + row["body"] + house.world.messages()[0]
    assert "login failed" in house.world.messages()[0]


def test_a_message_is_said_once(house: House, messages: MessageActivities) -> None:
    assert run(messages.notify, MESSAGE).outcome is Outcome.DONE
    assert run(messages.notify, MESSAGE, attempt=2).outcome is Outcome.ALREADY
    assert house.world.messages() == [MESSAGE.text]


def test_a_page_calls_people(house: House, messages: MessageActivities) -> None:
    run(messages.notify, MESSAGE.model_copy(update={"page": True}))
    assert house.world.messages()[0].startswith("@here")


def test_a_message_does_not_wait_for_a_dead_ledger(
    house: House, messages: MessageActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise Unreadable("disk is gone")

    monkeypatch.setattr(house.ledger, "add_lines", dead)
    assert run(messages.notify, MESSAGE).outcome is Outcome.DONE
    assert len(house.world.messages()) == 1


def test_a_chat_that_cannot_be_searched_never_says_it_twice(
    house: House, messages: MessageActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[str] = []

    def post(key: str, thread: str, text: str) -> str:
        posted.append(text)
        raise TimeoutError("no answer")

    monkeypatch.setattr(house.registry.chat, "find", lambda key: None)
    monkeypatch.setattr(house.registry.chat, "post", post)
    env = environment(whole_s=60)
    for _ in range(3):
        with pytest.raises(ApplicationError):
            env.run(messages.notify, MESSAGE)
    old = environment(whole_s=60, ago_s=55)
    assert old.run(messages.notify, MESSAGE).outcome is Outcome.TIMED_OUT
    assert len(posted) == 1


def test_a_throttled_message_keeps_its_retry_after(
    house: House, messages: MessageActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> str:
        raise NotSent("429", retry_after_s=30)

    monkeypatch.setattr(house.registry.chat, "post", busy)
    with pytest.raises(ApplicationError) as caught:
        run(messages.notify, MESSAGE)
    delay = caught.value.next_retry_delay
    assert delay is not None
    assert delay.total_seconds() >= 30
