"""Slurm host lists, `gpu-[07-08,12],cpu[1-2]`, expanded up to a limit that is checked before anything is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from medevac.events.parsing import ParseError
from medevac.events.reading import node_name, quote

MAX_HOSTS = 4_096
MAX_CLUSTER = 65_536
"""Nodes of the largest cluster that Slurm runs; a list of more is none of its."""
MAX_TEXT = 65_536
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


def expand(text: str, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """The names in order, without repeats. Leading zeros belong to the name."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise ParseError(f"hostlist is {len(text)} characters long, more than the {MAX_TEXT} allowed")
    found: dict[str, None] = {}
    for item in _items(text):
        parts = [_choices(p, limit) for p in _parts(item)]
        size = 1
        for choices in parts:
            size *= len(choices)
            if size + len(found) > limit:
                raise ParseError(f"hostlist {quote(text, 60)} expands to more nodes than allowed ({limit})")
        for combination in product(*parts):
            found[node_name("".join(combination))] = None
    if not found:
        raise ParseError(f"hostlist {quote(text, 60)} names no node")
    return tuple(found)


def size(text: str) -> int:
    """How many names a list has, repeats counted, without building one. Raises where brackets or ranges are none."""
    total = 0
    for item in _items(text[:MAX_TEXT]):
        count = 1
        for part in _parts(item):
            count *= sum(high - low + 1 for low, high, _ in _ranges(part)) if part.startswith("[") else 1
        total += count
    return total


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            raise ParseError(f"hostlist {quote(text, 60)} has unbalanced brackets")
        if c == "," and depth == 0:
            if text[start:i].strip():
                yield text[start:i].strip()
            start = i + 1
    if depth:
        raise ParseError(f"hostlist {quote(text, 60)} has unbalanced brackets")
    if text[start:].strip():
        yield text[start:].strip()


def _parts(item: str) -> list[str]:
    parts = [p for p in re.split(r"(\[[^\]]*\])", item) if p]
    if sum(p.startswith("[") for p in parts) > 4:
        raise ParseError(f"hostlist {quote(item, 60)} has more than 4 ranges in one name")
    return parts


def _choices(part: str, limit: int) -> list[str]:
    if not part.startswith("["):
        return [part]
    found: list[str] = []
    for low, high, width in _ranges(part):
        if high - low + 1 + len(found) > limit:
            raise ParseError(f"hostlist range {quote(part, 40)} expands to more nodes than allowed ({limit})")
        found += [str(n).zfill(width) for n in range(low, high + 1)]
    return found


def _ranges(part: str) -> Iterator[tuple[int, int, int]]:
    """First, last and the digits of each range between brackets."""
    for piece in part[1:-1].split(","):
        m = _RANGE.fullmatch(piece.strip())
        if m is None:
            raise ParseError(f"hostlist range {quote(part, 40)} can't be read")
        low, high = int(m[1]), int(m[2] or m[1])
        if high < low:
            raise ParseError(f"hostlist range {quote(piece, 40)} runs backwards")
        yield low, high, len(m[1])
