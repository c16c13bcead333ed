"""How far a campaign has come, and its next step. Pure: the workflow, and the simulator, run this same function."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from medevac.campaigns.halting import Evidence, why_halt
from medevac.campaigns.spec import Care
from medevac.model import Model


class NodeState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    """Its order is with the node's incident."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        return self in (NodeState.DONE, NodeState.FAILED, NodeState.SKIPPED)


class CampaignState(StrEnum):
    ASKED = "asked"
    """Waits for people's yes."""
    RUNNING = "running"
    SOAKING = "soaking"
    """A stage is through; what it does to its nodes is watched."""
    PAUSED = "paused"
    HALTED = "halted"
    """Stopped by what was seen or by a person; nothing is begun, what is under way ends."""
    ENDING = "ending"
    """A person has ended it: what is in hand is taken back or ends."""
    ENDED = "ended"

    @property
    def begins(self) -> bool:
        """True where orders may still be carried out."""
        return self in (CampaignState.RUNNING, CampaignState.SOAKING)


POSSIBLE_IN: Mapping[str, tuple[CampaignState, ...]] = {
    "pause": (CampaignState.RUNNING, CampaignState.SOAKING),
    "halt": (CampaignState.ASKED, CampaignState.RUNNING, CampaignState.SOAKING, CampaignState.PAUSED),
    "resume": (CampaignState.PAUSED, CampaignState.HALTED),
    "widen": (CampaignState.SOAKING,),
    "end": (
        CampaignState.ASKED, CampaignState.RUNNING, CampaignState.SOAKING, CampaignState.PAUSED, CampaignState.HALTED,
    ),
}  # fmt: skip
"""A person's order → the states in which it can be given. One that was never agreed to is over with either stop."""


def ordered(to: CampaignState, who: str, reason: str) -> str:
    """Why a campaign is in a state that a person has put it in."""
    return f"{to} by {who}{f': {reason}' if reason else ''}"


def stopped_itself(state: CampaignState, why: str) -> bool:
    """Halted by what was seen, not by a person."""
    return state is CampaignState.HALTED and not why.startswith(ordered(state, "", ""))


class NodeProgress(Model):
    cluster: str
    node: str
    state: NodeState = NodeState.WAITING
    why: str = ""
    sent_at: datetime | None = None
    over_at: datetime | None = None
    """When the act on it was through; of one that is skipped, only where it had been sent all the same."""
    by: str | None = None
    """Who left it out, of one that is skipped because a person stopped its incident."""
    incident: str | None = None
    fault: str | None = None
    """The first of its own within the window after the action."""
    job: str | None = None
    """A job that failed on it within the window."""
    run: int = 0
    """Of its checks, where the campaign only checks: the one that was begun last. 0 = none yet."""

    @property
    def key(self) -> str:
        return f"{self.cluster}/{self.node}"


class Step(Model):
    """What to do now."""

    state: CampaignState
    passed: int
    """Stages that are behind; the canary is the first."""
    why: str
    """In words for people: what it waits for, or why it stopped."""
    send: tuple[str, ...] = ()
    """Keys of the nodes whose orders go out, in order."""
    look_again_s: float = 30.0


class Beside(Model):
    """What happened meanwhile to the pools' nodes that were not acted on, and what percent of each pool is out."""

    faults: int = 0
    jobs: int = 0
    node_s: float = 0.0
    out: dict[str, float] = {}


@dataclass(slots=True)
class Tally:
    """One pass over the nodes; a campaign of thousands is looked at every half minute."""

    waiting: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    left_out: int = 0
    """Of those that are skipped: acted on before a person took them out, so that their faults count."""
    faulted: int = 0
    jobs_hurt: int = 0
    exposure_s: float = 0.0
    last: datetime | None = None
    """When the last node that was acted on was through."""

    @property
    def begun(self) -> int:
        """Without those left out: another node takes such a one's place in its stage, which none passes unjudged."""
        return self.sent + self.done + self.failed


def tally(care: Care, nodes: Iterable[NodeProgress], now: datetime) -> Tally:
    found = Tally()
    for one in nodes:
        state = one.state
        if state is NodeState.WAITING:
            found.waiting += 1
        elif state is NodeState.SENT:
            found.sent += 1
        elif one.over_at is None:
            found.skipped += 1
        else:
            found.skipped += state is NodeState.SKIPPED
            found.left_out += state is NodeState.SKIPPED
            found.done += state is NodeState.DONE
            found.failed += state is NodeState.FAILED
            found.faulted += one.fault is not None
            found.jobs_hurt += one.job is not None
            found.exposure_s += min(max(0.0, (now - one.over_at).total_seconds()), care.window)
            if found.last is None or one.over_at > found.last:
                found.last = one.over_at
    return found


