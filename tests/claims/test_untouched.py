"""An instance is started anew after a claim only if its holder could have got to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.claims.test_gateway import API, claim, command, ended, pool, release, until
from tests.client.test_calls import free_port
from tests.server.conftest import POOLS, Server, served
from tests.until import until_so


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as running:
        yield running


async def made(server: Server, **container: Any) -> None:
    wanted = pool("boxes", 1)
    wanted["spec"]["template"]["containers"][0].update(container)
    assert (await server.ask("POST", POOLS, wanted)).status == 201
    await until(server, 1)


async def run(server: Server) -> str:
    """Return the id of the run in the instance."""
    status = (await server.ask("GET", f"{API}/instances/boxes-0")).json["status"]
    return str(status["runtimeID"])


async def started_anew(server: Server, before: str) -> None:
    """Go on when something else runs. That the claim is over is written before what it had is ended."""
    await until_so(lambda: run(server), lambda now: now != before, f"another run than {before}")
    await until(server, 1)


async def test_what_nobody_got_to_runs_on(server: Server) -> None:
    await made(server)
    before = await run(server)
    for name in ("a", "b"):
        assert (await claim(server, name)).status == 201
        assert (await release(server, name)).status == 200
        await until(server, 1)
    assert await run(server) == before
    assert "rota.dev/used" not in str((await server.ask("GET", f"{API}/instances/boxes-0")).json)


async def test_what_a_command_was_run_in_is_started_anew(server: Server) -> None:
    await made(server)
    before = await run(server)
    opened = (await claim(server, "a")).json
    await ended(await command(server, "boxes-0", opened["token"], "true"))
    await release(server, "a")
    await started_anew(server, before)


async def test_what_files_were_put_into_is_started_anew(server: Server) -> None:
    await made(server)
    before = await run(server)
    opened = (await claim(server, "a")).json
    path = "/v1/instances/default/boxes-0/files?path=x"
    assert (await server.ask("GET", path, token=opened["token"])).status == 404
    await release(server, "a")
    await started_anew(server, before)


@pytest.mark.parametrize("asked", [{"env": [{"name": "A", "value": "b"}]}, {}])
async def test_what_had_something_of_its_holder_or_a_port_is_started_anew(
    server: Server, asked: dict[str, Any]
) -> None:
    await made(server, **({} if asked else {"ports": [{"name": "web", "port": free_port()}]}))
    assert (await claim(server, "a", **asked)).status == 201
    before = await run(server)
    await release(server, "a")
    await started_anew(server, before)
