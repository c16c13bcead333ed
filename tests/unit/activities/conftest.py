from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.activities.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers too late on a busy machine, where a test isn't about that and says so itself."""
    for name in ("marking.GUARD_S", "planning.READ_S", "casefacts.READ_S"):
        monkeypatch.setattr(f"activities.{name}", 60.0)
    for module in ("folding", "intended", "guarding"):
        monkeypatch.setattr(f"activities.{module}.PROTECTIVE_BUDGET_S", 60.0)
