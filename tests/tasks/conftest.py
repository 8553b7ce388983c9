"""A worker's runner, and a gateway that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tasks.errands import Errands
from tests.workers.conftest import boxed, site
from tests.workers.running import Site

__all__ = ["boxed", "site"]


@pytest.fixture
async def errands(site: Site, tmp_path: Path) -> AsyncIterator[Errands]:
    """Tasks for a worker without a sandbox: what they do can be seen from here."""
    made = Errands(site, tmp_path)
    yield made
    made.close()


@pytest.fixture
async def boxed_errands(boxed: Site, tmp_path: Path) -> AsyncIterator[Errands]:
    made = Errands(boxed, tmp_path)
    yield made
    made.close()
