"""A server whose functions run in sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.functions.town import Town, serving


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    async with serving(tmp_path / "home") as made:
        yield made
