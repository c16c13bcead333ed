"""The base of every model that crosses a room: frozen, closed, and the same in JSON on both sides."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Immutable value. Unknown fields are errors, so that a typo never becomes silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def stored(cls, value: object) -> Self:
        """As another build may have written it: what a newer one knows more is left out. Raises `ValidationError`."""
        return cls.model_validate(value, extra="ignore")


def digest(value: Any) -> str:
    """Stable sha256 (hex) of any JSON-able value or model; equal meaning gives an equal digest."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
