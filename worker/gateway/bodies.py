"""What is posted, read no further than its limit, whatever its sender claims, and no longer than its time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fastapi import Request

from worker.gateway.errors import Problem

BODY_S = 30.0
BEGINNING_S = 1.0
BEGINNING = 16 * 1024
"""Bytes of what isn't read to its end that are kept for a person."""


class Cut(Problem):
    """It wasn't read to its end. `size`: bytes that came; `beginning`: the first of them."""

    def __init__(self, status: int, message: str, size: int, beginning: bytes) -> None:
        super().__init__(status, message)
        self.size = size
        self.beginning = beginning


class TooLarge(Cut):
    pass


class Slow(Cut):
    pass


async def read(request: Request, limit: int, hint: str) -> bytes:
    """Raises `TooLarge`, with `hint` as what to do about it, or `Slow`."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    beginning = b"".join((*parts, part))[:BEGINNING]
                    raise TooLarge(413, f"larger than {limit} bytes; {hint}", size, beginning)
                parts.append(part)
    except TimeoutError:
        words = f"the body did not come within {BODY_S:.0f} s; send it again"
        raise Slow(408, words, size, b"".join(parts)[:BEGINNING]) from None
    return b"".join(parts)


async def beginning(request: Request) -> bytes:
    """As much as came at once of what won't be read to its end."""
    found = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(BEGINNING_S):
            async for part in request.stream():
                found += part
                if len(found) >= BEGINNING:
                    break
    return found[:BEGINNING]
