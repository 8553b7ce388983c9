"""Workers whose processes are all gone after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.workers.running import Isolation, Site
from tests.workspace.conftest import Repo

__all__ = ["Repo"]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "origin")
    made.commit("file", "content\n")
    return made


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Without a sandbox, which every host can have."""
    async for made in _site(tmp_path / "home", "none"):
        yield made


@pytest.fixture
async def boxed(tmp_path: Path) -> AsyncIterator[Site]:
    """In a sandbox."""
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    async for made in _site(tmp_path / "home", "sandbox"):
        yield made


async def _site(home: Path, isolation: Isolation) -> AsyncIterator[Site]:
    home.mkdir()
    made = Site(home, isolation)
    await made.open()
    yield made
    await made.end()
