"""The controllers as a process of their own, against any API server: a Rota, or a cluster that has Rota's kinds."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from rota.client import Client
from rota.control import controllers
from rota.engine import CachedObjects, kinds_of
from rota.engine.leadership import Leadership
from rota.server.controllers import MANAGER, Controllers, identity_of_process

LOOK_SECONDS = 0.2
"""How often it is looked who leads, to tell a person."""


async def operate(client: Client, *, lease_namespace: str, say: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT. `say` is told who leads, whenever that changes."""
    identity = identity_of_process()
    writing = Client(client.backend, manager=MANAGER, namespace=lease_namespace)
    leadership = Leadership(writing, identity, namespace=lease_namespace)
    running = Controllers(writing, CachedObjects(client, kinds_of(controllers())), leadership, identity)
    task = asyncio.create_task(running.run(), name="controllers")
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, task.cancel)
    telling = asyncio.create_task(_tell(running, identity, say), name="who leads")
    try:
        await task
    except asyncio.CancelledError:
        say("stopped")
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _tell(running: Controllers, identity: str, say: Callable[[str], None]) -> None:
    said = ""
    while True:
        if running.loop is not None:
            now = f"{identity} leads"
        elif running.leader and running.leader != identity:
            now = f"{identity} waits; {running.leader} leads"
        else:
            now = f"{identity} waits"
        if now != said:
            say(now)
            said = now
        await asyncio.sleep(LOOK_SECONDS)
