"""A deploy that is stopped half-way is finished by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota import Client
from rota.registry import ApiError, Registry
from rota.store import MemoryStore, SqliteStore
from tests.deploy.world import World

PROJECT = """\
name: shop
pools:
  - {name: p, worker: {}}
functions:
  - name: f
    path: code
    entrypoint: main:handler
    schedules:
      - {name: a, cron: '@daily'}
      - {name: b, cron: '@hourly'}
"""
OBJECTS = 4
KILLED = """\
import asyncio, os, signal, sys
from pathlib import Path
from rota import Client
from rota.client import LocalBackend
from rota.registry import Registry
from rota.store import SqliteStore
from tests.deploy.world import World

class Dying(LocalBackend):
    left = int(sys.argv[2])

    async def write(self, operations, *, atomic=True):
        if any(o.verb == "create" and not o.dry_run for o in operations):
            Dying.left -= 1
            if Dying.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().write(operations, atomic=atomic)

async def main():
    folder = Path(sys.argv[1])
    registry = Registry(SqliteStore(folder / "rota.db"))
    await registry.start()
    world = await World.open(Client(Dying(registry), manager="person"), folder)
    await world.deploy((folder / "rota.yaml").read_text())

asyncio.run(main())
"""


def written(folder: Path) -> Path:
    (folder / "code").mkdir()
    (folder / "code" / "main.py").write_text("def handler(event, context): return 1\n")
    (folder / "rota.yaml").write_text(PROJECT)
    return folder


@pytest.mark.parametrize("writes", range(OBJECTS))
async def test_a_deploy_that_is_killed_is_finished_by_the_next(tmp_path: Path, writes: int) -> None:
    folder = written(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), str(writes)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = SqliteStore(folder / "rota.db")
    registry = Registry(store)
    await registry.start()
    try:
        world = await World.open(Client.local(registry), folder)
        assert len(await world.versions()) == writes
        done = await world.deploy(PROJECT)
        assert (done.writes, done.missing) == (OBJECTS - writes, []), "what was done is not done again"
        assert len(await world.versions()) == OBJECTS
        assert (await world.deploy(PROJECT)).writes == 0
    finally:
        await registry.stop()
        await store.close()


async def test_a_server_that_fails_half_way_is_told_and_the_next_deploy_goes_on(tmp_path: Path) -> None:
    registry = Registry(MemoryStore())
    await registry.start()
    try:
        world = await World.open(Client.local(registry), written(tmp_path))
        create = world.deployer._client.create
        left = [2]

        async def failing(obj: dict[str, object], *, dry_run: bool) -> dict[str, object]:
            if not dry_run:
                left[0] -= 1
                if left[0] < 0:
                    raise ApiError(503, "ServiceUnavailable", "no more today")
            return await create(obj, dry_run=dry_run)

        world.deployer._client.create = failing  # type: ignore[assignment, method-assign]
        with pytest.raises(ApiError, match="no more today"):
            await world.deploy(PROJECT)
        left[0] = OBJECTS
        assert (await world.deploy(PROJECT)).writes == OBJECTS - 2
    finally:
        await registry.stop()
