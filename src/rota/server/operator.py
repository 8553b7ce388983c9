"""The controllers as a process of their own, against any API server: a Rota, or a cluster that has Rota's kinds.

Beside them, in a folder of its own, a socket that answers what only the leader knows: why, metrics and health.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.client import Client
from rota.client.http import HttpBackend
from rota.control.schedule import Schedules
from rota.control.table import controllers
from rota.engine import CachedObjects, kinds_of
from rota.engine.leadership import Leadership
from rota.engine.metrics import CONTENT_TYPE
from rota.registry import ApiError
from rota.registry.system import SYSTEM_NAMESPACE
from rota.server.app import LOCAL_USER, failed, refusal
from rota.server.controllers import MANAGER, Controllers, identity_of_process
from rota.server.health import Health, is_health
from rota.server.home import Home
from rota.server.http import HttpServer, Request, Response
from rota.server.tables import Tables
from rota.server.why import why

ELSEWHERE_NAMESPACE = "default"
"""Of the lease, on a cluster, unless it is said."""
LOOK_SECONDS = 0.2
"""How often it is looked who leads, to tell a person."""


async def operate(
    client: Client, *, lease_namespace: str | None, gateway: Path | None, say: Callable[[str], None]
) -> None:
    """Run until SIGTERM or SIGINT. `say` is told who leads, whenever that changes.

    Without `lease_namespace` the lease is where the server itself would have it: of a Rota in its system namespace.
    """
    identity = identity_of_process()
    if lease_namespace is None:
        asking = asyncio.create_task(
            _is_rota(client, lambda what: say(f"{identity} waits: {what}")), name="which server"
        )
        _end_on_signals(asking)
        try:
            lease_namespace = SYSTEM_NAMESPACE if await asking else ELSEWHERE_NAMESPACE
        except asyncio.CancelledError:
            say("stopped")
            return
    writing = Client(client.backend, manager=MANAGER, namespace=lease_namespace)
    leadership = Leadership(writing, identity, namespace=lease_namespace)
    running = Controllers(writing, CachedObjects(client, kinds_of([*controllers(), Schedules()])), leadership, identity)
    answers = Answers(running)
    http = HttpServer(answers, refusal)
    if gateway is not None:
        await _listen(http, Home(gateway))
    task = asyncio.create_task(running.run(), name="controllers")
    _end_on_signals(task)
    telling = asyncio.create_task(_tell(running, identity, say), name="who leads")
    try:
        await task
    except asyncio.CancelledError:
        say("stopped")
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await http.close()
        if gateway is not None:
            Home(gateway).remove_stale_socket()


def _end_on_signals(task: asyncio.Task[Any]) -> None:
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, task.cancel)


async def _is_rota(client: Client, say: Callable[[str], None]) -> bool:
    """Whether the server is a Rota. Waits until it says so: with the wrong lease this would lead beside others."""
    backend, said = client.backend, ""
    while isinstance(backend, HttpBackend):
        try:
            return "rotaVersion" in await backend.version()
        except (OSError, ApiError) as error:
            if isinstance(error, ApiError) and error.code in (403, 404):
                return False  # A Rota tells this to everybody whom it knows.
            if str(error) != said:
                said = str(error)
                say(said)
            await asyncio.sleep(LOOK_SECONDS)
    return False


async def _listen(http: HttpServer, home: Home) -> None:
    home.prepare()
    if home.store.exists():
        raise OSError(f"{home.path} is the home of a server; choose another folder for the operator")
    if await _answers(home):
        raise OSError(f"another operator answers in {home.path}; choose another folder")
    home.remove_stale_socket()
    mask = os.umask(0o177)
    try:
        await http.listen_unix(str(home.socket))
    finally:
        os.umask(mask)


async def _answers(home: Home) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(home.socket))
    except OSError:
        return False
    writer.close()
    return True


class Answers:
    """What an operator answers to its own user."""

    def __init__(self, running: Controllers) -> None:
        self._running = running
        reached = {"server": lambda: str(running.trouble or "")}
        self._health = Health(live={"ping": lambda: ""}, ready=reached)
        self._tables = Tables()
        self._tables.add(running)

    def __call__(self, request: Request) -> Response:
        if is_health(request.path):
            return self._health(request) or refusal(404, "an operator has no such check")
        if request.peer_uid not in (0, os.getuid()):
            return refusal(401, "Unauthorized")
        try:
            match [request.method, *request.path.strip("/").split("/")]:
                case ["GET", "v1", "metrics"]:
                    return Response(200, self._running.metrics.render() + self._tables.render(), CONTENT_TYPE)
                case ["GET", "v1", "why", plural, name]:
                    return why(self._running, LOCAL_USER, plural, "", name)
                case ["GET", "v1", "why", plural, namespace, name]:
                    return why(self._running, LOCAL_USER, plural, namespace, name)
        except ApiError as error:
            return failed(error)
        return refusal(404, "an operator has no objects: it answers why, metrics and health")


async def _tell(running: Controllers, identity: str, say: Callable[[str], None]) -> None:
    said: tuple[str, int] = ("", 0)
    while True:
        if running.loop is not None:
            now = f"{identity} leads"
        elif running.trouble is not None:
            now = f"{identity} waits: {running.trouble}"
        elif running.leader and running.leader != identity:
            now = f"{identity} waits; {running.leader} leads"
        else:
            now = f"{identity} waits"
        if (now, running.terms) != said:
            say(now)
            said = (now, running.terms)
        await asyncio.sleep(LOOK_SECONDS)
