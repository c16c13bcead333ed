"""At most one call for a key, whatever dies in between; and proof, not hope."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from activities import signatures as sig
from activities.approved import Approved
from activities.machines import MachineActivities
from activities.ports import Unreadable, Verb
from medevac.fleet.order import Order
from medevac.incident import End, Outcome, StepKey
from simulation.hazards import Behaviour, Effect, Manner, Read
from tests.unit.activities.house import CLUSTER, INCIDENT, House, environment, run


@pytest.fixture
def machines(house: House) -> MachineActivities:
    return MachineActivities(house.registry, house.look, house.intents, house.ledger)


def prove_request(house: House, act: sig.ActRequest, deadline_s: float = 3.0) -> sig.ProveRequest:
    verbs = (Verb.REQUEST, Verb.TERMINATE) if act.verb is Verb.TERMINATE else (act.verb,)
    key = StepKey(incident=INCIDENT, step="prove", n=act.key.n)
    return sig.ProveRequest(key=key, pre=act.pre, verbs=verbs, acted=act.key, deadline_s=deadline_s)


def calls(house: House, verb: Effect) -> int:
    return len(house.world.effects(verb=verb))


def test_reboot_is_called_once_and_proved_by_its_new_boot(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    assert run(machines.act, act).outcome is Outcome.DONE
    proved = run(machines.prove, prove_request(house, act))
    assert proved.outcome is Outcome.DONE
    assert proved.identity is not None
    assert proved.identity.boot_id not in (None, node.machine.boot_id)
    assert proved.identity.machine_id == node.machine.id
    assert calls(house, Effect.REBOOT) == 1
    intent = house.intents.get(act.key)
    assert intent is not None
    assert intent.outcome == "proved"


@pytest.mark.parametrize(
    "answer", ["token=hunter2-hunter2", {"console": {"password": "hunter2-hunter2"}}, "x" * 900_000, ["x"] * 100_000]
)
def test_what_a_provider_answers_is_kept_short_and_without_secrets(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch, answer: JsonValue
) -> None:
    node = house.marked(house.busy_node())
    provider = house.registry.provider(node.machine.provider)
    monkeypatch.setattr(provider, "do", lambda *_: answer)
    act = house.act_request(node)
    result = run(machines.act, act)
    intent = house.intents.get(act.key)
    assert result.outcome is Outcome.DONE
    assert intent is not None
    for kept in (result.proof["answer"], intent.answer):
        assert "hunter2" not in str(kept)
        assert 0 < len(str(kept)) <= 2_000


def test_an_intent_that_is_found_is_never_called_again(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    # Killed between intent and call: the row is there, the call never went out.
    house.intents.begin(
        act.key, act.verb, CLUSTER, node.name, node.machine.id, node.machine.boot_id, act.rung, act.fault,
        act.fault_class, datetime.now(UTC), before={"exists": True},
    )  # fmt: skip
    result = run(machines.act, act, attempt=2)
    assert result.outcome is Outcome.ALREADY
    assert "not called again" in result.reason
    assert calls(house, Effect.REBOOT) == 0
    waited = run(machines.prove, prove_request(house, act, 0.3))
    assert waited.outcome is Outcome.TIMED_OUT
    assert f"boot id is still {node.machine.boot_id}" in waited.reason


@pytest.mark.parametrize(("manner", "proof"), [
    (Manner.TIMEOUT_AFTER, Outcome.DONE),
    (Manner.TIMEOUT_BEFORE, Outcome.TIMED_OUT),
    (Manner.LIE, Outcome.TIMED_OUT),
])  # fmt: skip
def test_an_unclear_answer_and_a_lie_are_left_to_the_proof(
    house: House, machines: MachineActivities, manner: Manner, proof: Outcome
) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    house.world.script(Effect.REBOOT, manner)
    assert run(machines.act, act).outcome is Outcome.DONE
    assert run(machines.act, act, attempt=2).outcome is Outcome.ALREADY
    assert calls(house, Effect.REBOOT) == 1
    assert run(machines.prove, prove_request(house, act, 1.0)).outcome is proof


def test_a_throttled_call_is_surely_not_sent_and_made_later(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    house.world.script(Effect.REBOOT, Manner.THROTTLE, retry_after_s=7)
    with pytest.raises(ApplicationError) as caught:
        run(machines.act, act)
    delay = caught.value.next_retry_delay
    assert delay is not None
    assert 7 <= delay.total_seconds() <= 8.4
    assert run(machines.act, act, attempt=2).outcome is Outcome.DONE
    assert [e.applied for e in house.world.effects(verb=Effect.REBOOT)] == [False, True]


def test_a_final_refusal_fails_the_step(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    house.world.script(Effect.REBOOT, Manner.REFUSE)
    result = run(machines.act, act)
    assert result.outcome is Outcome.FAILED
    assert "refuses" in result.reason


def test_an_error_nobody_foresaw_counts_as_sent(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    provider = house.registry.provider(node.machine.provider)

    def explode(*_: object) -> None:
        raise RuntimeError("token=hunter2 rejected")

    monkeypatch.setattr(provider, "do", explode)
    result = run(machines.act, house.act_request(node))
    assert result.outcome is Outcome.DONE
    assert "unclear" in result.reason
    assert "hunter2" not in result.reason
    assert run(machines.act, house.act_request(node), attempt=2).outcome is Outcome.ALREADY


# -- the look before the leap ----------------------------------------------------------------------------------


def refused(house: House, machines: MachineActivities, act: sig.ActRequest, because: str) -> str:
    result = run(machines.act, act)
    assert result.outcome is Outcome.REFUSED, result
    assert because in result.reason
    assert calls(house, Effect(act.verb.value)) == 0
    assert house.intents.get(act.key) is None
    return result.who


def test_refused_after_another_boot(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    other = node.identity.model_copy(update={"boot_id": "another"})
    assert refused(house, machines, house.act_request(node, identity=other), "boot id") == ""


def test_refused_when_another_machine_took_the_name(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    house.world.swap(node.name, CLUSTER)
    refused(house, machines, house.act_request(node), "uid")


def test_a_campaigns_order_is_refused_on_a_machine_that_is_not_on_its_list(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Approved, "check_order", lambda *_: None)
    node = house.marked(house.busy_node())
    order = Order(campaign="drv", approval="campaign-drv", rung="reboot", uid="uid-old", machine_id=node.machine.id)
    refused(house, machines, house.act_request(node, order=order), "campaign drv lists uid-old")
    listed = house.act_request(node, n=2, order=order.of(node.uid, node.machine.id))
    assert run(machines.act, listed).outcome is Outcome.DONE


def test_an_uncordon_is_a_veto_that_names_a_person(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    house.world.uncordon(node.name, CLUSTER)
    assert refused(house, machines, house.act_request(node), "veto") != ""


def test_a_lifted_mark_is_a_veto(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    house.registry.cluster(CLUSTER).lift(node.name, INCIDENT)
    assert refused(house, machines, house.act_request(node), "lifted") != ""


def test_refused_when_hands_off_appears_but_not_when_the_plan_knew(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    house.world.hands_off(node.name, "ada", CLUSTER)
    refused(house, machines, house.act_request(node), "hands-off was set by ada")
    assert run(machines.act, house.act_request(node, hands_off="ada")).outcome is Outcome.DONE


def test_refused_when_a_foreign_cordon_appears_but_not_when_the_plan_knew(
    house: House, machines: MachineActivities
) -> None:
    node = house.marked(house.busy_node())
    house.world.cordon(node.name, "bob", CLUSTER)
    refused(house, machines, house.act_request(node), "cordoned by bob")
    assert run(machines.act, house.act_request(node, foreign_cordon="bob")).outcome is Outcome.DONE


def test_refused_without_the_lease(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    older = house.lease.model_copy(update={"epoch": house.lease.epoch - 1})
    refused(house, machines, house.act_request(node, lease=older), "granted anew")
    house.guard.release(INCIDENT, datetime.now(UTC))
    refused(house, machines, house.act_request(node), "was released")


def test_refused_when_the_ledger_says_the_incident_ended(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    house.ledger.upsert_incident(house.view(node, end=End.RETURNED, rev=9))
    refused(house, machines, house.act_request(node), "ended")


def waits(house: House, machines: MachineActivities, act: sig.ActRequest, because: str) -> None:
    with pytest.raises(ApplicationError, match=because) as caught:
        run(machines.act, act)
    assert not caught.value.non_retryable
    assert "hunter2" not in str(caught.value)
    assert calls(house, Effect(act.verb.value)) == 0
    assert house.intents.get(act.key) is None


def test_what_cannot_be_read_counts_as_a_no(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    house.world.script(Read.NODE, Manner.UNREADABLE)
    waits(house, machines, act, "cluster sim-a can't be read")
    house.calm()
    house.world.script(Read.MACHINE, Manner.UNREADABLE)
    waits(house, machines, act, "provider .* can't be read")
    house.calm()

    def unreadable(*_: object) -> None:
        raise Unreadable("connection to postgresql://ledger:hunter2@db/ledger lost")

    for part, method, what in (
        (house.guard, "check", "guard"),
        (house.guard, "renew", "guard"),
        (house.ledger, "incident", "ledger"),
        (house.fences, "blocking", "fences"),
        (house.intents, "get", "intents"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(part, method, unreadable)
            with pytest.raises(ApplicationError, match=f"the {what} can't be read") as caught:
                run(machines.act, act)
            assert "hunter2" not in str(caught.value)
    assert calls(house, Effect.REBOOT) == 0
    assert run(machines.act, act).outcome is Outcome.DONE


def test_an_incident_that_the_ledger_has_not_heard_of_waits(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    waits(house, machines, house.act_request(node, incident="inc-unheard"), "doesn't know incident")


@pytest.mark.parametrize("scope", ["all", "cluster/sim-a", "pool", "provider", "node"])
def test_a_freeze_holds_the_call_and_a_thaw_lets_it_go_on(
    house: House, machines: MachineActivities, scope: str
) -> None:
    node = house.marked(house.busy_node())
    scope = {
        "pool": f"pool/{CLUSTER}/{node.pool}",
        "provider": f"provider/{node.machine.provider}",
        "node": f"node/{CLUSTER}/{node.name}",
    }.get(scope, scope)
    house.fences.freeze(scope, "ada", "wrong firmware")
    act = house.act_request(node)
    waits(house, machines, act, "frozen: .* by ada: wrong firmware")
    house.fences.thaw(scope, "ada")
    house.fences.thaw(scope, "bob")
    assert run(machines.act, act).outcome is Outcome.DONE


def thaw(house: House, scope: str = "all") -> None:
    for person in ("ada", "bob"):
        house.fences.thaw(scope, person)


def test_a_freeze_while_the_intent_is_written_stops_the_call(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    with monkeypatch.context() as patch:
        begin = house.intents.begin

        def slowly(*given: Any, **named: Any) -> Any:
            begun = begin(*given, **named)
            house.fences.freeze("all", "ada", "wrong firmware")
            return begun

        patch.setattr(house.intents, "begin", slowly)
        with pytest.raises(ApplicationError, match="Frozen: frozen: all by ada: wrong firmware"):
            run(machines.act, act)
    intent = house.intents.get(act.key)
    assert intent is not None
    assert intent.void, "it was surely not sent, so it is no attempt"
    thaw(house)
    assert run(machines.act, act, attempt=2).outcome is Outcome.DONE
    assert calls(house, Effect.REBOOT) == 1


def test_a_freeze_while_the_provider_looks_stops_its_call(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    provider = house.registry.provider(node.machine.provider)
    with monkeypatch.context() as patch:
        do = provider.do

        def slowly(*given: Any) -> JsonValue:
            house.fences.freeze("all", "ada", "wrong firmware")
            return do(*given)

        patch.setattr(provider, "do", slowly)
        with pytest.raises(ApplicationError, match="Frozen: frozen: all by ada: wrong firmware"):
            run(machines.act, act)
    thaw(house)
    assert run(machines.act, act, attempt=2).outcome is Outcome.DONE
    assert calls(house, Effect.REBOOT) == 1


def test_a_freeze_stops_the_next_call_of_a_step_and_not_its_proof(
    house: House, machines: MachineActivities, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    assert run(machines.act, act).outcome is Outcome.DONE
    next_calls: list[Verb] = []
    provider = house.registry.provider(node.machine.provider)
    monkeypatch.setattr(provider, "proceed", lambda verb, *_: next_calls.append(verb), raising=False)
    house.fences.freeze("all", "ada", "wrong firmware")
    assert run(machines.prove, prove_request(house, act)).outcome is Outcome.DONE
    assert not next_calls


def test_an_attempt_whose_time_is_over_does_not_call(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    with pytest.raises(ApplicationError, match="time is over"):
        run(machines.act, act, start_to_close_s=0.0)
    assert calls(house, Effect.REBOOT) == 0


# -- proof -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [Verb.RESET_GPU, Verb.RESTART_AGENT, Verb.REINSTALL])
def test_each_repair_has_its_own_proof(house: House, machines: MachineActivities, verb: Verb) -> None:
    node = house.marked(house.idle_node("ironworks"))
    act = house.act_request(node, verb)
    assert run(machines.act, act).outcome is Outcome.DONE
    assert run(machines.prove, prove_request(house, act)).outcome is Outcome.DONE
    lied = house.act_request(house.node(node.name), verb, n=2)
    house.world.script(Effect(verb.value), Manner.LIE)
    assert run(machines.act, lied).outcome is Outcome.DONE
    assert run(machines.prove, prove_request(house, lied, 0.5)).outcome is Outcome.TIMED_OUT


def test_a_replacement_is_proved_by_a_ready_successor_and_a_gone_machine(
    house: House, machines: MachineActivities
) -> None:
    node = house.marked(house.busy_node("skyline"))
    request, terminate = house.act_request(node, Verb.REQUEST), house.act_request(node, Verb.TERMINATE)
    assert run(machines.act, request).outcome is Outcome.DONE
    assert run(machines.act, terminate).outcome is Outcome.DONE
    proved = run(machines.prove, prove_request(house, terminate))
    assert proved.outcome is Outcome.DONE
    assert proved.successor not in (None, node.name)
    assert proved.identity is not None
    assert proved.identity.machine_id != node.machine.id
    history = house.ledger.history(
        "inc-2", CLUSTER, proved.successor or "", proved.identity.machine_id, datetime.now(UTC)
    )
    assert history.succeeds is not None
    assert history.succeeds.incident == INCIDENT


def test_a_successor_is_searched_before_another_is_asked_for(house: House, machines: MachineActivities) -> None:
    """The first request's answer was lost, and its step gave up: the machine comes all the same, and costs money."""
    node = house.marked(house.busy_node("skyline"))
    first, again = house.act_request(node, Verb.REQUEST), house.act_request(node, Verb.REQUEST, n=2)
    assert run(machines.act, first).outcome is Outcome.DONE
    assert run(machines.prove, prove_request(house, first)).outcome is Outcome.DONE
    assert run(machines.act, again).outcome is Outcome.ALREADY
    assert calls(house, Effect.REQUEST) == 1
    assert run(machines.prove, prove_request(house, again)).outcome is Outcome.DONE


