"""Azure resource ids, and the VM names that IMDS and Event Grid use for the same machines."""

from __future__ import annotations

import re

from medevac.events.parsing import ParseError
from medevac.events.reading import node_name

_VM = re.compile(
    r"/virtualMachineScaleSets/(?P<set>[^/]{1,120})/virtualMachines/(?P<number>[^/]{1,120})(?:/|$)"
    r"|/virtualMachines/(?P<name>[^/]{1,120})(?:/|$)",
    re.IGNORECASE,
)


def machine_of(resource: str) -> str | None:
    """The VM that a resource id is, or is under; a scale set's instance as IMDS spells it, `pool_3`.

    None for what is no virtual machine; raises for a name that can't be one.
    """
    if len(resource) > 2_000:
        raise ParseError("resource id is longer than 2000 characters")
    m = _VM.search(resource)
    if m is None:
        return None
    if m["name"]:
        return node_name(m["name"])
    number = m["number"]
    return node_name(number if number.lower().startswith(m["set"].lower()) else f"{m['set']}_{number}")
