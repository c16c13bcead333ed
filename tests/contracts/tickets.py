from __future__ import annotations

import pytest

from activities.ports import Discloses, HasThread, NotSent, TicketRef, Unclear, Unreadable
from tests.contracts.rigs import RETRY_AFTER_S, ThreadRig, TicketsRig, Trouble

KEY = "inc-1/ticket/1"


class TicketsContract:
    """Subclass it with a fixture `rig` that gives a `TicketsRig`."""

    retry_after_s: float | None = RETRY_AFTER_S
    """Of a system that says it; others name a time of their own."""

    def open(self, rig: TicketsRig) -> str:
        return rig.tickets.open(KEY, "xid/79 on m-1", "What was tried:\n- reboot", rig.provider).id

    def test_nothing_is_found_before_it_is_opened(self, rig: TicketsRig) -> None:
        assert rig.tickets.find(KEY) is None

    def test_an_open_ticket_is_found_by_its_key_only(self, rig: TicketsRig) -> None:
        opened = self.open(rig)
        found = rig.tickets.find(KEY)
        assert found is not None
        assert found.id == opened
        assert rig.tickets.find("inc-1/ticket/11") is None
        assert rig.tickets.find("inc-1/ticket") is None

    def test_refused_is_not_sent(self, rig: TicketsRig) -> None:
        rig.trouble(Trouble.REFUSE)
        with pytest.raises(NotSent) as refusal:
            self.open(rig)
        assert refusal.value.final
        assert rig.opened() == 0

    def test_throttled_is_not_sent(self, rig: TicketsRig) -> None:
        rig.trouble(Trouble.THROTTLE)
        with pytest.raises(NotSent) as refusal:
            self.open(rig)
        assert not refusal.value.final
        if self.retry_after_s is not None:
            assert refusal.value.retry_after_s == self.retry_after_s
        assert rig.opened() == 0

    @pytest.mark.parametrize(("trouble", "count"), [(Trouble.TIMEOUT_BEFORE, 0), (Trouble.TIMEOUT_AFTER, 1)])
    def test_after_a_time_out_the_search_tells(self, rig: TicketsRig, trouble: Trouble, count: int) -> None:
        rig.trouble(trouble)
        with pytest.raises(Unclear):
            self.open(rig)
        assert rig.opened() == count
        assert (rig.tickets.find(KEY) is not None) == bool(count)

    def test_what_cannot_be_searched_says_so(self, rig: TicketsRig) -> None:
        rig.unreadable()
        with pytest.raises(Unreadable):
            rig.tickets.find(KEY)


class ThreadContract(TicketsContract):
    """Of systems whose tickets can be read, answered and closed. Subclass it with a `rig` that gives a `ThreadRig`."""

    def ticket(self, rig: ThreadRig) -> tuple[HasThread, TicketRef]:
        assert isinstance(rig.tickets, HasThread)
        assert isinstance(rig.tickets, Discloses)
        return rig.tickets, rig.tickets.open(KEY, "xid/79 on m-1", "What was tried:\n- reboot", rig.provider)

    def test_replies_are_read_in_order_and_told_from_ours(self, rig: ThreadRig) -> None:
        tickets, ref = self.ticket(rig)
        rig.answer(ref.id, "Which rack?\nRegards")
        tickets.comment(ref, KEY, f"{KEY}/comment/1", "r1")
        rig.answer(ref.id, "Thanks, ü!")
        thread = tickets.thread(ref, KEY)
        assert thread.open
        theirs = [said for said in thread.said if not said.ours]
        assert [said.text.strip() for said in theirs] == ["Which rack?\nRegards", "Thanks, ü!"]
        assert len({said.id for said in thread.said}) == len(thread.said)
        assert [said.id for said in tickets.thread(ref, KEY).said] == [said.id for said in thread.said]

    def test_a_comment_carries_its_token(self, rig: ThreadRig) -> None:
        tickets, ref = self.ticket(rig)
        tickets.comment(ref, KEY, f"{KEY}/comment/1", "any news?")
        assert len(rig.comments(ref.id)) == 1
        mine = [said for said in tickets.thread(ref, KEY).said if f"[{KEY}/comment/1]" in said.text]
        assert len(mine) == 1
        assert mine[0].ours
        assert not any(f"[{KEY}/comment/11]" in said.text for said in tickets.thread(ref, KEY).said)

    def test_closed_twice_is_closed(self, rig: ThreadRig) -> None:
        tickets, ref = self.ticket(rig)
        tickets.close(ref, KEY)
        if rig.closed(ref.id) is not None:
            assert rig.closed(ref.id)
            assert not tickets.thread(ref, KEY).open
        tickets.close(ref, KEY)
        assert rig.tickets.find(KEY) is not None, "a closed one is still known"

    def test_a_thread_that_cannot_be_read_says_so(self, rig: ThreadRig) -> None:
        tickets, ref = self.ticket(rig)
        rig.unreadable()
        with pytest.raises(Unreadable):
            tickets.thread(ref, KEY)
