"""The freeze, looked at once more by the adapter that is about to make a call.

A step looks before it asks an adapter for anything. But an adapter may read a slow controller first, queue for its turn
or make many calls: a freeze that comes meanwhile must stop the next one. So adapters look right before each call that
evicts, deletes, stops, starts, resets, asks for or ends something; whatever only gives back goes on without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from activities.ports import NotSent

_look: ContextVar[Callable[[], None] | None] = ContextVar("last_look", default=None)


class Frozen(NotSent):
    """A freeze stands, or can't be read. The call wasn't made and may be made later."""


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Within it, on this thread, `last_look` asks `look`, which raises `Frozen`."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


def last_look() -> None:
    """Raises `Frozen`. Cheap: a read serves all calls of a process within a second."""
    look = _look.get()
    if look is not None:
        look()
