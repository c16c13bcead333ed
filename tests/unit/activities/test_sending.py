"""What takes no token: one for a key, whatever dies, and never a second one in doubt."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.folding import Folding
from activities.intended import Rejected
from activities.messaging import MessageActivities
from activities.ports import NotSent, Unreadable
from medevac.incident import Outcome, StepKey
from simulation.hazards import Effect, Manner, Read
from tests.unit.activities.house import INCIDENT, House, environment, run

KEY = StepKey(incident=INCIDENT, step="ticket")
MESSAGE = sig.NotifyRequest(key=StepKey(incident=INCIDENT, step="notify"), thread=INCIDENT, text="xid/79 → reboot")


@pytest.fixture
def messages(house: House) -> MessageActivities:
    return MessageActivities(house.registry, house.once, Folding(house.ledger, house.bounded))


def sent(house: House, effect: Effect) -> int:
    return sum(e.applied for e in house.world.effects(verb=effect))


def send(house: House, at: str = "ticket") -> bool:
    """A ticket, by itself. Whether this call sent it."""
    tickets = house.parts.tickets

    def once(_: object) -> bool:
        key = KEY.model_copy(update={"step": at})
        name = str(key)
        _ref, new = house.once.send(
            key, "ticket", find=lambda: tickets.find(name), send=lambda: tickets.open(name, "t", "b", "skyline")
        )
        return new

    return bool(environment(whole_s=60).run(once, None))


def test_what_is_sent_once_is_found_again(house: House) -> None:
    assert (send(house), send(house)) == (True, False)
    assert sent(house, Effect.TICKET) == 1


def test_one_that_was_sent_though_nobody_heard_is_found(house: House) -> None:
    house.world.script(Effect.TICKET, Manner.TIMEOUT_AFTER)
    assert send(house)
    assert sent(house, Effect.TICKET) == 1


def test_one_that_is_in_doubt_is_searched_for_and_never_sent_again(house: House) -> None:
    house.world.script(Effect.TICKET, Manner.TIMEOUT_BEFORE)
    with pytest.raises(ApplicationError) as caught:
        send(house)
    assert caught.value.type == "Unclear"
    with pytest.raises(ApplicationError, match="looking again"):
        send(house)
    assert sent(house, Effect.TICKET) == 0
    assert len(house.world.effects(verb=Effect.TICKET)) == 1


def test_surely_not_sent_is_sent_later_and_refused_is_said(house: House) -> None:
    house.world.script(Effect.TICKET, Manner.THROTTLE, times=2)
    for _ in range(2):
        with pytest.raises(ApplicationError) as caught:
            send(house)
        assert caught.value.type == "NotSent"
    assert send(house)
    house.world.script(Effect.TICKET, Manner.REFUSE)
    with pytest.raises(Rejected):
        send(house, "another")
    assert sent(house, Effect.TICKET) == 1


def test_where_it_cannot_be_searched_or_intended_nothing_is_sent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.world.script(Read.TICKETS, Manner.UNREADABLE)
    with pytest.raises(ApplicationError, match="can't be read"):
        send(house)

    def dead(*_: object) -> None:
        raise Unreadable("disk is gone")

    monkeypatch.setattr(house.ledger, "add_lines", dead)
    with pytest.raises(ApplicationError, match="the ledger can't be read"):
        send(house)
    assert house.world.effects(verb=Effect.TICKET) == []


def test_secrets_stay_out_of_chat(house: House, messages: MessageActivities) -> None:
    secret = "login failed: password=hunter2 at https://bot:hunter2@bmc/"
    run(messages.notify, MESSAGE.model_copy(update={"text": secret}))
    assert "hunter2" not in house.world.messages()[0]
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
