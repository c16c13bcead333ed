"""What is posted, read no further than its limit, whatever its sender claims, and no longer than its time."""

from __future__ import annotations

import asyncio

from fastapi import Request

from worker.gateway.errors import Problem

BODY_S = 30.0


class TooLarge(Problem):
    pass


async def read(request: Request, limit: int, hint: str) -> bytes:
    """Raises `TooLarge`, with `hint` as what to do about it, or a `Problem` where it takes too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise TooLarge(413, f"larger than {limit} bytes; {hint}")
                parts.append(part)
    except TimeoutError:
        raise Problem(408, f"the body did not come within {BODY_S:.0f} s; send it again") from None
    return b"".join(parts)
