from __future__ import annotations

import pytest

from activities.ports import NotSent, Unclear
from tests.contracts.rigs import RETRY_AFTER_S, ChatRig, Trouble

KEY = "inc-1/notify/1"


class ChatContract:
    """Subclass it with a fixture `rig` that gives a `ChatRig`. Without search, override `searchable`."""

    searchable = True

    def post(self, rig: ChatRig) -> str:
        return rig.chat.post(KEY, "inc-1", "gpu-a-001: xid/79 → reboot")

    def test_a_message_is_posted_and_found(self, rig: ChatRig) -> None:
        assert rig.chat.find(KEY) is None
        posted = self.post(rig)
        assert rig.posted() == 1
        assert rig.chat.find(KEY) == (posted if self.searchable else None)
        assert rig.chat.find("inc-1/notify/11") is None

    @pytest.mark.parametrize("trouble", [Trouble.REFUSE, Trouble.THROTTLE])
    def test_refused_is_not_sent(self, rig: ChatRig, trouble: Trouble) -> None:
        rig.trouble(trouble)
        with pytest.raises(NotSent) as refusal:
            self.post(rig)
        assert refusal.value.final == (trouble is Trouble.REFUSE)
        assert refusal.value.retry_after_s == (RETRY_AFTER_S if trouble is Trouble.THROTTLE else None)
        assert rig.posted() == 0

    @pytest.mark.parametrize(("trouble", "count"), [(Trouble.TIMEOUT_BEFORE, 0), (Trouble.TIMEOUT_AFTER, 1)])
    def test_after_a_time_out_the_search_tells(self, rig: ChatRig, trouble: Trouble, count: int) -> None:
        rig.trouble(trouble)
        with pytest.raises(Unclear):
            self.post(rig)
        assert rig.posted() == count
        if self.searchable:
            assert (rig.chat.find(KEY) is not None) == bool(count)
