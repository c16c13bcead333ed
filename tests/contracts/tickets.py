from __future__ import annotations

import pytest

from activities.ports import NotSent, Unclear, Unreadable
from tests.contracts.rigs import RETRY_AFTER_S, TicketsRig, Trouble

KEY = "inc-1/ticket/1"


class TicketsContract:
    """Subclass it with a fixture `rig` that gives a `TicketsRig`."""

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
        assert refusal.value.retry_after_s == RETRY_AFTER_S
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
