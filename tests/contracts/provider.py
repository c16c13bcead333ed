"""What every provider must do: at its port, and through the activities that call it with a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.last_look import Frozen, looking
from activities.ports import Cluster, HasRelease, HasSteps, MachineState, MakesElsewhere, NotSent, Unreadable, Verb
from activities.proof import World, missing
from activities.steps import joined
from medevac.fleet.node import Capability, Machine, Node
from medevac.fleet.places import Offer
from medevac.incident import Outcome
from tests.contracts.desk import INCIDENT, Desk, RigCluster
from tests.contracts.rigs import RETRY_AFTER_S, ProviderRig, Trouble

TAG = INCIDENT
IN_VAIN_S = 0.5
"""How long a proof is waited for that can't come."""
BOOTING = frozenset({Verb.REBOOT, Verb.REINSTALL})
REPLACING = frozenset({Verb.REQUEST, Verb.TERMINATE})


def needs(verb: Verb) -> Capability:
    return Capability.REPLACE if verb is Verb.REQUEST else Capability(verb.value)


class ProviderContract:
    """Subclass it with `can` and a fixture `rig` that gives a `ProviderRig`. What isn't in `can` must be refused."""

    can: ClassVar[frozenset[Verb]]
    instant: ClassVar[frozenset[Verb]] = frozenset()
    """Verbs whose effect this far side shows at once; everywhere else a proof that is there at once is a wrong one."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        sets = {
            "verb": self.can, "lasting": self.can - {Verb.TERMINATE}, "booting": self.can & BOOTING,
            "reboot": self.can & {Verb.REBOOT},
        }  # fmt: skip
        for name, verbs in sets.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, sorted(verbs))

    @pytest.fixture
    def desk(self, rig: ProviderRig, tmp_path: Path) -> Iterator[Desk]:
        desk = Desk(rig, tmp_path / "ledger.sqlite")
        yield desk
        desk.close()

    def state(self, rig: ProviderRig, tag: str = TAG) -> MachineState:
        return joined(cast(Cluster, RigCluster(rig)), rig.provider.state(rig.node, tag))

    def carry_on(self, rig: ProviderRig, *tags: str) -> None:
        """What is done while the proof of a request is waited for, where it takes several calls."""
        rig.pass_time()
        for tag in tags:
            if isinstance(rig.provider, HasSteps):
                rig.provider.proceed(Verb.REQUEST, rig.node, tag)

    def proved(self, rig: ProviderRig, verb: Verb, before: MachineState) -> bool:
        world = World(RigCluster(rig).node(rig.node.name), self.state(rig))
        return missing(verb, rig.node.identity, before, world) is None

    # -- reading -----------------------------------------------------------------------------------------------

    def test_a_healthy_machine_says_so(self, rig: ProviderRig) -> None:
        state = self.state(rig)
        assert state.exists
        assert state.ready
        assert state.boot_id in (None, rig.node.machine.boot_id)
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

    # -- one call ----------------------------------------------------------------------------------------------

    def test_success_is_proved_after_its_time(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        before = self.state(rig)
        assert desk.act(verb).outcome is Outcome.DONE
        assert verb in self.instant or not self.proved(rig, verb, before)
        rig.pass_time()
        proof = desk.prove(verb)
        assert proof.outcome is Outcome.DONE, proof.reason
        assert (rig.calls(verb), rig.applied(verb)) == (1, 1)

    def test_the_same_key_again_has_no_second_effect(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        desk.act(verb)
        for attempt in (2, 3):
            assert desk.act(verb, attempt=attempt).outcome in (Outcome.ALREADY, Outcome.REFUSED)
        rig.pass_time()
        desk.act(verb, attempt=4)
        assert (rig.calls(verb), rig.applied(verb)) == (1, 1)

    def test_refused_is_not_sent_for_good_and_says_why(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.REFUSE)
        result = desk.act(verb)
        assert result.outcome is Outcome.FAILED
        assert "refuse" in result.reason
        rig.pass_time()
        assert self.state(rig) == before
        assert rig.applied(verb) == 0

    def test_a_freeze_that_comes_while_it_looks_stops_the_call(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        before = self.state(rig)

        def frozen() -> None:
            raise Frozen("frozen: all by kim: wait", retry_after_s=1.0)

        with looking(frozen), pytest.raises(Frozen):
            rig.provider.do(verb, rig.node, TAG)
        rig.pass_time()
        assert rig.calls(verb) == rig.applied(verb) == 0
        assert self.state(rig) == before
        assert desk.act(verb).outcome is Outcome.DONE
        rig.pass_time()
        assert desk.prove(verb).outcome is Outcome.DONE
        assert (rig.calls(verb), rig.applied(verb)) == (1, 1)

    def test_throttled_is_not_sent_says_when_and_fails_nothing(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        before = self.state(rig)
        rig.trouble(verb, Trouble.THROTTLE)
        with pytest.raises(ApplicationError) as caught:
            desk.act(verb)
        assert caught.value.next_retry_delay is not None
        assert RETRY_AFTER_S <= caught.value.next_retry_delay.total_seconds() <= RETRY_AFTER_S * 1.2
        assert not caught.value.non_retryable
        assert self.state(rig) == before
        assert desk.act(verb, attempt=2).outcome is Outcome.DONE
        rig.pass_time()
        assert desk.prove(verb).outcome is Outcome.DONE
        assert rig.applied(verb) == 1

    def test_a_time_out_before_the_effect_is_unclear(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        rig.trouble(verb, Trouble.TIMEOUT_BEFORE)
        result = desk.act(verb)
        assert result.outcome is Outcome.DONE
        assert result.proof["unclear"] is True
        rig.pass_time()
        assert desk.prove(verb, deadline_s=IN_VAIN_S).outcome is Outcome.TIMED_OUT
        assert rig.applied(verb) == 0

    def test_a_time_out_after_the_effect_is_unclear_and_proved(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        rig.trouble(verb, Trouble.TIMEOUT_AFTER)
        assert desk.act(verb).proof["unclear"] is True
        rig.pass_time()
        proof = desk.prove(verb)
        assert proof.outcome is Outcome.DONE, proof.reason
        assert rig.applied(verb) == 1

    def test_done_that_was_not_is_never_proved(self, rig: ProviderRig, desk: Desk, verb: Verb) -> None:
        rig.trouble(verb, Trouble.LIE)
        assert desk.act(verb).outcome is Outcome.DONE
        rig.pass_time()
        assert desk.prove(verb, deadline_s=IN_VAIN_S).outcome is Outcome.TIMED_OUT
        assert rig.applied(verb) == 0

    def test_a_second_reboot_is_a_second_effect(self, rig: ProviderRig, reboot: Verb) -> None:
        """No idempotency token exists: whoever calls twice reboots twice. Hence the intents."""
        rig.provider.do(reboot, rig.node, TAG)
        rig.provider.do(reboot, rig.node, TAG)
        assert (rig.calls(reboot), rig.applied(reboot)) == (2, 2)

    # -- machines that aren't what they were -------------------------------------------------------------------

    def test_a_machine_that_never_boots_proves_nothing(self, rig: ProviderRig, desk: Desk, booting: Verb) -> None:
        rig.never_boots()
        desk.act(booting)
        rig.pass_time()
        proof = desk.prove(booting, deadline_s=IN_VAIN_S)
        assert proof.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)
        assert any(lack in proof.reason for lack in ("boot id is still", "ready", "has not changed")), proof.reason
        state = self.state(rig)
        assert state.exists
        assert not state.ready

    def test_a_machine_that_is_gone_is_refused(self, rig: ProviderRig, desk: Desk, lasting: Verb) -> None:
        rig.lose()
        assert not self.state(rig).exists
        assert desk.act(lasting).outcome is Outcome.REFUSED
        with pytest.raises(NotSent) as refusal:
            rig.provider.do(lasting, rig.node, TAG)
        assert refusal.value.final
        assert rig.applied(lasting) == 0

    def test_another_machine_under_the_name_stays_untouched(self, rig: ProviderRig, desk: Desk, lasting: Verb) -> None:
        now = rig.swap()
        assert now.name == rig.node.name
        assert now.machine.id != rig.node.machine.id
        other = rig.provider.state(now, TAG)
        result = desk.act(lasting)
        assert result.outcome is Outcome.REFUSED
        assert "in the plan" in result.reason
        with pytest.raises(NotSent) as refusal:
            rig.provider.do(lasting, rig.node, TAG)
        assert refusal.value.final
        rig.pass_time()
        assert not self.state(rig).exists
        assert rig.provider.state(now, TAG) == other

    def test_another_machine_proves_nothing_for_ours(self, rig: ProviderRig, desk: Desk, booting: Verb) -> None:
        desk.act(booting)
        rig.swap()
        rig.pass_time()
        proof = desk.prove(booting)
        assert proof.outcome is Outcome.REFUSED
        assert "answers under this name" in proof.reason


class ReplacingContract(ProviderContract):
    """Of providers that can be asked for a successor and can end a machine."""

    def test_terminating_again_changes_nothing(self, rig: ProviderRig) -> None:
        """The machine's id is the token."""
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        rig.pass_time()
        rig.provider.do(Verb.TERMINATE, rig.node, TAG)
        assert rig.applied(Verb.TERMINATE) == 1

    def test_a_successor_is_found_by_its_tag_only(self, rig: ProviderRig) -> None:
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        self.carry_on(rig, TAG)
        assert self.state(rig).successor not in (None, rig.node.name)
        assert self.state(rig, "inc-2").successor is None
        assert self.state(rig, "inc").successor is None

    def test_a_replacement_is_asked_for_proved_and_ends_the_old_machine(self, rig: ProviderRig, desk: Desk) -> None:
        assert desk.act(Verb.REQUEST).outcome is Outcome.DONE
        assert desk.act(Verb.TERMINATE).outcome is Outcome.DONE
        rig.pass_time()
        proof = desk.prove(Verb.REQUEST, Verb.TERMINATE)
        assert proof.outcome is Outcome.DONE, proof.reason
        assert proof.successor not in (None, rig.node.name)
        assert not self.state(rig).exists
        assert (rig.applied(Verb.REQUEST), rig.applied(Verb.TERMINATE), rig.billed()) == (1, 1, 1)

    def test_a_successor_is_proved_while_the_old_machine_is_still_there(self, rig: ProviderRig, desk: Desk) -> None:
        """As a repair does it: only then is the old one ended."""
        assert desk.act(Verb.REQUEST).outcome is Outcome.DONE
        rig.pass_time()
        came = desk.prove(Verb.REQUEST)
        assert came.outcome is Outcome.DONE, came.reason
        assert came.successor not in (None, rig.node.name)
        assert self.state(rig).exists
        assert desk.act(Verb.TERMINATE).outcome is Outcome.DONE
        rig.pass_time()
        assert desk.prove(Verb.TERMINATE).outcome is Outcome.DONE
        assert (rig.applied(Verb.REQUEST), rig.applied(Verb.TERMINATE), rig.billed()) == (1, 1, 1)

    def test_another_step_asks_for_no_second_successor(self, rig: ProviderRig, desk: Desk) -> None:
        """An earlier step's answer may be lost; what it asked for is found by its tag."""
        rig.trouble(Verb.REQUEST, Trouble.TIMEOUT_AFTER)
        desk.act(Verb.REQUEST)
        self.carry_on(rig, TAG)
        assert desk.act(Verb.REQUEST, n=2).outcome is Outcome.ALREADY
        assert (rig.applied(Verb.REQUEST), rig.billed()) == (1, 1)

    def test_a_successor_that_never_joins_is_released(self, rig: ProviderRig, desk: Desk) -> None:
        rig.never_joins()
        desk.act(Verb.REQUEST)
        rig.pass_time()
        assert rig.applied(Verb.REQUEST) == 1
        assert self.state(rig).successor is None
        proof = desk.prove(Verb.REQUEST, deadline_s=IN_VAIN_S)
        assert proof.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)
        rig.pass_time()
        assert "released" in proof.reason
        assert rig.billed() == 0
        assert self.state(rig).exists, "the old machine must stay"

    def test_release_spares_what_has_joined_and_what_others_asked_for(self, rig: ProviderRig) -> None:
        assert isinstance(rig.provider, HasRelease)
        rig.provider.do(Verb.REQUEST, rig.node, "inc-2")
        self.carry_on(rig, "inc-2")
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        self.carry_on(rig, TAG)
        there = frozenset(node.machine.id for node in rig.nodes())
        assert rig.provider.release(rig.node, TAG, there) == ()
        assert rig.billed() == 2
        assert len(rig.provider.release(rig.node, TAG, frozenset())) == 1
        rig.pass_time()
        assert rig.provider.release(rig.node, TAG, frozenset()) == ()
        assert rig.billed() == 1
        assert self.state(rig).exists

    def test_after_one_that_was_released_another_comes(self, rig: ProviderRig) -> None:
        assert isinstance(rig.provider, HasRelease)
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        self.carry_on(rig, TAG)
        assert len(rig.provider.release(rig.node, TAG, frozenset())) == 1
        rig.pass_time()
        assert rig.billed() == 0
        rig.provider.do(Verb.REQUEST, rig.node, TAG)
        self.carry_on(rig, TAG)
        assert rig.billed() == 1


