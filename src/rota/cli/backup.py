"""`rota backup` and `rota restore`."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.command import command, confirm, is_terminal
from rota.cli.output import print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.typed_commands import as_typed

COPY_SECONDS_MAX = 3600.0
"""Time for a server to copy its store before it sends the first byte."""


@command
async def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Save all data of a running server into one file. The server goes on meanwhile."""
    from rota.cli.gateway import backend_of, of_rota_only

    if file.exists() and not overwrite:
        raise CommandError(f"{file} is there already; name another file, or say --overwrite")
    partial = file.with_name(f".{file.name}.partial")
    try:
        async with session.client() as client:
            with of_rota_only():
                backend = backend_of(client)
                async with backend.stream("GET", "/v1/backup", patience_seconds=COPY_SECONDS_MAX) as pieces:
                    size = await _save(pieces, partial)
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
    print_line(as_typed(f"{file} written, {size} bytes; put it back with `rota restore {shlex.quote(str(file))}`"))


async def _save(pieces: AsyncIterable[bytes], path: Path) -> int:
    """Write a backup and sync it to the disk. Only the owner may read it, because it holds Secrets."""
    size = 0
    with os.fdopen(_opened(path), "wb") as out:
        async for piece in pieces:
            size += out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return size


def _opened(path: Path) -> int:
    # An existing file may belong to another user, who could go on reading it.
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


@command
def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `rota backup FILE` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Replace everything that the server stores by a backup. The server must be stopped."""
    from rota.server.audit import record_offline
    from rota.server.controllers import RESTORED
    from rota.server.home import Home
    from rota.store import StoreError
    from rota.store import restore as put_back

    home = session.settings.home_path
    target = home / "rota.db"
    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("only the local server's store can be restored: leave --context and --kubeconfig out")
    if not file.exists():
        raise CommandError(f"{file} does not exist; name the file that a backup was written to")
    if target.exists() and not yes:
        if not is_terminal():
            raise CommandError(f"this replaces everything in {target}; say --yes if that is meant")
        confirm(f"Replace everything in {target}?")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        revision = put_back(file, target)
    except StoreError as error:
        raise CommandError(str(error)) from None
    target.chmod(0o600)
    (home / RESTORED).touch(0o600)
    record_offline(Home(home).audit, "restore", "backup", revision)
    print_line(as_typed(f"{target} restored; start the server with `rota start`"))
