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
    """The only one that is taken; without success a person decides."""
    drain: str = "checkpoint"
    image: str | None = None
    """What `reinstall` is to install; None = the provider's own choice."""

    @property
    def code(self) -> str:
        return f"{ORDER}{self.campaign}"
