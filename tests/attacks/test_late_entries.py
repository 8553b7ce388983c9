"""By what begins in an instance in the moment in which its hold ends: nothing of it is there for the next holder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.client.upgrading import connect_unix
from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import Order, Subject
from rota.runtime.keeper.client import Keeper
from rota.runtime.local import LocalRuntime
from rota.server.app import refusal
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade

SUBJECT = Subject("default", "boxes-0", "u1")


async def test_to_have_a_command_counted_only_after_the_hold_was_taken_for_untouched(tmp_path: Path) -> None:
    """A task that was made for it may take its first step after the hold has ended."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
    async with LocalRuntime(home, keeper=keeper) as runtime:
        try:
            await runtime.start(Order(SUBJECT, "main", 0, ("sleep", "1000"), {}, isolation="none"))
            before = runtime.entries(SUBJECT)
            asked = runtime.exec(SUBJECT, "main", ["true"], env={}, streams=(0, 1, 2), tty=False)
            try:
                assert runtime.entries(SUBJECT) != before
            finally:
                asked.close()
        finally:
            await runtime.shutdown()


async def test_to_begin_with_a_credential_that_ended_before_the_first_step(tmp_path: Path) -> None:
    begun = []

    async def serve(websocket: WebSocket) -> None:
        begun.append(websocket)

    def end_at_once(end: Callable[[], None]) -> None:
        end()

    http = HttpServer(lambda request: Upgrade(serve, "any", on_start=end_at_once), refusal)
    await http.listen_unix(str(tmp_path / "socket"))
    try:
        websocket = await connect_unix(str(tmp_path / "socket"), "/", protocols=("any",))
        with pytest.raises(Closed) as closed:
            await websocket.receive()
        assert closed.value.code == 1008 and not begun
    finally:
        await http.close(grace_seconds=0)
