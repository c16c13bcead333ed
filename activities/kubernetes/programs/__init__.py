"""Programs that run on nodes. They go there as an argument of their pod: no ConfigMap has to be kept in step."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def program(name: str) -> str:
    """Its source."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
