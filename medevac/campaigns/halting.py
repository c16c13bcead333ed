"""When a campaign must stop: what happens to its nodes is held against what happens to nodes anyway.

Counts are Poisson or binomial, and tails are exact. Early on two bad nodes are enough: a few dozen nodes hardly ever
have two faults within an hour; later, looked at again and again over thousands, it takes far more to tell. In the
stages one is enough where it is half of what was begun: a canary that fails has told what it was there to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from medevac.campaigns.spec import Care
from medevac.counted import count
from medevac.model import Model

STAGED_ALPHA = 0.01
"""Chance of stopping a stage for nothing, at most; there are a handful of them."""
ROLLING_ALPHA = 1e-4
"""The same for one look of the hundreds afterwards."""
LEAST_BAD = 2
PRIOR_NODE_DAYS = 500.0
"""How much the expected rate weighs against what the nodes beside show."""
DAY_S = timedelta(days=1).total_seconds()


class Evidence(Model):
    """What was seen until now. `acted` are nodes on which the action has ended, well or not."""

    acted: int = 0
    failed: int = 0
    """Where the action itself failed: not proved, check failed, handed over, never came back."""
    left_out: int = 0
    """Nodes that a person took out after the act had been sent: how it ended nobody has judged, so they are not among
    `acted`, neither well nor failed; but what happens to them afterwards tells of the act as that of the others."""
    faulted: int = 0
    """Acted or left out, with a fault of their own within the window."""
    jobs_hurt: int = 0
    """Acted or left out, and a job failed on them within the window."""
    exposure_node_s: float = 0.0
    """Time within their windows that these have spent so far."""
    beside_faults: int = 0
    beside_jobs: int = 0
    beside_node_s: float = 0.0
    """The same of nodes that were not acted on, at the same time."""
    out: dict[str, float] = {}
    """Percent of each pool concerned that is out of service by anything but the campaign."""

    def since(self, before: Evidence) -> Evidence:
        """Without what was seen of the campaign's own nodes until `before`, and pools of which no more is out."""
        own = ("acted", "failed", "left_out", "faulted", "jobs_hurt", "exposure_node_s")
        new: dict[str, Any] = {name: getattr(self, name) - getattr(before, name) for name in own}
        new["out"] = {pool: share for pool, share in self.out.items() if share > before.out.get(pool, 0.0)}
        return self.model_copy(update=new)

    def still_weighed(self, out: Mapping[str, float], limit: float) -> Evidence:
        """Without the pools that have been below `limit` since: that was over, and a rise from there is another."""
        kept = {pool: share for pool, share in self.out.items() if out.get(pool, 0.0) >= limit}
        return self if kept == self.out else self.model_copy(update={"out": kept})


def why_halt(care: Care, seen: Evidence, *, staged: bool, in_hand: int = 0) -> str:
    """Empty while it may go on. `in_hand`: nodes that are begun and not through."""
    alpha = STAGED_ALPHA if staged else ROLLING_ALPHA
    pool, share = max(seen.out.items(), key=lambda one: one[1], default=("", 0.0))
    if share >= care.out_percent:
        return f"{share:.1f} % of pool {pool} are out of service by other causes; {care.out_percent:g} % may be"
    half = staged and 0 < seen.acted + in_hand <= 2 * seen.failed
    rare = seen.failed >= LEAST_BAD and binomial_tail(seen.failed, seen.acted, care.expected_failures) < alpha
    if half or rare:
        return f"it failed on {seen.failed} of {count(seen.acted, 'node')}; {care.expected_failures:.0%} would be usual"
    shown = seen.acted + seen.left_out
    for what, bad, beside in (
        ("had a fault", seen.faulted, seen.beside_faults),
        ("lost a job", seen.jobs_hurt, seen.beside_jobs),
    ):
        expected = _rate(care, beside, seen.beside_node_s) * seen.exposure_node_s
        enough = LEAST_BAD if not staged or 2 * bad < shown + in_hand or not shown else 1
        if bad >= enough and poisson_tail(bad, expected) < alpha:
            return (
                f"{bad} of {count(shown, 'node')} {what} within {care.window / 60:.0f} min of it; "
                f"{expected:.1f} would be usual"
            )
    return ""


def _rate(care: Care, beside: int, beside_node_s: float) -> float:
    """Per node and second: what was expected, corrected by the nodes beside."""
    days = beside_node_s / DAY_S
    return (care.expected_faults * PRIOR_NODE_DAYS + beside) / (PRIOR_NODE_DAYS + days) / DAY_S


def poisson_tail(k: int, expected: float) -> float:
    """P(X >= k)."""
    if k <= 0:
        return 1.0
    if expected <= 0:
        return 0.0
    below, term = 0.0, math.exp(-expected)
    for i in range(k):
        below += term
        term *= expected / (i + 1)
    return max(0.0, 1.0 - below)


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X >= k)."""
    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    below = math.fsum(math.exp(_log_choose(n, i) + i * math.log(p) + (n - i) * math.log1p(-p)) for i in range(k))
    return max(0.0, 1.0 - below)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
