"""`rota claim`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, NoReturn

import typer

from rota.cli import terminal
from rota.cli.claim_waiting import reporting_wait
from rota.cli.command import command
from rota.cli.exec import check_terminal, run_in
from rota.cli.gateway import NOT_ROTA, SIGNALLED, backend_of
from rota.cli.options import seconds
from rota.cli.output import note, print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.client.claims import Box, ClaimContext, ClaimLost, NoneFree
from rota.client.failures import ConnectionCut
from rota.registry import ApiError

SHELL = ("/bin/sh", "-c", "exec $(command -v bash || echo sh)")
"""Starts bash if it is installed, else sh."""
PRIORITY_MAX = 1000
LEASE_SECONDS = 60.0
"""The lease of a claim that only this command uses. The command renews it, so the claim of a killed command ends this
soon."""


@command
async def claim(
    session: Session,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…",
            help="The command to run, after two dashes; without it, a shell on this terminal.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Name the claim. A repeated request under this name gets the same instance."
        ),
    ] = "",
    lease: Annotated[
        str,
        typer.Option(
            "--lease",
            metavar="SPAN",
            help="Keep the hold this long if this command dies: 30s, 5m; without it, 1m, or 1h with --name or --keep.",
        ),
    ] = "",
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="SPAN", help="Wait this long for a free instance; without it, as the pool says."
        ),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable, for this hold only; repeatable."),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="CONTAINER=IMAGE", help="Use another image, for this hold only; repeatable."),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            "--priority",
            metavar="NUMBER",
            min=-PRIORITY_MAX,
            max=PRIORITY_MAX,
            help="Set the priority; higher goes first.",
        ),
    ] = 0,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", "--detach", help="Keep the claim at the end, until its lease is over or it is released."
        ),
    ] = False,
) -> int:
    """Claim an idle instance of a pool, run a command in it or open a shell, and give it back.

    The exit code is the command's.
    """
    opens_shell = not words and not keep
    if opens_shell and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise bad_usage(f"say what to run: `rota claim {pool} -- COMMAND`; a shell needs a terminal, and this is none")
    check_terminal(stdin=stdin, tty=tty)
    # A claim that others may ask for by its name, or that outlasts this command, keeps the lease it has or the default.
    lease_seconds = seconds(lease) if lease else None if name or keep else LEASE_SECONDS
    wait_seconds = seconds(wait) if wait else None
    variables, images = _pairs(env or [], "--env"), _pairs(image or [], "--image")
    async with session.client() as client:
        backend_of(client)
        with terminal.ends_in_good_order() as came, _warnings_printed():
            claim_context = client.claim(
                pool,
                name=name,
                lease_seconds=lease_seconds,
                wait_seconds=wait_seconds,
                env=variables,
                images=images,
                priority=priority,
            )
            try:
                async with reporting_wait(client, claim_context, pool) as waiting:
                    return await _held(
                        claim_context,
                        waiting,
                        words or (SHELL if opens_shell else ()),
                        stdin or opens_shell,
                        tty or opens_shell,
                        keep,
                    )
            except ApiError as error:
                _explain(error, pool)
            except asyncio.CancelledError:
                if came:
                    return SIGNALLED + came[0]
                raise


class _Notes(logging.Handler):
    """Prints log records as notes, with the commands in them as they must be typed here."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextlib.contextmanager
def _warnings_printed() -> Iterator[None]:
    """Print the warnings of the client of claims."""
    log, notes = logging.getLogger("rota.client.claims"), _Notes(logging.WARNING)
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)


async def _held(
    claim_context: ClaimContext, waiting: asyncio.Task[None], words: Sequence[str], stdin: bool, tty: bool, keep: bool
) -> int:
    async with claim_context as box:
        waiting.cancel()
        if keep:
            box.keep()
            _print_claim(box)
        elif stdin and tty:
            note(f"{box.instance} (claim {box.name}), given back at the end")
        if not words:
            return 0
        try:
            return await run_in(box.backend, box.namespace, box.instance, words, stdin=stdin, tty=tty)
        except ConnectionCut:
            await box.check()
            raise


def _print_claim(box: Box) -> None:
    print_line(f"claim/{box.name}")
    until = f" until {box.expires_at.astimezone():%Y-%m-%d %H:%M:%S %Z}" if box.expires_at is not None else ""
    where = "" if box.namespace == "default" else f" -n {box.namespace}"
    note(f"{box.instance} is held{until}")
    note(f"use it: `rota claim{where} {box.pool} --name {box.name} --keep -- COMMAND`")
    note(f"give it back: `rota release{where} {box.name}`")


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    out = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise bad_usage(f'{option} "{text}": write NAME=VALUE')
        out[name] = value
    return out


def _explain(error: ApiError, pool: str) -> NoReturn:
    if isinstance(error, NoneFree):
        if "`rota " in error.message:  # Time alone does not help.
            raise CommandError(error.message) from None
        is_full = " wait for " in error.message
        again = f"come again in {error.retry_after:g}s" + ("" if is_full else ", or wait for longer with --wait")
        raise CommandError(f"{error.message}\n{again}") from None
    if isinstance(error, ClaimLost):
        raise CommandError(error.message) from None
    if error.code == 404:
        is_ours = error.message.startswith("no WorkerPool")
        raise CommandError(error.message if is_ours else NOT_ROTA) from None
    raise error
