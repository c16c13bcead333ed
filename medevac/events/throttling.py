"""Why a GPU's clocks are held back: NVML's bit mask of clock event (earlier: throttle) reasons."""

from __future__ import annotations

HARDWARE = {0x40: "hw-thermal", 0x80: "hw-power-brake", 0x8: "hw-slowdown"}
SOFTWARE = {0x20: "sw-thermal"}
"""The other bits (idle, application clocks, software power cap, sync boost, display) are ordinary working."""


def codes(mask: int) -> tuple[tuple[str, bool], ...]:
    """Each (`throttle/hw-thermal`, by hardware?). The general hardware bit is left out where a special one says why."""
    found = [(f"throttle/{name}", True) for bit, name in HARDWARE.items() if mask & bit]
    if len(found) > 1:
        found = [f for f in found if f[0] != "throttle/hw-slowdown"]
    return (*found, *((f"throttle/{name}", False) for bit, name in SOFTWARE.items() if mask & bit))
