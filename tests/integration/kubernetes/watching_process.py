"""`medevac watch` as a process like any other, in an installation whose provider can do nothing.

`python -m tests.integration.kubernetes.watching_process`.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.integration.kubernetes.house import NoMachines
from worker import parts
from worker.cli import main


class _Entry:
    name = "nothing"

    @staticmethod
    def load() -> Any:
        return lambda name, options: NoMachines()


def install() -> None:
    installed = parts.entry_points

    def with_nothing(group: str) -> list[Any]:
        return [*installed(group=group), *([_Entry()] if group == "medevac.providers" else [])]

    setattr(parts, "entry_points", with_nothing)  # noqa: B010  a module's function, not an attribute of ours


if __name__ == "__main__":
    install()
    sys.argv[1:] = ["watch"]
    main()
