"""Who may say yes to what."""

from __future__ import annotations

from pydantic import Field

from medevac.model import Model
from medevac.policy.names import Name
from medevac.policy.plan import ApprovalNeed


class Who(Model):
    groups: tuple[Name, ...] = Field(min_length=1)
    """A voter must be in one of these."""
    votes: int = Field(default=1, ge=1)
    """Distinct people, not counting who asked."""
    one_of: Name | None = None
    """At least one voter must be in this group."""


class WhoMay(Model):
    reboot: Who = Who(groups=("operator", "approver"))
    """Any rung that keeps the machine and its disks."""
    replace: Who = Who(groups=("approver",))
    """`reinstall`, `replace`, `terminate` of one node."""
    loss: Who = Who(groups=("approver",), votes=2)
    """A reserved slot, or local data that someone uses, would be lost."""
    fleet: Who = Who(groups=("approver", "capacity-owners"), votes=2, one_of="capacity-owners")
    """Everything fleet-wide, and campaigns."""
    stop: Who = Who(groups=("viewer", "operator", "approver", "capacity-owners"))
    """Freeze, halt, hold. A person alone can always stop."""


def need(who: Who, why: tuple[str, ...], expires_s: float) -> ApprovalNeed:
    """The policy's words copied into a request, so that a later change alters nothing retroactively."""
    return ApprovalNeed(groups=who.groups, threshold=who.votes, one_of=who.one_of, expires_s=expires_s, why=why)
