from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tunnel.both import Both, both_sides


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with both_sides(tmp_path) as made:
        yield made
