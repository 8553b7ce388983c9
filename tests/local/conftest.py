from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    try:
        yield made
    finally:
        made.close()
