"""The demo of `make run`: a project, a function, a pool at work, a claim, a lost worker, and schedules.

Starts a server in the home ($ROTA_HOME, else ~/.rota) and shows all this in about twenty seconds. On a terminal it then
prints what happens until Ctrl-C; elsewhere it ends. At the end it removes its namespace, and stops the server with all
that it runs. Arguments are those of `rota up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import tempfile
from pathlib import Path

from screen import Screen
from story import NAMESPACE, ROTA, Failed, Story

from rota import ApiError, Client
from rota.api import Namespace, ObjectMeta
from rota.client import Cache, ConnectionFailed, Update

HOME = Path(os.environ.get("ROTA_HOME") or Path.home() / ".rota")
PORTS = (7443, 7480)
LABEL = "rota.dev/demo"
"""The label of a namespace that the demo made, and may delete."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EMPTY_SECONDS_MAX = 10.0
"""Time for a deleted namespace to be gone."""


def ports() -> list[str]:
    """Return options for free ports, or none if the default ports are free."""
    try:
        for port in PORTS:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
    except OSError:
        return ["--port", "0"]
    return []


async def fresh_namespace(client: Client) -> None:
    """Create the demo's namespace. One that a killed demo left is deleted first; anybody else's is an error."""
    try:
        found = await client.get(Namespace, NAMESPACE)
    except ApiError as error:
        if error.code != 404:
            raise
    else:
        if found.metadata.labels.get(LABEL) != "true":
            raise Failed(
                f"there is a namespace {NAMESPACE} that is not the demo's; see it with ROTA_HOME={other_home()}"
            )
        await remove_namespace(client)
    await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE, labels={LABEL: "true"})))


async def remove_namespace(client: Client) -> None:
    """Delete the demo's namespace with everything in it, and wait until it is gone."""
    gone = asyncio.Event()

    def on_update(update: Update[Namespace]) -> None:
        if update.key.name == NAMESPACE and update.new is None:
            gone.set()

    async with Cache(client, Namespace) as cache:
        cache.subscribe(on_update)
        try:
            await client.delete(Namespace, NAMESPACE)
        except ApiError as error:
            if error.code == 404:
                return
            raise
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), EMPTY_SECONDS_MAX)


async def show(screen: Screen, edge: str) -> None:
    client = Client.connect(home=HOME, manager="demo")
    try:
        await fresh_namespace(client)
    except BaseException:
        await client.close()
        raise
    try:
        with tempfile.TemporaryDirectory(prefix="rota-demo-") as folder:
            await Story(screen, client, HOME, Path(folder), edge).run()
    finally:
        screen.say(f"everything that the demo made is ended and taken away; the server's home, {HOME}, stays")
        # The server may have ended meanwhile.
        with contextlib.suppress(ConnectionFailed, ApiError):
            await remove_namespace(client)
        await client.close()


async def main() -> int:
    """Run the server and the demo. The server ends with the demo, however that ends."""
    task = asyncio.current_task()
    assert task is not None
    for one in ENDINGS:
        asyncio.get_running_loop().add_signal_handler(one, task.cancel)
    server = await asyncio.create_subprocess_exec(
        ROTA,
        "up",
        f"--home={HOME}",
        *(sys.argv[1:] or ports()),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C is for the demo, which has to tidy up before the server ends.
        start_new_session=True,
    )
    try:
        return await show_beside(server)
    except asyncio.CancelledError:
        return 0
    except (Failed, ConnectionFailed) as error:
        print(f"the demo ends: {error}", file=sys.stderr)
        return 1
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def show_beside(server: asyncio.subprocess.Process) -> int:
    screen = Screen()
    assert server.stdout is not None
    first_line = (await server.stdout.readline()).decode().strip()
    edge = re.search(r"http://\S+:\d+", first_line)
    if edge is None:
        code = await server.wait()
        screen.say(f"No demo without a server. To see it in a home of its own: ROTA_HOME={other_home()} make run")
        return code
    screen.say(first_line)
    showing = asyncio.create_task(show(screen, edge[0]))
    ending = asyncio.create_task(server.wait())
    try:
        await asyncio.wait((showing, ending), return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            raise Failed("the server has ended")
        return showing.result() or 0
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        ending.cancel()


def other_home() -> Path:
    return Path(tempfile.gettempdir()) / f"rota-demo-{os.getuid()}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
