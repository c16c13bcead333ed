"""Fences: what is frozen, by whom, and whom that stops."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from medevac.incident import said_by
from medevac.model import Model

SCOPES = "`all`, `cluster/<c>`, `pool/<c>/<p>`, `provider/<p>` or `node/<c>/<n>`"
_PARTS = {"cluster": 1, "pool": 2, "provider": 1, "node": 2}


class Edge(StrEnum):
    DESTRUCTIVE = "destructive"
    MARK = "mark"


class ThawVote(Model):
    """One person's word to go on."""

    by: str
    at: datetime
    why: str = ""
    via: str = ""
    """By what way the word came; empty in what older releases wrote."""

    @property
    def said(self) -> str:
        return f"{said_by(self.by, self.via)} at {self.at:%Y-%m-%d %H:%M} UTC{f': {self.why}' if self.why else ''}"


class Fence(Model):
    epoch: int
    """Grows with every freeze."""
    scope: str
    by: str
    reason: str
    marks: bool = False
    """Marking is stopped too, not only destruction."""
    at: datetime
    via: str = ""
    """By what way the word came; empty in what older releases wrote."""
    thaw_votes: tuple[ThawVote, ...] = ()
    """Who wants to go on, and why: as stored all that was ever said of it, once weighed what counts."""
    lapsed: tuple[str, ...] = ()
    """Once weighed: whose word counts no more, and why."""

    @property
    def said(self) -> str:
        """To whoever it stops."""
        return f"frozen: {self.scope} by {self.by}: {self.reason}"


class Thaw(Model):
    """What one person's thaw came to."""

    scope: str
    found: bool
    """False when nothing was frozen at that very scope."""
    thawed: bool
    by: tuple[str, ...]
    need: int
    lapsed: tuple[str, ...] = ()
    """Whose word to go on counts no more, and why."""

    def __str__(self) -> str:
        if not self.found:
            return f"{self.scope} isn't frozen"
        if self.thawed:
            return f"{self.scope} is thawed by {' and '.join(self.by)}"
        want = f"{len(self.by)} of {self.need} people want to thaw it ({', '.join(self.by)})"
        return f"{self.scope} stays frozen: {'; '.join((want, *self.lapsed))}"


def scopes_of(cluster: str, node: str, pool: str | None = None, provider: str | None = None) -> tuple[str, ...]:
    """Every scope whose freeze stops this node, widest first."""
    scopes = ["all", f"cluster/{cluster}"]
    if provider:
        scopes.append(f"provider/{provider}")
    scopes.append(f"pool/{cluster}/{pool or '-'}")
    scopes.append(f"node/{cluster}/{node}")
    return tuple(scopes)


def check_scope(scope: str) -> None:
    """Raises `ValueError` for a scope that nothing could ever stand in: an empty one is an error, never `all`."""
    kind, *rest = scope.split("/")
    if not scope.isprintable() or any(map(str.isspace, scope)):
        raise ValueError(f"{scope!r} holds what no name does; it is {SCOPES}")
    if scope == "all" or (kind in _PARTS and len(rest) == _PARTS[kind] and all(rest)):
        return
    raise ValueError(f"{scope!r} is no scope; it is {SCOPES}")


def strongest(fences: Iterable[Fence], scopes: tuple[str, ...], edge: Edge) -> Fence | None:
    """The widest fence that stops `edge` in one of `scopes`."""
    stops = [f for f in fences if f.scope in scopes and (f.marks or edge is Edge.DESTRUCTIVE)]
    return min(stops, key=lambda f: (scopes.index(f.scope), f.epoch), default=None)
