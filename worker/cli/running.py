"""The `medevac up` that runs here: how commands find it when nothing else is configured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from worker.settings import Settings

RUNNING = "running.json"
"""In the data directory: where a running `medevac up` says how to reach it."""


def running(data_dir: Path | None = None) -> dict[str, Any]:
    """What it wrote down; empty when none runs."""
    path = (data_dir or Path(os.environ.get("MEDEVAC_DATA_DIR", ".medevac"))) / RUNNING
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def settings_here(settings: Settings) -> Settings:
    """Without a configuration of their own, `explain` and `doctor` look at the stack that runs here."""
    found = running(settings.data_dir)
    if settings.config is not None or not {"config", "data_dir", "temporal"} <= found.keys():
        return settings
    os.environ.setdefault("TEMPORAL_ADDRESS", found["temporal"])
    return settings.model_copy(update={"config": Path(found["config"]), "data_dir": Path(found["data_dir"])})
