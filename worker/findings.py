"""What `medevac doctor` finds: one line about each thing, and what to do where it isn't well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from activities.failures import redact
from medevac.model import Model


class Finding(Model):
    what: str
    ok: bool
    text: str
    fix: str = ""


class Bad(Exception):
    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.fix = fix


async def finding(what: str, look: Awaitable[str], fix: str, within_s: float) -> Finding:
    """`look` says what is well, or raises what isn't; `fix` where that doesn't say it itself."""
    try:
        async with asyncio.timeout(within_s):
            return Finding(what=what, ok=True, text=await look)
    except TimeoutError:
        return Finding(what=what, ok=False, text=f"no answer within {within_s:.0f} s", fix=fix)
    except Exception as error:
        text = redact((str(error) or type(error).__name__).splitlines()[0], 2_000)
        return Finding(what=what, ok=False, text=text, fix=getattr(error, "fix", fix))
