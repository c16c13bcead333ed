"""A policy as it was applied: its text, who wrote it, who agreed, and since when each pool may act."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from medevac.model import Model, digest
from medevac.policy.loading import load
from medevac.policy.plan import Mode
from medevac.policy.policy import Policy


def policy_hash(text: str) -> str:
    """Of the policy's meaning: comments and spelling don't count. Raises `PolicyError`."""
    return digest(load(text))[:16]


class PolicyVersion(Model):
    """One version in the ledger. Plans name it; workers never read a policy from disk."""

    version: int
    hash: str
    text: str
    author: str
    applied_at: datetime
    approved_by: str | None = None

    @classmethod
    def of(
        cls, text: str, author: str, at: datetime, *, version: int = 1, approved_by: str | None = None
    ) -> PolicyVersion:
        return cls(
            version=version,
            hash=policy_hash(text),
            text=text,
            author=author,
            applied_at=at,
            approved_by=approved_by,
        )

    @property
    def policy(self) -> Policy:
        """Parsed once a process. Raises `PolicyError` where this release can't read it any more."""
        return load(self.text, f"policy version {self.version}", stored=True)


def acting_since(applied: Iterable[PolicyVersion], pool: str) -> datetime | None:
    """When the pool's present mode was last raised, by the versions in the order in which they took effect.

    What was open before then is not acted on until it is adopted. None where the pool was never there.
    """
    since: datetime | None = None
    reach = -1
    for version in applied:
        found = version.policy.pools.get(pool)
        now = found.mode.reach if found else -1
        if now > reach:
            since = version.applied_at
        reach = now
    return since if reach >= Mode.OBSERVE.reach else None
