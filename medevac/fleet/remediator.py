"""Another program that repairs nodes of ours, as far as it can be seen from here."""

from __future__ import annotations

from enum import StrEnum

from medevac.model import Model


class Switch(StrEnum):
    """What is known of whether it acts. One that is seen to be switched off is no remediator here."""

    ON = "on"
    """It is seen to be switched on."""
    OUTSIDE = "outside"
    """Its switch is kept where nobody in the cluster can read it (the cloud's own API): a person's word counts."""
    UNREADABLE = "unreadable"
    """It could be read, and could not be: counts as switched on."""


class Remediator(Model):
    name: str
    switch: Switch
    seen: str
    """What shows that it is there."""
    off: str = ""
    """The command that switches it off, or what to do where there is none."""

    @property
    def acts(self) -> bool:
        """True unless a person's word, that it is off, can be taken."""
        return self.switch is not Switch.OUTSIDE
