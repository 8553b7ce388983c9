"""By what is left running for the next holder of an instance."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.claims.test_gateway import claim, command, pool, release, until
from tests.server.conftest import Server, served

POOLS = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"
SECONDS_MAX = 60


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


def running(mark: str) -> list[int]:
    """Processes with this among their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


async def until_running(mark: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not running(mark):
            await asyncio.sleep(0.02)


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_leave_a_daemon_in_a_kept_instance_for_its_next_holder(live: Server) -> None:
    wanted = pool("boxes", 1)
    # There a daemon is nobody's child: what it was started by does not end it.
    wanted["spec"]["template"]["isolation"] = "sandbox"
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    first = (await claim(live, "first")).json
    instance, mark = first["claim"]["status"]["instanceName"], uuid.uuid4().hex
    daemon = f"echo kept > file; exec 1>&-; setsid sh -c 'sleep 1000; :' {mark} & exit 0"
    session = await command(live, instance, first["token"], "sh", "-c", daemon)
    await until_running(mark)
    await session.close()
    assert (await release(live, "first")).status == 200
    second = await claim(live, "second", waitSeconds=SECONDS_MAX)
    assert second.status == 201, second.body
    # The very same instance, with its files; and nothing of who had it before.
    assert second.json["claim"]["status"]["instanceName"] == instance
    assert running(mark) == []
    [file] = (live.home / "instances" / "default").glob("*/work/file")
    assert file.read_text() == "kept\n"
    assert (await release(live, "second")).status == 200
