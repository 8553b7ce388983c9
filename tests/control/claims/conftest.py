"""A party on a server that writes several objects in one commit, and on one that does not."""

from __future__ import annotations

import pytest

from rota.client import LocalBackend
from tests.control.claims.party import Party
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


@pytest.fixture(params=["at once", "one by one"])
async def party(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Party:
    monkeypatch.setattr(LocalBackend, "atomic", request.param == "at once")
    return Party(world, FakeRuntime(world.clock))
