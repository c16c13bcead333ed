"""What becomes of a successor that was asked for: awaited before anything is destroyed, or taken back and told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from activities import signatures as sig
from activities.ports import Verb
from medevac.approvals.approval import ApprovalState
from medevac.events.event import Kind
from medevac.faults.classes import FaultClass
from medevac.fleet.places import Offer, Source
from medevac.incident import Outcome, State, StepResult
from medevac.policy.plan import Action, ApprovalNeed, Plan, Rung
from tests.workflow.conftest import Start, fault
from tests.workflow.scripted import PATIENCE_S, Script, plan_for, until_cancelled
from tests.workflow.test_node import BUDGET, answered, reaches, wait_for
from workflows.messages import By
from workflows.node import NodeWorkflow

pytestmark = pytest.mark.asyncio(loop_scope="session")

RELEASED = StepResult(
    outcome=Outcome.DONE, reason="released vm-2", proof={"nothing_left": True, "joined": ""}, at=datetime.now(UTC)
)
JOINED = StepResult(
    outcome=Outcome.DONE, reason="n-new has joined and stays", proof={"nothing_left": False, "joined": "n-new"}
)
FROZEN = StepResult(
    outcome=Outcome.FAILED,
    reason="what was asked for may be running: frozen",
    proof={"nothing_left": False, "joined": ""},
)
NEVER = StepResult(outcome=Outcome.TIMED_OUT, reason="no successor has joined; released vm-2", proof=RELEASED.proof)
CAME = StepResult(outcome=Outcome.DONE, successor="n-new", at=datetime.now(UTC))
HERE = Source(offer=Offer(provider="skyline"), own=True)
THERE = Source(offer=Offer(provider="northwind", region="north-1"), own=False)


def replacing(request: sig.PlanRequest, **changes: Any) -> Plan:
    return plan_for(request, rung=Rung.REPLACE, **{"request_first": True, **changes})


def verbs(script: Script) -> list[str]:
    return [str(request.verb) for request in script.asked(sig.ACT)]


@pytest.mark.parametrize(("answer", "told"), [
    (RELEASED, "released vm-2"),
    (JOINED, "the successor n-new has joined and stays"),
    (FROZEN, "may be running: frozen"),
])  # fmt: skip
async def test_a_stop_takes_back_what_was_asked_for_and_says_what_became_of_it(
    start: Start, script: Script, answer: StepResult, told: str
) -> None:
    script.planner = replacing
    script.on(sig.EVACUATE, until_cancelled)
    script.on(sig.TAKE_BACK, lambda _: answer)
    handle = await start()
    await wait_for(script, "evacuate")
    said = await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    assert said.text.startswith("stopping(evacuate)")
    assert "asked for is ended unless it has joined" in said.text
    await reaches(handle, State.HANDED_OVER)
    assert verbs(script) == ["request"], "nothing was destroyed"
    await wait_for(script, "take_back")
    async with asyncio.timeout(PATIENCE_S):
        while not any("needs a person" in post.text and told in post.text for post in script.asked(sig.NOTIFY)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    assert await handle.result() == "withdrawn"
    end = next(line for line in script.lines if line.kind == "end")
    assert told in end.text
    paged = next(post for post in script.asked(sig.NOTIFY) if post.topic == "end").page
    assert paged == (answer is not RELEASED)


async def test_what_could_not_be_taken_back_is_tried_again(start: Start, script: Script) -> None:
    script.planner = replacing
    script.on(sig.EVACUATE, until_cancelled)
    answers: Iterator[StepResult] = iter([FROZEN])
    script.on(sig.TAKE_BACK, lambda _: next(answers, RELEASED))
    handle = await start()
    await wait_for(script, "evacuate")
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await reaches(handle, State.HANDED_OVER)
    await handle.signal(NodeWorkflow.wake)
    async with asyncio.timeout(PATIENCE_S):
        while not any(post.topic == "successor" and "released" in post.text for post in script.asked(sig.NOTIFY)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await handle.signal(NodeWorkflow.wake)
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await handle.result()
    assert [request.key.n for request in script.asked(sig.TAKE_BACK)] == [1, 2]
    assert not next(post for post in script.asked(sig.NOTIFY) if post.topic == "end").page


async def test_a_release_that_gives_no_answer_still_names_what_may_be_running(start: Start, script: Script) -> None:
    script.planner = replacing
    script.on(sig.EVACUATE, lambda _: StepResult(outcome=Outcome.BLOCKED, reason="a budget", who="team"))
    script.on(sig.TAKE_BACK, lambda _: StepResult(outcome=Outcome.TIMED_OUT, reason="no answer"))
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    async with asyncio.timeout(PATIENCE_S):
        while not any("may be running" in post.text for post in script.asked(sig.NOTIFY)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await handle.terminate("done")


async def test_a_fault_that_clears_after_the_request_ends_without_a_leak(start: Start, script: Script) -> None:
    level = {"source": "npd", "statement": "level", "fault_class": FaultClass.TRANSIENT}
    raised = fault("condition/GpuThermal", **level)
    script.planner = replacing
    script.on(sig.EVACUATE, until_cancelled)
    script.on(sig.TAKE_BACK, lambda _: RELEASED)
    handle = await start(raised)
    await wait_for(script, "evacuate")
    cleared = raised.model_copy(update={"id": "clear", "kind": Kind.RECOVERED, "received_at": datetime.now(UTC)})
    await handle.signal(NodeWorkflow.report, cleared)
    assert await handle.result() == "withdrawn"
    assert len(script.asked(sig.TAKE_BACK)) == 1
    assert script.asked(sig.TAKE_BACK)[0].of.identity.machine_id == "m-1"
    assert "released vm-2" in script.lines[-1].text


async def test_nothing_is_taken_back_where_nothing_was_asked_for(start: Start, script: Script) -> None:
    script.planner = replacing
    script.on(sig.ACT, lambda _: StepResult(outcome=Outcome.FAILED, reason="no capacity", proof={"not_sent": True}))
    handle = await start()
    await wait_for(script, "act")
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await reaches(handle, State.HANDED_OVER)
    assert not script.asked(sig.TAKE_BACK)
    assert "successor" not in script.asked(sig.PLAN)[-1].hand_over
    await handle.terminate("done")


# -- at the machine's own provider -----------------------------------------------------------------------------

NEED = ApprovalNeed(groups=("approver",), expires_s=60, why=("no successor is there in its time",))
LATE = StepResult(outcome=Outcome.TIMED_OUT, reason="no proof within 10 s: no successor has joined")


def proofs(script: Script, successor: StepResult) -> None:
    """What is proved of the successor alone; with the old machine's end it is there."""
    script.on(sig.PROVE, lambda request: successor if request.verbs == (Verb.REQUEST,) else CAME)


