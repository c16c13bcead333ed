"""How long a command waits for the gateway, and what its person is told when that wasn't enough."""

from __future__ import annotations

from typing import NamedTuple


class Patience(NamedTuple):
    seconds: float = 30.0
    why: str = "it is busy, and may have done it all the same; look before you ask again"
    """What takes long there, and what to do."""


USUAL = Patience()