def evidence(found: Tally, beside: Beside) -> Evidence:
    return Evidence(
        acted=found.done + found.failed,
        failed=found.failed,
        left_out=found.left_out,
        faulted=found.faulted,
        jobs_hurt=found.jobs_hurt,
        exposure_node_s=found.exposure_s,
        beside_faults=beside.faults,
        beside_jobs=beside.jobs,
        beside_node_s=beside.node_s,
        out=beside.out,
    )


def left_out(nodes: Iterable[NodeProgress]) -> str:
    """How many a person left out, and who; empty where nobody did."""
    by = Counter(one.by for one in nodes if one.by)
    who = ", ".join(f"{n} by {person}" for person, n in by.most_common())
    return f"{by.total()} left out by people ({who})" if by else ""


def step(
    care: Care,
    at_once: int,
    state: CampaignState,
    passed: int,
    nodes: Sequence[NodeProgress],
    beside: Beside,
    now: datetime,
    *,
    holds: bool = False,
    known: Evidence | None = None,
) -> Step:
    """`nodes` in the plan's order. A paused or halted campaign begins nothing; only a person lets it go on.

    `holds`: what was done lasts until a person ends the campaign, so that it never ends by itself. `known`: what had
    been seen when people let it go on after a halt; only what came since then halts it again.
    """
    if not state.begins:
        return Step(state=state, passed=passed, why="")
    staged = passed < len(care.stages)
    seen = tally(care, nodes, now)
    if halted := why_halt(care, evidence(seen, beside).since(known or Evidence()), staged=staged, in_hand=seen.sent):
        return Step(state=CampaignState.HALTED, passed=passed, why=halted)
    cap = _cap(care, passed, len(nodes))
    not_well = f", {seen.failed} failed" if seen.failed else ""
    if skipped := seen.skipped - sum(bool(one.by) for one in nodes):
        not_well += f", {skipped} skipped"
    out = f", {words}" if (words := left_out(nodes)) else ""
    if seen.sent == 0 and (seen.begun >= cap or not seen.waiting):
        left_s = care.soak - (now - seen.last).total_seconds() if seen.last else 0.0
        if left_s > 0:
            why = f"{seen.done} of {len(nodes)} done{not_well}{out}; watched for {left_s / 60:.0f} min more"
            return Step(state=CampaignState.SOAKING, passed=passed, why=why, look_again_s=min(left_s, care.look))
        if not seen.waiting and holds:
            why = f"drained and held{not_well}{out}; `medevac campaign end` has them checked and returned"
            return Step(state=CampaignState.SOAKING, passed=len(care.stages), why=why, look_again_s=care.look)
        if not seen.waiting:
            why = ended(nodes, seen)
            return Step(state=CampaignState.ENDED, passed=len(care.stages), why=why)
        return step(care, at_once, state, passed + 1, nodes, beside, now, holds=holds, known=known)
    room = max(0, min(at_once - seen.sent, cap - seen.begun))
    send = tuple(islice((one.key for one in nodes if one.state is NodeState.WAITING), room))
    stage = f"stage {passed + 1} of {len(care.stages)}" if staged else "the stages are behind"
    why = (
        f"{stage}: {seen.done} done{not_well}, {seen.sent + len(send)} in hand, {seen.waiting - len(send)} to come{out}"
    )
    return Step(state=CampaignState.RUNNING, passed=passed, why=why, send=send, look_again_s=care.look)


def ended(nodes: Sequence[NodeProgress], seen: Tally) -> str:
    """What a campaign that is through has come to. What people took from it is no success, and isn't told as one."""
    people = sum(bool(one.by) for one in nodes)
    why = f"{seen.done} done, {seen.failed} failed, {seen.skipped - people} skipped"
    return f"not the whole list: {why}, {left_out(nodes)}" if people else why


def widened(care: Care, passed: int, nodes: Sequence[NodeProgress], now: datetime) -> int:
    """Stages that are behind once a person takes the present one as watched: the next one that takes more nodes."""
    begun = tally(care, nodes, now).begun
    later = range(passed + 1, len(care.stages))
    return next((n for n in later if _cap(care, n, len(nodes)) > begun), max(passed + 1, len(care.stages)))


def caps(care: Care, count: int) -> tuple[int, ...]:
    """Nodes of `count` that may have been acted on when each stage is watched. Each takes one more than the one before
    it at least, so that a list too short for percents is tried on one node, then on a few, and not at once on all.
    """
    found: list[int] = []
    for share in care.stages:
        found.append(max(math.floor(count * share / 100), found[-1] + 1 if found else 1))
    return tuple(found)


def _cap(care: Care, passed: int, count: int) -> int:
    """Nodes that may have been acted on when so many stages are behind."""
    return caps(care, count)[passed] if passed < len(care.stages) else count
