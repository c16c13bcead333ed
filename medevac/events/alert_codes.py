"""Which fault an alert speaks of: one rule for every sender whose alerts have a name, labels and prose.

1. A label `medevac_fault` names the catalogue's code outright, for rules written with medevac in mind.
2. Else the number in `err_code`, `xid` or `xid_code`, in any case. It decides over what any text says: where it can't
   be read, is 0 or DCGM's mark for "none", or where two such labels differ, nothing is known.
3. Else the Xid that the name speaks of; else that of the message; else that of the notes (annotations of a rule), where
   the name or a label speaks of Xids at all: notes are written for people, and name codes that didn't happen.
4. What is left is `alert/<name>`, which notifies and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from medevac.events.freetext import xid_code
from medevac.events.reading import fault_code, one_line, whole
from medevac.faults.catalogue import rows

FAULT_LABEL = "medevac_fault"
CODE_LABELS = frozenset(("err_code", "xid", "xid_code"))
MAX_XID = 1_000
_FAULT = re.compile(r"([a-z][a-z0-9-]{1,30})(?:/[A-Za-z0-9][A-Za-z0-9 _.-]{0,119}){0,2}")
_WRITTEN = re.compile(r"\s*(s?)xid[ _:#-]{0,2}([0-9]{1,5})\s*", re.IGNORECASE)


def alert_code(
    name: str,
    labels: Mapping[str, object] | None = None,
    message: Sequence[str | None] = (),
    notes: Sequence[str | None] = (),
) -> str:
    """`message`: what a monitor says of this very alert (its text, deduplication key or condition)."""
    unknown = fault_code("alert", one_line(name, 160))
    held = [(key.lower(), value) for key, value in (labels or {}).items() if value not in (None, "")]
    if wanted := [value for key, value in held if key == FAULT_LABEL]:
        named = _outright(wanted[0])
        return named if named and len(set(map(str, wanted))) == 1 else unknown
    if said := {_labelled(value) for key, value in held if key in CODE_LABELS}:
        return (said.pop() if len(said) == 1 else None) or unknown
    if found := xid_code(name) or xid_code(*message):
        return found
    texts = {key: value for key, value in held if isinstance(value, str)}
    if not any("xid" in text.lower() for text in (name, *texts.values())):
        return unknown
    return xid_code(texts.get("err_msg"), *notes) or unknown


def _outright(value: object) -> str | None:
    m = _FAULT.fullmatch(value[:200]) if isinstance(value, str) else None
    known = m is not None and any(code == m[1] or code.startswith(f"{m[1]}/") for code in rows())
    return fault_code(str(value)) if known else None


def _labelled(value: object) -> str | None:
    """The code that one label says; None for what is no code."""
    m = _WRITTEN.fullmatch(value[:40]) if isinstance(value, str) else None
    number = whole(m[2] if m else value)
    if number is None:
        return None
    if 0 < number < MAX_XID and not (m and m[1]):
        return fault_code("xid", number)
    switch = fault_code("sxid", number)
    return switch if switch in rows() else None
