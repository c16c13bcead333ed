"""Kills this process at a chosen point, exactly once over all processes; for the tests of durability.

`MEDEVAC_KILL_FILE` names a JSON list of cells: `[{"effect": "reboot", "point": "before", "node": "gpu-a-003"}]`.
`node` is optional; with `"signal": "SIGSTOP"` the process stands still there until someone continues it. A process
claims its cell by creating `<plan>.<index>.hit` first, which is also how a test knows that the cell was reached.
Points of the simulated effects are `before` and `after` (it happened, nobody was told); other code may name its own
effects and points, e.g. `hit("acquire", "after")`.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

VARIABLE = "MEDEVAC_KILL_FILE"


def hit(effect: str, point: str, node: str = "") -> None:
    plan = os.environ.get(VARIABLE)
    if not plan:
        return
    for index, cell in enumerate(json.loads(Path(plan).read_text())):
        if (
            cell["effect"] == effect
            and cell["point"] == point
            and cell.get("node", node) == node
            and _claim(plan, index)
        ):
            os.kill(os.getpid(), signal.Signals[cell.get("signal", "SIGKILL")])


def _claim(plan: str, index: int) -> bool:
    try:
        handle = os.open(f"{plan}.{index}.hit", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    os.write(handle, str(os.getpid()).encode())
    os.close(handle)
    return True


def hits(plan: Path) -> set[int]:
    """Indices of the cells that were reached."""
    return {i for i in range(len(json.loads(plan.read_text()))) if Path(f"{plan}.{i}.hit").exists()}
