"""The verdict of a run that went well, and of the same run with one thing gone wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import JsonValue

from activities.ports import Eviction, Verb
from activities.storage.database import Database
from activities.storage.intents import Intents
from activities.storage.ledger import Ledger
from activities.storage.tables import intents, lines
from medevac.approvals.approval import ApprovalResult, ApprovalState, ApprovalView, Waiter
from medevac.faults.classes import Covers, FaultClass
from medevac.fleet.node import Node
from medevac.incident import End, IncidentView, Line, Outcome, State, StepKey, StepResult
from medevac.policy.plan import ApprovalNeed, Rung
from simulation.build import Parts, parts
from simulation.evidence import gather
from simulation.hazards import Behaviour, Effect, Manner
from simulation.layout import IRONWORKS, SKYLINE, Layout
from simulation.verdict import Verdict, judge, table
from simulation.world import World
from tests.unit.simulation.worlds import HandClock, mark

ID = "inc-1"
NEED = ApprovalNeed(groups=("operators",), expires_s=600, why=("reboot asks",))


class Story:
    """One incident told by hand, to the ledger and to the world, in the order in which the engine would."""

    def __init__(self, directory: Path) -> None:
        self.clock = HandClock()
        World.create(directory / "world", Layout(nodes=16), seed=2, clock=self.clock).close()
        self.parts: Parts = parts(directory / "world", self.clock)
        self.world = self.parts.world
        self.db = Database(f"sqlite:///{directory / 'ledger.sqlite'}")
        self.db.upgrade()
        self.ledger = Ledger(self.db)
        self.cluster = self.parts.clusters[0]
        self.n = 0

    def close(self) -> None:
        self.world.close()
        self.db.close()

    def node(self, provider: str = SKYLINE) -> Node:
        return next(
            n
            for n in self.world.nodes()
            if n.machine.provider == provider and any(p.tier == "workload" for p in self.cluster.pods(n.name))
        )

    def view(self, node: Node, state: State, end: End | None = None) -> None:
        self.n += 1
        self.ledger.upsert_incident(
            IncidentView(
                id=ID, workflow_id=f"node/sim-a/{node.name}", cluster="sim-a", node=node.name,
                machine_id=node.machine.id, state=state, end=end, opened_at=self.clock.now, updated_at=self.clock.now,
                rev=self.n,
            )
        )  # fmt: skip

    def line(self, step: str, kind: str = "step", **data: JsonValue) -> None:
        key = StepKey(incident=ID, step=step)
        line = Line(key=key, at=self.clock.now, kind=kind, text=kind, data=data)
        if kind == "step":
            line = StepResult(outcome=Outcome.DONE).line(key, step, self.clock.now)
        self.ledger.add_lines([line])

    def decide(self, *, approval: bool = False) -> None:
        self.line("decision", "decision", hash="h1", approval=NEED.model_dump(mode="json") if approval else None)

    def approve(self, state: ApprovalState) -> None:
        now = self.clock.now
        waiter = Waiter(incident=ID, workflow_id="w", cluster="sim-a", node="n", plan_hash="h1", text="reboot")
        result = ApprovalResult(id="a-1", state=state, decided_at=now, covers={ID: "h1"})
        self.ledger.upsert_approval(
            ApprovalView(
                id="a-1", workflow_id="approval/a-1", title="reboot", state=state, fleet_wide=False, need=NEED,
                requested_by="medevac", requested_at=now, expires_at=now + timedelta(minutes=5), waiters=(waiter,),
                shown_hash="s", result=None if state is ApprovalState.PENDING else result,
            )
        )  # fmt: skip

    def lease(self) -> None:
        self.line("acquire")

    def evacuate(self, node: Node) -> None:
        for pod in self.cluster.pods(node.name):
            if not pod.tolerates_mark:
                assert self.cluster.evict(pod, 30) is Eviction.EVICTED
        self.clock.forward(60)
        self.line("evacuate")

    def act(self, node: Node, verb: Verb) -> None:
        key = StepKey(incident=ID, step=f"act-{verb.value}")
        Intents(self.db).begin(
            key, verb, "sim-a", node.name, node.machine.id, node.machine.boot_id, Rung.REBOOT, "xid/79",
            FaultClass.CRITICAL, self.clock.now,
        )  # fmt: skip
        provider = next(p for p in self.parts.providers if p.name == node.machine.provider)
        provider.do(verb, node, ID)
        self.line(key.step)

    def reboot_well(self, *, approval: ApprovalState | None = None, inject: bool = True) -> Node:
        """Up to the reboot's proof."""
        node = self.node()
        if inject:
            self.world.inject(node.name, "xid/79", covers=[Covers.BUS])
        self.view(node, State.PLANNED)
        self.decide(approval=approval is not None)
        self.cluster.mark(node.name, mark(ID))
        if approval:
            self.approve(approval)
        self.clock.forward(1)
        self.lease()
        self.evacuate(node)
        self.act(node, Verb.REBOOT)
        self.clock.forward(3_600)
        return node

    def give_back(self, node: Node, end: End = End.RETURNED) -> None:
        self.cluster.lift(node.name, ID)
        self.view(node, State.ENDED, end)

    def ask_for_a_successor(self) -> Node:
        node = self.node()
        self.world.inject(node.name, "xid/79", covers=[Covers.BUS], cure=[])
        self.view(node, State.PLANNED)
        self.decide()
        self.cluster.mark(node.name, mark(ID))
        self.lease()
        self.act(node, Verb.REQUEST)
        return node

    def replace_well(self) -> Node:
        node = self.ask_for_a_successor()
        self.evacuate(node)
        self.act(node, Verb.TERMINATE)
        self.clock.forward(3_600)
        self.give_back(node.model_copy(update={"name": "gpu-a-017"}), End.REPLACED)
        self.view(node, State.ENDED, End.REPLACED)
        return node

    def verdict(self) -> Verdict:
        return judge(gather(self.db, self.world))

    def wrong(self) -> str:
        """Everything that the verdict finds wrong; it must find something."""
        verdict = self.verdict()
        assert not verdict.well
        assert "Not well." in table(verdict)
        return table(verdict)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path)
    yield story
    story.close()


