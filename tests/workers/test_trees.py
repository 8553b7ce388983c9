"""Workers where no cgroup can be made, as for most ordinary users: a PID namespace holds what else runs together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.runtime import sandbox
from rota.runtime.keeper.minder import can_unshare_pids
from tests.runtime.homes import Home
from tests.workers.farm import farm, pool

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")


def test_without_cgroups_a_worker_is_entered_and_made_as_new(tmp_path: Path) -> None:
    if not can_unshare_pids():
        pytest.skip("no PID namespace can be made here")
    asyncio.run(_keep_by_namespaces(tmp_path))
    with farm(tmp_path) as made:
        made.apply(pool("crew", worker={"type": "shell"}))
        made.ready("crew", 1)
        runner = made.runners()["crew-0"]
        made.hold("crew-0")
        fresh = made.execute("crew-0", "ls -A /tmp")
        assert made.execute("crew-0", "echo left > /tmp/left; echo inside") == "inside\n"
        made.release("crew-0")
        assert made.execute("crew-0", "ls -A /tmp") == fresh
        assert made.runners()["crew-0"] == runner and made.instance("crew-0")["status"].get("restarts", 0) == 0


async def _keep_by_namespaces(home: Path) -> None:
    """A keeper that the server will find there."""
    async with Home(home, tree="namespace").keeper() as keeper:
        assert await keeper.list() == []
