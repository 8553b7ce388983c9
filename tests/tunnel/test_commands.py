"""Commands of a person at the hub, on what runs in cells."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from rota.api import Workload
from rota.client import channels, frames
from rota.client.frames import Frame
from rota.client.websocket import WebSocket
from rota.server.http import Stream
from rota.server.upgrade import Upgrade
from tests.tunnel.both import NAME, SPEC, Both, exit_status, object_of

WORKLOAD = {
    "template": {"spec": {"containers": SPEC["containers"]}},
    "placements": [{"name": "all", "cityCodes": ["ber"], "scale": {"min": 2}}],
}


async def rota(both: Both, *words: str) -> tuple[int, str, str]:
    program = str(Path(sys.executable).with_name("rota"))
    pipe = asyncio.subprocess.PIPE
    home = str(both.server.home)
    running = await asyncio.create_subprocess_exec(program, "--home", home, *words, stdout=pipe, stderr=pipe)
    out, err = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode(), err.decode()


async def test_a_workload_stands_for_its_instances_in_all_cells(both: Both) -> None:
    await both.hub.create(object_of(Workload, "web", WORKLOAD))
    await both.instance("web-9", cell="ber-2")
    both.connect()
    await both.connected()

    async def lines() -> AsyncIterator[bytes]:
        yield frames.encoded(Frame(frames.DATA, "1", b"one\ntwo\n"))
        yield frames.encoded(Frame(frames.END))

    both.serve = lambda request, user: Stream(lines(), frames.CONTENT_TYPE)
    # Of a cell that is away the others are no less there.
    code, out, err = await rota(both, "logs", "wl/web")
    assert (code, out) == (1, f"{NAME}  one\n{NAME}  two\n")
    assert err.count('cell "ber-2" in ber is not connected') == 1
    assert await rota(both, "logs", f"inst/{NAME}") == (0, "one\ntwo\n", "")

    async def run(websocket: WebSocket) -> None:
        websocket.send(b"\x01in\n")
        websocket.send(exit_status(7))
        await websocket.close()

    both.serve = lambda request, user: Upgrade(run, channels.PROTOCOL)
    assert await rota(both, "exec", "wl/web", "--", "true") == (7, "in\n", "")


async def test_a_workload_without_instances_is_said_to_have_none(both: Both) -> None:
    await both.hub.create(object_of(Workload, "other", WORKLOAD))
    code, _, err = await rota(both, "exec", "wl/other", "--", "true")
    assert code == 1 and "it has no instances" in err and "why wl/other` tells more" in err
    code, _, err = await rota(both, "exec", "wl/none", "--", "true")
    assert code == 1 and 'workloads.rota.dev "none" not found' in err
