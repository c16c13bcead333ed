"""How the simulated world misbehaves: calls that fail in a given manner, and faults that a remedy doesn't end."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from medevac.model import Model


class Effect(StrEnum):
    """Every physical call, as it stands in the effect log; the values of `Verb` are among them."""

    MARK = "mark"
    LIFT = "lift"
    NOTICE = "notice"
    TAKE_BACK = "take_back"
    """Of a notice."""
    EVICT = "evict"
    DELETE = "delete"
    RESTART_AGENT = "restart_agent"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    REINSTALL = "reinstall"
    REQUEST = "request"
    TERMINATE = "terminate"
    RELEASE = "release"
    """Of a machine that was asked for and never came up."""
    CHECK = "check"
    TICKET = "ticket"
    CHAT = "chat"


class Read(StrEnum):
    """What else can be made to fail: reads (`Manner.UNREADABLE`), and the run of a check (`Manner.FLAKE`)."""

    NODE = "read_node"
    MACHINE = "read_machine"
    PODS = "read_pods"
    TICKETS = "find_ticket"
    CHAT = "find_message"
    CHECK = "run_check"


class Manner(StrEnum):
    REFUSE = "refuse"
    """`NotSent`, final."""
    THROTTLE = "throttle"
    """`NotSent` with `retry_after_s`."""
    TIMEOUT_BEFORE = "timeout_before"
    """`Unclear`, and nothing happened."""
    TIMEOUT_AFTER = "timeout_after"
    """`Unclear`, and it happened."""
    LIE = "lie"
    """Says done, and nothing happened."""
    UNREADABLE = "unreadable"
    """Reads."""
    FLAKE = "flake"
    """A check ends without a verdict, because it couldn't run."""


class Hazard(Model):
    """A misfortune with a probability per call, drawn from the seed, the target and the number of the call."""

    verb: Effect | Read
    manner: Manner
    probability: float = Field(ge=0, le=1)
    retry_after_s: float = 1.0


class Behaviour(Model):
    """How an injected fault differs from one that its cure ends and every check sees."""

    under_load: bool = False
    """The node passes at boot: only checks that cover `thermal`, `compute` or `bus` tell."""
    clears: tuple[Effect, ...] = ()
    """After these the fault is away for `recurs_after_s`, then it is back; also where one is said to cure."""
    recurs_after_s: float = 60.0
    not_ready: bool = False
    """The node is silent while the fault is there; its pods don't terminate."""
    never_boots: bool = False
    """After a reboot or reinstall the node stays down."""
    successor_never_joins: bool = False
    """Of the machine's own provider."""
    successor_faulty: bool = False
    """The machine that is asked for has the same fault."""