def test_a_machine_that_never_boots_says_what_was_seen(house: House, machines: MachineActivities) -> None:
    node = house.busy_node()
    house.world.inject(node.name, "xid/79", behaviour=Behaviour(never_boots=True), covers=(), cure=())
    node = house.marked(node)
    act = house.act_request(node)
    assert run(machines.act, act).outcome is Outcome.DONE
    result = run(machines.prove, prove_request(house, act, 0.8))
    assert result.outcome is Outcome.TIMED_OUT
    assert "0.8 s" in result.reason


def test_another_machine_under_the_name_proves_nothing(house: House, machines: MachineActivities) -> None:
    node = house.marked(house.busy_node())
    act = house.act_request(node)
    assert run(machines.act, act).outcome is Outcome.DONE
    house.world.swap(node.name, CLUSTER)
    assert run(machines.prove, prove_request(house, act)).outcome is Outcome.REFUSED


def test_nothing_is_proved_that_was_not_called(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    assert run(machines.prove, prove_request(house, act)).outcome is Outcome.FAILED


def test_reads_that_fail_for_a_while_do_not_end_the_wait(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    assert run(machines.act, act).outcome is Outcome.DONE
    house.world.script(Read.NODE, Manner.UNREADABLE, times=None)
    healing = threading.Timer(0.5, house.calm)
    healing.start()
    assert run(machines.prove, prove_request(house, act)).outcome is Outcome.DONE
    healing.join()


def test_a_cancelled_wait_is_not_done_and_heartbeats_until_then(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    house.world.script(Effect.REBOOT, Manner.LIE)
    run(machines.act, act)
    env, beats = environment(), threading.Semaphore(0)
    env.on_heartbeat = lambda *_: beats.release()
    ended: list[Outcome] = []
    thread = threading.Thread(
        target=lambda: ended.append(env.run(machines.prove, prove_request(house, act, 60)).outcome)
    )
    thread.start()
    assert beats.acquire(timeout=5)
    assert beats.acquire(timeout=5)
    env.cancel()
    thread.join(10)
    assert ended == [Outcome.CANCELLED]


def test_a_stopping_worker_hands_the_wait_on(house: House, machines: MachineActivities) -> None:
    act = house.act_request(house.marked(house.busy_node()))
    run(machines.act, act)
    env = environment()
    env.worker_shutdown()
    house.world.script(Read.NODE, Manner.UNREADABLE, times=None)
    with pytest.raises(ApplicationError) as caught:
        env.run(machines.prove, prove_request(house, act, 60))
    assert caught.value.type == "WorkerShutdown"
