"""The activities of one incident, read from its history: what went in, what came out."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from activities import signatures as sig

VARIABLE = "BENCHMARK_RECORDED"


@dataclass(frozen=True, slots=True)
class Step:
    signature: sig.Activity[Any, Any]
    local: bool
    takes: Any
    gives: Any


@cache
def steps() -> tuple[Step, ...]:
    """Of the incident whose file the environment names."""
    found = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    by_name = {signature.name: signature for signature in sig.ALL}
    return tuple(
        Step(
            signature=(signature := by_name[one["name"]]),
            local=one["local"],
            takes=signature.takes.model_validate(one["takes"]),
            gives=signature.gives.model_validate(one["gives"]),
        )
        for one in found
    )
