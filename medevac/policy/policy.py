"""`Policy`: all that a fleet decides for itself, within the bounds that never bend."""

from __future__ import annotations

from typing import Self

from pydantic import ValidationInfo, model_validator

from medevac.policy.bounds import OutOfBounds, violations
from medevac.policy.settings import Settings


class Policy(Settings):
    @model_validator(mode="after")
    def _within_bounds(self, info: ValidationInfo) -> Self:
        stored = bool(info.context and info.context.get("stored"))
        if broken := violations(self, stored=stored):
            raise OutOfBounds(broken)
        return self
