"""Who may say yes to what."""

from __future__ import annotations

from pydantic import Field

from medevac.model import Model
from medevac.policy.names import Name
from medevac.policy.plan import ApprovalNeed, Reminder

REMIND_AT = 0.5
"""Share of its time after which an open question is told again, where the policy doesn't say when."""


class Who(Model):
    groups: tuple[Name, ...] = Field(min_length=1)
    """A voter must be in one of these."""
    votes: int = Field(default=1, ge=1)
    """Distinct people, not counting who asked."""
    one_of: Name | None = None
    """At least one voter must be in this group."""
    then: tuple[Name, ...] = ()
    """From the reminder on, these are told and may vote as well."""


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


def need(
    who: Who, why: tuple[str, ...], expires_s: float, remind_s: float | None = None, page: bool = False
) -> ApprovalNeed:
    """The policy's words copied into a request, so that a later change alters nothing retroactively."""
    reminder = None
    if who.then or page or remind_s is not None:
        reminder = Reminder(after_s=expires_s * REMIND_AT if remind_s is None else remind_s, then=who.then, page=page)
    return ApprovalNeed(
        groups=who.groups, threshold=who.votes, one_of=who.one_of, expires_s=expires_s, why=why, reminder=reminder
    )
