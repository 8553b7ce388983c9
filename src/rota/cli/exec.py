"""`rota exec`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

import typer

from rota.api import Instance
from rota.cli import terminal
from rota.cli.command import command
from rota.cli.gateway import backend_of, in_good_order
from rota.cli.instances import OWNERS, instances_of
from rota.cli.naming import Target, reference, targets
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client, HttpBackend, channels
from rota.client.websocket import WebSocket

TERM = re.compile(r"[-+.\w]{1,63}", re.ASCII)


@command
async def exec_(
    session: Session,
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME | inst/NAME | wp/NAME | wl/NAME",
            help="The instance; of a pool or a workload, its first that is ready.",
            show_default=False,
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", help="The command to run, after two dashes.", show_default=False),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="NAME", help="Choose a container; without it, the first.")
    ] = "",
) -> int:
    """Run a command in an instance, beside what runs there. Its exit code is this command's."""
    target = _target(where)
    if not words:
        raise bad_usage(f"say what to run: `rota exec {where} -- COMMAND`")
    check_terminal(stdin=stdin, tty=tty)
    async with session.client() as client:
        name = target.name if target.kind is Instance.api else await _first_ready(client, target)
        backend = backend_of(client)
        return await in_good_order(
            lambda: run_in(backend, client.namespace, name, words, stdin=stdin, tty=tty, container=container)
        )


def check_terminal(*, stdin: bool, tty: bool) -> None:
    """Raise CommandError if a terminal is requested and there is none."""
    if tty and not sys.stdout.isatty():
        raise bad_usage("--tty needs a terminal, and standard output is none; leave it out")
    if tty and stdin and not sys.stdin.isatty():
        raise bad_usage("--tty needs a terminal, and standard input is none; leave out --tty, or --stdin")


async def run_in(
    backend: HttpBackend,
    namespace: str,
    instance: str,
    words: Sequence[str],
    *,
    stdin: bool,
    tty: bool,
    container: str = "",
) -> int:
    """Run a command on this terminal, or with these pipes. Returns its exit code."""
    asked = _terminal_asked() if tty else []
    try:
        path = channels.path(
            namespace, instance, words, stdin=stdin, stderr=not tty, container=container, terminal=asked
        )
    except ValueError as error:
        raise bad_usage(str(error)) from None
    writer = terminal.Writer()
    try:
        async with backend.websocket(path, protocols=(channels.PROTOCOL,)) as websocket:
            with _terminal(websocket, stdin) if tty else contextlib.nullcontext():
                return await channels.carry(websocket, writer.write, _typed() if stdin else None)
    except channels.ExecFailed as error:
        raise CommandError(str(error)) from None


def _target(where: str | None) -> Target:
    (target,) = targets([where]) if where and "/" in where else [Target(Instance.api, where or "")]
    if not target.name or target.kind not in (Instance.api, *OWNERS):
        raise bad_usage("name an instance or a pool, such as boxes-0 or wp/boxes, or a workload, such as wl/web")
    return target


async def _first_ready(client: Client, target: Target) -> str:
    own = await instances_of(client, target)
    ready: list[str] = [one["metadata"]["name"] for one in own if _is_ready(one)]
    if not ready:
        what = f"none of its {len(own)} instances is ready" if own else "it has no instances"
        name = f"{target.kind.short_names[0]}/{target.name}"
        raise CommandError(f"{reference(target.kind, target.name)}: {what}; `rota why {name}` tells more")
    return ready[0]


def _is_ready(instance: dict[str, Any]) -> bool:
    conditions = (instance.get("status") or {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


# The terminal.


def _terminal_asked() -> list[tuple[str, str]]:
    columns, lines = terminal.size()
    kind = os.environ.get("TERM", "")
    known = [("term", kind)] if TERM.fullmatch(kind) else []
    return [("tty", "true"), ("width", str(columns)), ("height", str(lines)), *known]


@contextlib.contextmanager
def _terminal(websocket: WebSocket, stdin: bool) -> Iterator[None]:
    def resized(size: os.terminal_size) -> None:
        channels.resize(websocket, size.columns, size.lines)

    with terminal.raw() if stdin else contextlib.nullcontext(), terminal.on_resize(resized):
        yield


async def _typed() -> AsyncIterator[bytes]:
    while piece := await terminal.read():
        yield piece