@pytest.mark.parametrize("request_first", [True, False])
async def test_an_accepted_request_ends_no_machine_its_successor_does(
    start: Start, script: Script, request_first: bool
) -> None:
    script.planner = lambda request: replacing(request, successor_need=NEED, request_first=request_first)
    proofs(script, CAME)
    handle = await start()
    assert await handle.result() == "replaced"
    assert verbs(script) == ["request", "terminate"]
    names = [name for name in script.names() if name in ("act", "prove")]
    assert names == ["act", "prove", "act", "prove"]
    assert [request.verbs for request in script.asked(sig.PROVE)] == [(Verb.REQUEST,), (Verb.TERMINATE,)]
    assert not script.asked(sig.ASK)
    assert script.asked(sig.VERIFY)[0].node == "n-new"


async def test_people_are_asked_where_none_comes_and_their_yes_ends_the_machine(start: Start, script: Script) -> None:
    script.planner = lambda request: replacing(request, successor_need=NEED)
    proofs(script, LATE)
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    handle = await start()
    assert await handle.result() == "replaced"
    (asked,) = [request.request for request in script.asked(sig.ASK)]
    assert "no successor" in asked.title
    assert "no successor has joined" in " ".join(asked.need.why)
    assert verbs(script) == ["request", "terminate"]
    first, last = script.asked(sig.PROVE)
    assert (first.keep_late, last.keep_late) == (True, False)
    assert last.verbs == (Verb.REQUEST, Verb.TERMINATE), "it is still waited for"
    assert script.asked(sig.ACT)[-1].pre.approvals == (asked.id,)
    assert [request.under_way for request in script.asked(sig.PLAN)] == [None, Rung.REPLACE]


