"""A remediator, and which nodes are within its reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medevac.fleet.node import Node
from medevac.fleet.remediator import Remediator, Switch

Covers = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class Found:
    remediator: Remediator
    covers: Covers


def everywhere(node: Node) -> bool:
    return True


def unreadable(name: str, why: str) -> Found:
    off = "give the account the right (docs/kubernetes.md)"
    return Found(Remediator(name=name, switch=Switch.UNREADABLE, seen=why, off=off), everywhere)