def test_a_repair_that_went_well(story: Story) -> None:
    story.give_back(story.reboot_well())
    verdict = story.verdict()
    assert verdict.well, table(verdict)
    (case,) = verdict.cases
    assert (case.ended, case.truth, case.remedies) == ("returned", "cured by reboot", ("reboot",))


def test_a_replacement_that_went_well(story: Story) -> None:
    story.replace_well()
    verdict = story.verdict()
    assert verdict.well, table(verdict)
    assert verdict.cases[0].remedies == ("request", "terminate")


def test_an_approved_repair_that_went_well(story: Story) -> None:
    story.give_back(story.reboot_well(approval=ApprovalState.APPROVED))
    assert story.verdict().well


def test_nobody_heard_of_a_fault(story: Story) -> None:
    story.world.inject(story.node().name, "xid/79", covers=[Covers.BUS])
    assert "nobody opened an incident" in story.wrong()


def test_an_incident_without_an_end(story: Story) -> None:
    story.reboot_well()
    assert "has no end: planned" in story.wrong()


def test_returned_but_still_faulty(story: Story) -> None:
    node = story.reboot_well(inject=False)
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS], cure=[])
    story.give_back(node)
    assert "xid/79 is still there" in story.wrong()
    assert "is sick and takes work" in story.wrong()


def test_a_mark_left_behind(story: Story) -> None:
    node = story.reboot_well()
    story.view(node, State.ENDED, End.RETURNED)
    assert "healthy, but still marked" in story.wrong()


def test_handed_over_although_a_reboot_would_do(story: Story) -> None:
    node = story.node(IRONWORKS)
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS])
    story.cluster.mark(node.name, mark(ID))
    story.view(node, State.HANDED_OVER)
    assert "would have cured it" in story.wrong()


@pytest.mark.parametrize("why", ["incurable", "in trouble"])
def test_handed_over_with_a_reason(story: Story, why: str) -> None:
    node = story.node(IRONWORKS)
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS], cure=[] if why == "incurable" else [Effect.REBOOT])
    if why == "in trouble":
        story.world.script(Effect.MARK, Manner.LIE)
        story.cluster.mark(node.name, mark(ID))
    story.cluster.mark(node.name, mark(ID))
    story.view(node, State.HANDED_OVER)
    assert story.verdict().well


def test_a_second_reboot(story: Story) -> None:
    node = story.reboot_well()
    story.parts.providers[0].do(Verb.REBOOT, node, ID)
    story.clock.forward(3_600)
    story.give_back(node)
    assert "took effect 2 times, intended 1 times" in story.wrong()