async def test_a_no_leaves_the_machine_and_takes_back_what_was_asked_for(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        if any(line.kind == "latch" for line in script.lines):
            return replacing(request, action=Action.HAND_OVER)
        return replacing(request, successor_need=NEED)

    script.planner = planner
    proofs(script, LATE)
    script.on(sig.ASK, answered(ApprovalState.REJECTED))
    script.on(sig.TAKE_BACK, lambda _: RELEASED)
    handle = await start()
    await reaches(handle, State.HANDED_OVER)
    await wait_for(script, "take_back")
    assert verbs(script) == ["request"]
    await handle.terminate("done")


async def test_a_stop_while_the_only_successor_is_awaited_is_heard_at_once(start: Start, script: Script) -> None:
    script.planner = lambda request: replacing(request, successor_need=NEED)
    script.on(sig.PROVE, until_cancelled)
    script.on(sig.TAKE_BACK, lambda _: RELEASED)
    handle = await start()
    await wait_for(script, "prove")
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await reaches(handle, State.HANDED_OVER)
    assert verbs(script) == ["request"]
    await handle.terminate("done")


async def test_a_budget_asked_about_after_the_request_is_of_the_same_attempt(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        if Rung.REPLACE in request.asked_rungs and request.under_way is None:
            return plan_for(request, action=Action.HAND_OVER, rung=None, drain=None)
        return replacing(request, successor_need=NEED, budget_need=NEED)

    script.planner = planner
    script.on(sig.ASK, answered(ApprovalState.APPROVED))
    script.on(sig.EVACUATE, lambda r: StepResult(outcome=Outcome.DONE) if r.budget_bypass else BUDGET)
    proofs(script, CAME)
    handle = await start()
    assert await handle.result() == "replaced"
    assert verbs(script) == ["request", "terminate"]


# -- where there is a choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("request_first", [True, False])
async def test_the_old_machine_stays_until_what_was_asked_for_elsewhere_is_there(
    start: Start, script: Script, request_first: bool
) -> None:
    script.planner = lambda request: replacing(request, ask_at=THERE, request_first=request_first)
    script.on(sig.PROVE, lambda request: CAME if Verb.REQUEST in request.verbs else StepResult(outcome=Outcome.DONE))
    handle = await start()
    assert await handle.result() == "replaced"
    asked = [(str(request.verb), request.at) for request in script.asked(sig.ACT)]
    assert asked == [("request", THERE.offer), ("terminate", None)]
    order = script.names()[2:]
    before = ["act", "evacuate"] if request_first else ["evacuate", "act"]
    assert order[:5] == [*before, "prove", "act", "prove"]
    assert [request.verbs for request in script.asked(sig.PROVE)] == [(Verb.REQUEST,), (Verb.TERMINATE,)]
    assert script.asked(sig.VERIFY)[0].node == "n-new"


async def test_what_never_came_is_told_to_the_next_plan_and_nothing_was_destroyed(start: Start, script: Script) -> None:
    def planner(request: sig.PlanRequest) -> Plan:
        return replacing(request, ask_at=THERE if HERE.offer in request.nothing_came else HERE)

    script.planner = planner
    proofs = iter([NEVER, CAME])
    script.on(sig.PROVE, lambda _: next(proofs, StepResult(outcome=Outcome.DONE)))
    handle = await start()
    assert await handle.result() == "replaced"
    asked = [(str(request.verb), request.at) for request in script.asked(sig.ACT)]
    assert asked == [("request", None), ("request", THERE.offer), ("terminate", None)]
    assert not script.asked(sig.TAKE_BACK), "the step that waited in vain has released it"


async def test_a_refusal_is_an_answer_for_the_next_plan_too(start: Start, script: Script) -> None:
    full = StepResult(outcome=Outcome.FAILED, reason="skyline refuses: no capacity", proof={"not_sent": True})
    answers = iter([full])
    script.planner = lambda request: replacing(request, ask_at=THERE if request.nothing_came else HERE)
    script.on(sig.ACT, lambda _: next(answers, StepResult(outcome=Outcome.DONE)))
    script.on(sig.PROVE, lambda _: CAME)
    handle = await start()
    assert await handle.result() == "replaced"
    assert script.asked(sig.PLAN)[-1].nothing_came == (HERE.offer,)
    assert script.asked(sig.PLAN)[-1].asked is None


async def test_a_plan_made_anew_knows_where_something_is_on_its_way(start: Start, script: Script) -> None:
    drains = iter([StepResult(outcome=Outcome.REFUSED, reason="the uid is another")])
    script.planner = lambda request: replacing(request, ask_at=THERE)
    script.on(sig.EVACUATE, lambda _: next(drains, StepResult(outcome=Outcome.DONE)))
    script.on(sig.PROVE, lambda _: CAME)
    handle = await start()
    assert await handle.result() == "replaced"
    assert [request.asked for request in script.asked(sig.PLAN)][:2] == [None, THERE]


async def test_a_stop_while_a_choice_s_successor_is_awaited_is_heard_at_once(start: Start, script: Script) -> None:
    script.planner = lambda request: replacing(request, ask_at=THERE)
    script.on(sig.PROVE, until_cancelled)
    script.on(sig.TAKE_BACK, lambda _: RELEASED)
    handle = await start()
    await wait_for(script, "prove")
    await handle.execute_update(NodeWorkflow.abort, By(who="alice"))
    await reaches(handle, State.HANDED_OVER)
    assert script.asked(sig.TAKE_BACK)[0].at == THERE.offer
    assert verbs(script) == ["request"]
    await handle.terminate("done")