class ElsewhereContract:
    """Of providers that also make successors of machines that aren't their own. Mix it in, with a rig that may."""

    def told(self, rig: ProviderRig) -> Node:
        """A node of somebody else's, as it is told of it."""
        node = rig.node
        foreign = node.model_copy(update={"machine": Machine(provider="others", id="o-1")})
        return Offer(provider=rig.provider.name, region=node.topology.get("region")).asked(foreign)

    def test_a_successor_of_anothers_machine_is_made_found_by_its_tag_and_released(self, rig: ProviderRig) -> None:
        provider, told = rig.provider, self.told(rig)
        assert isinstance(provider, MakesElsewhere)
        assert isinstance(provider, HasRelease)
        assert provider.cannot_make(told) == ""
        assert provider.state(told, TAG).successor_id is None
        provider.do(Verb.REQUEST, told, TAG)
        rig.pass_time()
        state = joined(cast(Cluster, RigCluster(rig)), provider.state(told, TAG))
        assert state.successor not in (None, rig.node.name)
        assert provider.state(told, "inc-2").successor is None
        there = frozenset(node.machine.id for node in rig.nodes())
        assert provider.release(told, TAG, there) == ()
        assert rig.billed() == 1
        assert len(provider.release(told, TAG, frozenset())) == 1
        rig.pass_time()
        assert (rig.applied(Verb.REQUEST), rig.billed()) == (1, 0)
        assert provider.state(rig.node, TAG).exists, "its own machine was none of it"

    def test_nothing_else_is_done_to_anothers_machine(self, rig: ProviderRig) -> None:
        for verb in set(Verb) - {Verb.REQUEST}:
            with pytest.raises(NotSent) as refusal:
                rig.provider.do(verb, self.told(rig), TAG)
            assert refusal.value.final
            assert rig.applied(verb) == 0