def test_a_persons_reboot_is_not_ours(story: Story) -> None:
    node = story.reboot_well()
    story.world.by_hand(Verb.REBOOT, node.name, "alice")
    story.clock.forward(3_600)
    story.give_back(node)
    assert story.verdict().well


def test_an_intent_stored_after_the_call(story: Story) -> None:
    story.give_back(story.reboot_well())
    with story.db.transaction() as connection:
        connection.execute(sa.update(intents).values(at=datetime(2030, 1, 1, tzinfo=UTC)))
    assert "before its intent" in story.wrong()


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("act-reboot", "no line of the step inc-1/act-reboot/1"),
        ("acquire", "no lease"),
        ("decision", "no decision before it"),
    ],
)
def test_a_line_that_was_lost(story: Story, step: str, complaint: str) -> None:
    story.give_back(story.reboot_well())
    with story.db.transaction() as connection:
        connection.execute(sa.delete(lines).where(lines.c.step == step))
    assert complaint in story.wrong()


@pytest.mark.parametrize("state", [ApprovalState.PENDING, ApprovalState.REJECTED, ApprovalState.EXPIRED])
def test_done_without_a_yes(story: Story, state: ApprovalState) -> None:
    story.give_back(story.reboot_well(approval=state))
    assert "people had to agree" in story.wrong()
    assert f"approval a-1 for this plan is {state}" in story.wrong()


def test_a_reboot_under_running_work(story: Story) -> None:
    node = story.node()
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS])
    story.view(node, State.PLANNED)
    story.decide()
    story.cluster.mark(node.name, mark(ID))
    story.lease()
    story.act(node, Verb.REBOOT)
    story.clock.forward(3_600)
    story.give_back(node)
    assert "1 pods were still running" in story.wrong()


def test_a_successor_that_nobody_needs(story: Story) -> None:
    node = story.reboot_well()
    story.act(node, Verb.REQUEST)
    story.give_back(node)
    assert "costs money for nothing" in story.wrong()


def test_two_successors(story: Story) -> None:
    story.parts.providers[0].do(Verb.REQUEST, story.ask_for_a_successor(), ID)
    assert "cost money at once" in story.wrong()


def test_replaced_but_the_old_one_runs(story: Story) -> None:
    node = story.reboot_well(inject=False)
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS], cure=[])
    story.view(node, State.ENDED, End.REPLACED)
    assert "the old machine still runs" in story.wrong()
    assert "there is no successor" in story.wrong()


def test_a_ticket_opened_twice(story: Story) -> None:
    node = story.reboot_well()
    for _ in range(2):
        story.parts.tickets.open(f"{ID}/ticket/1", "t", "b", SKYLINE)
    story.give_back(node)
    assert "ticket of inc-1/ticket/1 took effect 2 times" in story.wrong()


def test_observed_but_touched(story: Story) -> None:
    node = story.node()
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS])
    story.view(node, State.OBSERVED)
    assert story.verdict().well
    story.cluster.mark(node.name, mark(ID))
    assert "something was touched" in story.wrong()


def test_the_same_fault_on_the_successor_is_judged_with_its_incident(story: Story) -> None:
    node = story.node()
    behaviour = Behaviour(successor_faulty=True)
    story.world.inject(node.name, "xid/79", covers=[Covers.BUS], cure=[], behaviour=behaviour)
    story.view(node, State.PLANNED)
    story.decide()
    story.cluster.mark(node.name, mark(ID))
    story.lease()
    story.act(node, Verb.REQUEST)
    story.clock.forward(3_600)
    story.view(node, State.HANDED_OVER)
    verdict = story.verdict()
    assert verdict.well, table(verdict)
    assert [case.incident for case in verdict.cases] == [ID, ID]


def test_the_command_answers_with_its_exit_code(story: Story, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulation.verdict", "--ledger", f"sqlite:///{tmp_path / 'ledger.sqlite'}"]
    node = story.reboot_well()
    bad = subprocess.run([*command, "--world", str(tmp_path / "world")], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "WRONG" in bad.stdout
    story.give_back(node)
    good = subprocess.run(
        [*command, "--world", str(tmp_path / "world"), "--json"], capture_output=True, text=True, check=False
    )
    assert good.returncode == 0, good.stdout
    assert json.loads(good.stdout)["well"] is True
    lost = subprocess.run([*command, "--world", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert lost.returncode == 2
    assert "World.create" in lost.stderr
