"""What a campaign asks of one node: done by the node's own incident, under its locks, leases, drain and checks."""

from __future__ import annotations

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

    @property
    def code(self) -> str:
        return f"{ORDER}{self.campaign}"
