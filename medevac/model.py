"""The base of every model that crosses a room: frozen, closed, and the same in JSON on both sides."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Immutable value. Unknown fields are errors, so that a typo never becomes silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def digest(value: Any) -> str:
    """Stable sha256 (hex) of any JSON-able value or model; equal meaning gives an equal digest."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
