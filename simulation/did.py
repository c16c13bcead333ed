"""What a call to the world came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Did(Generic[T]):
    """What a call did: its answer, and whether the world changed."""

    answer: T
    applied: bool = True
    detail: Mapping[str, Any] = field(default_factory=dict)
