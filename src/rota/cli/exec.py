"""`rota exec`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
import typer

from rota.api import Instance, WorkerPool
from rota.cli import terminal
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.gateway import NOT_ROTA, backend_of
from rota.cli.naming import Target, reference, targets
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client
from rota.client.websocket import Closed, WebSocket
from rota.registry import ApiError

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels."""
SIGNALLED = 128
TERM = re.compile(r"[-+.\w]{1,63}", re.ASCII)


@command
async def exec_(
    session: Session,
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME | inst/NAME | wp/NAME",
            help="Which instance; of a pool, its first that is ready.",
            show_default=False,
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", help="What to run, after two dashes.", show_default=False),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="NAME", help="Which container; without it, the first.")
    ] = "",
) -> int:
    """Run a command in an instance, beside what runs there. Its exit code is this command's."""
    target = _target(where)
    if not words:
        raise bad_usage(f"say what to run: rota exec {where} -- COMMAND")
    if tty and not sys.stdout.isatty():
        raise bad_usage("--tty needs a terminal, and standard output is none; leave it out")
    if tty and stdin and not sys.stdin.isatty():
        raise bad_usage("--tty needs a terminal, and standard input is none; leave out --tty, or --stdin")
    async with session.client() as client:
        name = target.name if target.kind is Instance.api else await _first_ready(client, target.name)
        asked = [("container", container), ("stdin", _flag(stdin)), ("stdout", "true"), ("stderr", _flag(not tty))]
        asked += _terminal_asked() if tty else []
        query = urlencode([*asked, *(("command", word) for word in words)], errors="surrogateescape")
        path = f"/v1/exec/{quote(client.namespace, safe='')}/{quote(name, safe='')}?{query}"
        with terminal.ends_in_good_order() as came:
            try:
                async with backend_of(client).websocket(path, protocols=(PROTOCOL,)) as websocket:
                    with _terminal(websocket, stdin) if tty else contextlib.nullcontext():
                        status = await _pass_on(websocket, stdin)
            except ApiError as error:
                if error.code == 404 and not (error.details or {}).get("name"):
                    raise CommandError(NOT_ROTA) from None
                raise
            except asyncio.CancelledError:
                if came:
                    return SIGNALLED + came[0]
                raise
    return _code(status)


def _target(where: str | None) -> Target:
    (target,) = targets([where]) if where and "/" in where else [Target(Instance.api, where or "")]
    if not target.name or target.kind not in (Instance.api, WorkerPool.api):
        raise bad_usage("name an instance or a pool, such as boxes-0 or wp/boxes")
    return target


async def _first_ready(client: Client, pool_name: str) -> str:
    pool: dict[str, Any] = await client.get(WorkerPool.api, pool_name)
    uid = pool["metadata"]["uid"]
    found, _ = await everything(client, Instance.api, namespace=None)
    own = [one for one in found if any(o["uid"] == uid for o in one["metadata"].get("ownerReferences", []))]
    ready = [one for one in own if _is_ready(one)]
    if not ready:
        what = f"none of its {len(own)} instances is ready" if own else "it has no instances"
        raise CommandError(f"{reference(WorkerPool.api, pool_name)}: {what}; `rota why wp/{pool_name}` tells more")
    first: str = min(ready, key=lambda one: one["spec"]["ordinal"])["metadata"]["name"]
    return first


def _is_ready(instance: dict[str, Any]) -> bool:
    conditions = (instance.get("status") or {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


# The terminal.


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _terminal_asked() -> list[tuple[str, str]]:
    columns, lines = terminal.size()
    kind = os.environ.get("TERM", "")
    known = [("term", kind)] if TERM.fullmatch(kind) else []
    return [("tty", "true"), ("width", str(columns)), ("height", str(lines)), *known]


@contextlib.contextmanager
def _terminal(websocket: WebSocket, stdin: bool) -> Iterator[None]:
    def resized(size: os.terminal_size) -> None:
        with contextlib.suppress(Closed):
            said = msgspec.json.encode({"Width": size.columns, "Height": size.lines})
            websocket.send(bytes((RESIZE,)) + said)

    with terminal.raw() if stdin else contextlib.nullcontext(), terminal.on_resize(resized):
        yield


# Bytes.


async def _pass_on(websocket: WebSocket, stdin: bool) -> bytes:
    """Carry everything both ways. Returns how the command ended, as it was told."""
    status = b""
    writer = terminal.Writer()
    feeding = asyncio.create_task(_feed(websocket)) if stdin else None
    try:
        async for message in websocket:
            if isinstance(message, str) or len(message) < 2:
                continue
            if message[0] in (STDOUT, STDERR):
                await writer.write(message[0], message[1:])
            elif message[0] == ERROR:
                status = message[1:]
    except Closed as closed:
        if not status:
            raise CommandError(f"the command was ended: {closed}") from None
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    if not status:
        assert websocket.closed is not None
        raise CommandError(f"the command was ended: {websocket.closed.reason or 'the server closed the connection'}")
    return status


async def _feed(websocket: WebSocket) -> None:
    with contextlib.suppress(Closed):
        while piece := await terminal.read():
            websocket.send(bytes((STDIN,)) + piece)
            await websocket.drain()
        websocket.send(bytes((CLOSE, STDIN)))


def _code(status: bytes) -> int:
    """The exit code that a `Status` tells."""
    told = msgspec.json.decode(status, type=dict[str, Any])
    if told.get("status") == "Success":
        return 0
    for cause in (told.get("details") or {}).get("causes", []):
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"])
    raise CommandError(str(told.get("message") or "the command failed"))
