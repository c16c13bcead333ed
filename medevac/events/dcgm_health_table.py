"""The table that `dcgmi health -c` prints without `-j`, as the body that it prints with it."""

from __future__ import annotations

import re
from typing import Any

from medevac.events.reading import MAX_PARTS, Fields

_ROW = re.compile(r"\|(?P<left>[^|\n]{1,120})\|(?P<right>[^|\n]{0,200})\|")
_STEP = re.compile(r"(?P<indent> *)(?:-> )?(?P<name>\S.{0,80})")


def is_one(text: str) -> bool:
    return "| Health Monitor Report" in text[:4_000]


def body(text: str) -> Fields:
    """A row's name is a child of the last row that stands further left; without a name it goes on with words."""
    root: dict[str, Any] = {}
    path: list[tuple[int, dict[str, Any]]] = [(-1, {"children": root})]
    for m in list(_ROW.finditer(text))[:MAX_PARTS]:
        value = m["right"].strip()
        step = _STEP.fullmatch(m["left"].rstrip())
        if step is None:
            if value and path[-1][0] >= 0:
                path[-1][1].setdefault("overflow", []).append(value)
            continue
        if step["name"] == "Health Monitor Report":
            continue
        depth = len(step["indent"]) + (1 if "-> " in m["left"] else 0)
        while path[-1][0] >= depth:
            path.pop()
        node: dict[str, Any] = {"value": value} if value else {}
        path[-1][1].setdefault("children", {})[step["name"].strip()] = node
        path.append((depth, node))
    return Fields(root)
