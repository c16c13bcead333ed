"""`Settings`: all that a fleet decides for itself, as the policy file says it. Its bounds are `bounds`'."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from medevac.faults.threshold import Threshold
from medevac.fleet.limits import Limits
from medevac.fleet.node import Node
from medevac.model import Model
from medevac.policy.durations import Duration
from medevac.policy.ladders import LADDERS, Ladder
from medevac.policy.names import Name
from medevac.policy.people import Who, WhoMay, need
from medevac.policy.plan import ApprovalNeed, AtBudget, AtJobEnd, Drain, Rung
from medevac.policy.pools import STORAGE, Pool
from medevac.policy.rules import Rule
from medevac.policy.shifts import Shifts
from medevac.policy.windows import Window

GentleGrace = Annotated[Duration, Field(gt=0, le=30)]


class Drains(Model):
    """How long work may take to leave, and what becomes of what still stays then."""

    now: Annotated[Duration, Field(le=30)] = 30.0
    soon: Annotated[Duration, Field(gt=0, le=900)] = 900.0
    checkpoint: Annotated[Duration, Field(gt=0, le=2_700)] = 2_700.0
    job_end: Annotated[Duration, Field(gt=0, le=86_400)] = 86_400.0
    pod_grace: GentleGrace = 30.0
    """A pod's own time to stop, once it is evicted."""
    at_budget: AtBudget = AtBudget.ASK
    """What is done about pods that a disruption budget still refuses at the deadline. `delete` is never a default."""
    at_job_end: AtJobEnd = AtJobEnd.ASK
    """What is done about jobs that still run when the time of `job_end` is over. `evict` is never a default."""

    @model_validator(mode="before")
    @classmethod
    def _older_spelling(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "bypass_budgets" not in given:
            return given
        rest = {name: value for name, value in given.items() if name != "bypass_budgets"}
        old = given["bypass_budgets"]
        if "at_budget" in rest or not isinstance(old, bool):
            raise ValueError("`bypass_budgets: true` is an older way to write `at_budget: delete`; write only that")
        return {**rest, "at_budget": AtBudget.DELETE} if old else rest

    def of(self, drain: Drain) -> float:
        return {
            Drain.NOW: self.now,
            Drain.SOON: self.soon,
            Drain.CHECKPOINT: self.checkpoint,
            Drain.JOB_END: self.job_end,
        }[drain]


class Attempts(Model):
    """Counted for each machine in the ledger, through close, re-open, rename and abort."""

    same_rung: int = Field(default=2, ge=1, le=2)
    """Of one rung for one fault class within `window`; of `reboot` for all classes together."""
    window: Annotated[Duration, Field(ge=604_800)] = 604_800.0
    incidents: int = Field(default=3, ge=2, le=3)
    """The incident of one class within `window` that starts at the last rung: the third."""


class Checkpoint(Model):
    """Where the last checkpoint of some jobs shows, for those that don't speak the checkpoint protocol."""

    namespaces: tuple[Name, ...] = ()
    kinds: tuple[Name, ...] = ()
    annotation: str | None = None
    """On the workload, or its pods: the time of its last complete checkpoint."""
    command: str | None = None
    """Name of a probe of the cluster's configuration, which tells the time."""
    interval: Annotated[Duration, Field(gt=0)] | None = None
    """The job saves at least this often; at most so much is lost."""


class TicketCare(Model):
    """How cases with providers are kept up."""

    patience: Annotated[Duration, Field(gt=0)] = 86_400.0
    """Silence of the provider after which it is asked again."""
    chases: int = Field(default=3, ge=0, le=20)
    """How often it is asked again before a person is called."""
    per_hour: int = Field(default=5, ge=1, le=5)
    """New cases of one provider; what comes beyond is gathered in one, and a person is called."""
    look_every: Annotated[Duration, Field(gt=0)] = 900.0
    """How often replies and machines are looked at."""


class Audiences(Model):
    """Chat rooms by what is said there. A rule's `notify` may name one of `others`."""

    everyday: str = "gpu-fleet"
    person_needed: str = "gpu-oncall"
    approvals: str = "gpu-approvals"
    others: dict[Name, str] = Field(default_factory=dict)


class Settings(Model):
    version: Literal[1] = 1
    """Of the file's format."""
    name: Name
    simulated_only: bool = False
    """True: may let every rung go by itself, and is refused where anything is real."""
    pools: dict[Name, Pool] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    ladders: dict[Name, Ladder] = Field(default_factory=lambda: dict(LADDERS))
    auto: tuple[Rung, ...] = (Rung.WAIT, Rung.RESTART_AGENT, Rung.RESET_GPU, Rung.REBOOT, Rung.RMA)
    """Rungs that mode `auto` may take without asking. All others ask, in every mode."""
    attempts: Attempts = Attempts()
    drains: Drains = Drains()
    limits: Limits = Limits()
    who_may: WhoMay = WhoMay()
    approval_expires: Annotated[Duration, Field(gt=0, le=86_400)] = 14_400.0
    """No answer by then is a no."""
    approval_reminder: Annotated[Duration, Field(gt=0)] | None = None
    """When those who haven't answered are told again, and each act's second group (`then`) too. Unset: half-way."""
    approval_pages: bool = False
    """The reminder wakes whoever is on call, until the question is decided."""
    thresholds: tuple[Threshold, ...] = ()
    watch: Duration = 600.0
    """A fault that may clear by itself is given this long, from when it was first seen."""
    notice_margin: Duration = 600.0
    """A planned drain must be over this long before the provider's time."""
    verify: Annotated[Duration, Field(gt=0)] = 900.0
    """Deadline of the check after a remedy."""
    probation: Duration = 86_400.0
    """After its return a node is watched this long; the same class again counts as the same incident's failure."""
    repeat: Annotated[Duration, Field(gt=0)] = 14_400.0
    """How often senders repeat what holds, until each has shown its own pace; unrepeated for two, it is unknown."""
    quiet: Annotated[Duration, Field(gt=0)] = 86_400.0
    """An observed fault that nobody repeats for this long is closed."""
    checkpoints: tuple[Checkpoint, ...] = ()
    windows: dict[Name, Window] = Field(default_factory=dict)
    """Change freezes and maintenance windows."""
    handover: Shifts | None = None
    """When shifts change: the hand-over is posted in chat then."""
    tickets: TicketCare = TicketCare()
    audiences: Audiences = Audiences()
    ask_above_gpu_hours: Annotated[float, Field(ge=0)] | None = None
    """Whatever disrupts asks where more than so many GPU-hours of work would be lost, or nobody knows how many."""
    evidence: Literal["wanted", "required"] = "wanted"
    """What is known about a machine is kept before anything irreversible. `required`: where it can't be had, wait."""

    def pools_of(self, node: Node) -> tuple[str, ...]:
        """Every pool that would take the node. Only exactly one makes it a member."""
        return tuple(name for name, pool in self.pools.items() if pool.takes(node))

    def place(self, node: Node) -> Node:
        """The node with `pool` as this policy sees it; None where no pool or several would take it."""
        names = self.pools_of(node)
        return node.model_copy(update={"pool": names[0] if len(names) == 1 else None})

    def domains(self, node: Node) -> dict[str, str]:
        """Failure domains of a placed node; storage nodes share one, so that they go one at a time."""
        domains = node.domains
        if STORAGE in node.roles:
            domains[STORAGE] = node.cluster
        return domains

    def need(self, who: Who, why: tuple[str, ...]) -> ApprovalNeed:
        return need(who, why, self.approval_expires, self.approval_reminder, self.approval_pages)
