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
