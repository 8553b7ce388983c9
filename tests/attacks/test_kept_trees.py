"""By what a task leaves of a tree that is kept for those after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.claims.test_gateway import pool, until
from tests.server.conftest import Server, served
from tests.until import until_so

POOLS = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"
TASKS = "/apis/rota.dev/v1alpha1/namespaces/default/tasks"
SECONDS_MAX = 60


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


async def done(live: Server, name: str, script: str) -> str:
    """Run a task in the pool. Returns the phase in which it ended."""
    spec = {"workerPoolRef": {"name": "boxes"}, "command": ["sh", "-c", script]}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}
    assert (await live.ask("POST", TASKS, body)).status == 201

    async def phase() -> str:
        return str((await live.ask("GET", f"{TASKS}/{name}")).json.get("status", {}).get("phase"))

    ended = ("Succeeded", "Failed")
    return str(await until_so(phase, lambda found: found in ended, f"the end of {name}", seconds=SECONDS_MAX))


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_close_a_kept_tree_for_all_tasks_that_follow(live: Server) -> None:
    wanted = pool("boxes", 1, worker={"type": "shell", "isolation": "sandbox"})
    del wanted["spec"]["template"]
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    assert await done(live, "keeps", "touch kept") == "Succeeded"
    ways = (
        "chmod 000 /workspace",
        "chmod 000 /workspace/repo",
        "chmod 000 /workspace/home",
        "chmod 500 /workspace/home",
        "rm -rf /workspace/repo",
        "cd /workspace && mv repo other && ln -s nowhere repo",
        "cd /workspace && mv home other && touch home",
    )
    for number, way in enumerate(ways):
        assert await done(live, f"closes-{number}", f"test -e kept && {way}") == "Succeeded", way
        # It has a tree as new; what others leave there is kept.
        assert await done(live, f"follows-{number}", "test ! -e kept && echo . > ~/file && touch kept") == "Succeeded"
