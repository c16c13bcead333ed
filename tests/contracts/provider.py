from __future__ import annotations

from typing import ClassVar

import pytest

from activities.ports import MachineState, NotSent, Unclear, Unreadable, Verb
from medevac.fleet.node import Capability
from tests.contracts.rigs import RETRY_AFTER_S, ProviderRig, Trouble

TAG = "inc-1"
BOOTING = frozenset({Verb.REBOOT, Verb.REINSTALL})


def needs(verb: Verb) -> Capability:
    return Capability.REPLACE if verb is Verb.REQUEST else Capability(verb.value)


class ProviderContract:
    """Subclass it with `can` and a fixture `rig` that gives a `ProviderRig`. What isn't in `can` must be refused."""

    can: ClassVar[frozenset[Verb]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        sets = {"verb": self.can, "lasting": self.can - {Verb.TERMINATE}, "booting": self.can & BOOTING}
        for name, verbs in sets.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, sorted(verbs))

    def state(self, rig: ProviderRig) -> MachineState:
        return rig.provider.state(rig.node, TAG)

    def proved(self, verb: Verb, before: MachineState, after: MachineState) -> bool:
        match verb:
            case Verb.REBOOT:
                return after.boot_id != before.boot_id and after.ready
            case Verb.REINSTALL:
                return after.image_mark != before.image_mark and after.boot_id != before.boot_id and after.ready
            case Verb.RESET_GPU | Verb.RESTART_AGENT:
                return after.gpu_reset_mark != before.gpu_reset_mark and after.boot_id == before.boot_id
            case Verb.REQUEST:
                return after.successor is not None and after.successor_ready
            case Verb.TERMINATE:
                return not after.exists

    def test_a_healthy_machine_says_so(self, rig: ProviderRig) -> None:
        state = self.state(rig)
        assert state.exists
        assert state.ready
        assert state.boot_id == rig.node.machine.boot_id
        assert state.successor is None

    def test_the_machine_says_its_capabilities(self, rig: ProviderRig) -> None:
        assert rig.provider.name == rig.node.machine.provider
        assert rig.provider.capabilities(rig.node) == rig.node.machine.capabilities

    def test_what_cannot_be_read_says_so(self, rig: ProviderRig) -> None:
        rig.unreadable()
        with pytest.raises(Unreadable):
            self.state(rig)

    def test_what_it_cannot_is_refused(self, rig: ProviderRig) -> None:
        assert {verb for verb in Verb if needs(verb) in rig.provider.capabilities(rig.node)} == self.can
        for verb in set(Verb) - self.can:
            with pytest.raises(NotSent) as refusal:
                rig.provider.do(verb, rig.node, TAG)
            assert refusal.value.final
            assert rig.applied(verb) == 0

    def test_success_is_proved_after_its_time(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.provider.do(verb, rig.node, TAG)
        assert not self.proved(verb, before, self.state(rig))
        rig.pass_time()
        assert self.proved(verb, before, self.state(rig))
        assert (rig.calls(verb), rig.applied(verb)) == (1, 1)

    def test_refused_is_not_sent_for_good(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.REFUSE)
        with pytest.raises(NotSent) as refusal:
            rig.provider.do(verb, rig.node, TAG)
        assert refusal.value.final
        rig.pass_time()
        assert self.state(rig) == before
        assert rig.applied(verb) == 0

    def test_throttled_is_not_sent_and_says_when(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.THROTTLE)
        with pytest.raises(NotSent) as refusal:
            rig.provider.do(verb, rig.node, TAG)
        assert refusal.value.retry_after_s == RETRY_AFTER_S
        assert not refusal.value.final
        assert self.state(rig) == before
        rig.provider.do(verb, rig.node, TAG)
        rig.pass_time()
        assert self.proved(verb, before, self.state(rig))

    def test_a_time_out_before_the_effect_is_unclear(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.TIMEOUT_BEFORE)
        with pytest.raises(Unclear):
            rig.provider.do(verb, rig.node, TAG)
        rig.pass_time()
        assert self.state(rig) == before
        assert rig.applied(verb) == 0

    def test_a_time_out_after_the_effect_is_unclear_and_proved(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.TIMEOUT_AFTER)
        with pytest.raises(Unclear):
            rig.provider.do(verb, rig.node, TAG)
        rig.pass_time()
        assert self.proved(verb, before, self.state(rig))
        assert rig.applied(verb) == 1

    def test_done_that_was_not_is_never_proved(self, rig: ProviderRig, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.LIE)
        rig.provider.do(verb, rig.node, TAG)
        rig.pass_time()
        assert not self.proved(verb, before, self.state(rig))
        assert rig.applied(verb) == 0

    def test_a_machine_that_never_boots_proves_nothing(self, rig: ProviderRig, booting: Verb) -> None:
        before = self.state(rig)
        rig.never_boots()
        rig.provider.do(booting, rig.node, TAG)
        rig.pass_time()
        state = self.state(rig)
        assert not self.proved(booting, before, state)
        assert state.exists
        assert not state.ready

    def test_a_second_reboot_is_a_second_effect(self, rig: ProviderRig) -> None:
        """No idempotency token exists: whoever calls twice reboots twice."""
        rig.provider.do(Verb.REBOOT, rig.node, TAG)
        rig.provider.do(Verb.REBOOT, rig.node, TAG)
        assert (rig.calls(Verb.REBOOT), rig.applied(Verb.REBOOT)) == (2, 2)

    def test_a_machine_that_is_gone_is_refused(self, rig: ProviderRig, lasting: Verb) -> None:
        """Also when another machine answers under the node's name: that one stays untouched."""
        now = rig.swap()
        assert now.name == rig.node.name
        assert now.machine.id != rig.node.machine.id
        other = rig.provider.state(now, TAG)
        with pytest.raises(NotSent) as refusal:
            rig.provider.do(lasting, rig.node, TAG)
        assert refusal.value.final
        rig.pass_time()
        assert not self.state(rig).exists
        assert rig.provider.state(now, TAG) == other


class ReplacingContract(ProviderContract):
    """Of providers that can be asked for a successor and can end a machine."""

    def test_terminating_again_changes_nothing(self, rig: ProviderRig) -> None:
        """The machine's id is the token."""
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        rig.pass_time()
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        assert (rig.calls(Verb.TERMINATE), rig.applied(Verb.TERMINATE)) == (3, 1)

    def test_a_successor_is_found_by_its_tag_only(self, rig: ProviderRig) -> None:
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        rig.pass_time()
        assert self.state(rig).successor not in (None, rig.node.name)
        assert rig.provider.state(rig.node, "inc-2").successor is None

    def test_a_successor_is_still_found_when_the_old_machine_is_gone(self, rig: ProviderRig) -> None:
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        rig.pass_time()
        state = self.state(rig)
        assert not state.exists
        assert state.successor_ready

    def test_a_successor_may_never_join(self, rig: ProviderRig) -> None:
        rig.never_joins()
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        rig.pass_time()
        assert rig.applied(Verb.REQUEST) == 1
        assert self.state(rig).successor is None
