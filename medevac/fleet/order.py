"""What a campaign asks of one node: done by the node's own incident, under its locks, leases, drain and checks."""

from __future__ import annotations

from collections.abc import Collection

from medevac.fleet.node import Identity
from medevac.incident import Outcome, StepResult
from medevac.model import Model

ORDER = "campaign/"
"""Code of the planned fault that carries an order: `campaign/<id>`. No sender may use it."""


class Order(Model):
    """Stands in for the rules and the ladder, and for the questions that people have answered for the whole list."""

    campaign: str
    approval: str
    """People's yes to the campaign's plan, counted again before anything is destroyed."""
    rung: str
    """The only one that is taken, and once: without success a person decides. A second time only where the first
    call may never have been made."""
    drain: str = "checkpoint"
    image: str | None = None
    """What `reinstall` is to install; None = the provider's own choice."""
    deadline_s: float = 3_600.0
    """For the proof of the rung."""
    uid: str | None = None
    machine_id: str | None = None
    """The machine that people agreed to; None where the list doesn't say."""

    @property
    def code(self) -> str:
        return f"{ORDER}{self.campaign}"

    @property
    def unsaid(self) -> set[str]:
        """Left out of a plan's hash where the list doesn't say, as in plans of before it could."""
        return {name for name in ("uid", "machine_id") if getattr(self, name) is None}

    def of(self, uid: str | None, machine_id: str) -> Order:
        """For one machine of the list."""
        return self.model_copy(update={"uid": uid, "machine_id": machine_id})

    def another(self, found: Identity | None) -> str:
        """Why `found` isn't the machine on the list; empty where it is, or the list doesn't say."""
        if found is None:
            return "it is gone"
        if self.machine_id is not None and found.machine_id != self.machine_id:
            return f"it is machine {found.machine_id} now; campaign {self.campaign} lists {self.machine_id}"
        if self.uid is not None and found.uid != self.uid:
            return f"it was made anew: uid {found.uid} now; campaign {self.campaign} lists {self.uid}"
        return ""


def unplanned(faults: Collection[str], rung: str | None, touched: bool) -> bool:
    """True of an incident of orders alone for which no rung could be planned. The campaign notes the node as left out
    and takes its order back, which ends the incident: nobody has anything to do there, and nobody is woken.

    `touched`: the act was sent, or a drain for it had begun. What became of that is for a person to see.
    """
    return bool(faults) and all(code.startswith(ORDER) for code in faults) and rung is None and not touched


def evicted(drain: StepResult) -> bool:
    """Whether a drain that ended so may have evicted somebody: not where it was refused before the first eviction."""
    return drain.outcome is not Outcome.REFUSED or bool(drain.proof.get("evicted") or drain.proof.get("begun"))
