"""The one way through which every physical call reaches the world: kill points, misfortune, effect, log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from activities.ports import NotSent, Unclear, Unreadable
from simulation import killpoints
from simulation.did import Did
from simulation.hazards import Effect, Manner, Read
from simulation.moment import Moment
from simulation.reading import BEGUN

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    effect: Effect
    cluster: str
    node: str
    target: str
    tag: str
    act: Callable[[Moment], Did[T]]
    """Raises `NotSent` when the world itself refuses."""
    lie: T
    """What it says when nothing happened."""


def make(world: World, call: Call[T]) -> T:
    begun_at = world.clock().timestamp()
    killpoints.hit(call.effect, "before", call.node)
    failure: NotSent | Unclear | None = None
    with world.write() as m:
        manner, retry_after_s = m.misfortune(call.effect, call.cluster, call.node) or (None, 0.0)
        did: Did[T]
        if manner in (None, Manner.TIMEOUT_AFTER):
            try:
                did = call.act(m)
            except NotSent as refusal:
                did, failure = Did(call.lie, False, {"refused": str(refusal)}), refusal
        else:
            did = Did(call.lie, False)
        m.log(
            call.effect, call.cluster, call.node, call.target, call.tag,
            applied=did.applied, manner=manner, detail={**did.detail, BEGUN: begun_at},
        )  # fmt: skip
    killpoints.hit(call.effect, "after", call.node)
    failure = failure or _failure(manner, retry_after_s, call)
    if failure:
        raise failure
    return did.answer


def _failure(manner: Manner | None, retry_after_s: float, call: Call[Any]) -> NotSent | Unclear | None:
    what = f"{call.effect.value} of {call.target}"
    match manner:
        case Manner.REFUSE:
            return NotSent(f"{what}: refused", final=True)
        case Manner.THROTTLE:
            return NotSent(f"{what}: too many requests", retry_after_s=retry_after_s)
        case Manner.TIMEOUT_BEFORE | Manner.TIMEOUT_AFTER:
            return Unclear(f"{what}: no answer in time")
        case _:
            return None


def readable(world: World, read: Read, cluster: str = "", node: str = "") -> None:
    """Raises `Unreadable` when this read is made to fail."""
    if not world.misfortunes(read):
        return
    with world.write() as m:
        failing = m.misfortune(read, cluster, node)
    if failing:
        raise Unreadable(f"{read.value} {node or cluster}: no answer from the simulated system")
