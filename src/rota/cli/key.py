"""`rota key`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import note, print_line
from rota.cli.server_options import check_local
from rota.cli.session import CommandError, Session
from rota.cli.typed_commands import as_typed
from rota.cli.usage import Group

app = typer.Typer(cls=Group, help="Make and change the key that Secrets are encrypted with.", rich_markup_mode=None)


@app.callback(no_args_is_help=True)
def _group() -> None:
    """Make and change the key that Secrets are encrypted with."""


@command
def create(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write. It must not exist.")],
) -> None:
    """Make a key, in a file that only its owner may read."""
    from rota.store import create_key

    try:
        create_key(file)
    except OSError as error:
        raise CommandError(f"{file}: no key is written: {(error.strerror or str(error)).lower()}") from None
    print_line(as_typed(f"{file} written; `rota start --key-file FILE` encrypts Secrets with it"))
    note("keep a copy of it elsewhere, and not beside backups: without it neither the database nor a backup is opened")


@command
def rotate(
    session: Session,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The file of the key that is in use.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The file of the key to use from now on.")],
) -> None:
    """Encrypt all Secrets with another key. The server must be stopped."""
    check_local(session)
    from rota.server.audit import record_offline
    from rota.server.home import Home
    from rota.store import StoreError, read_key
    from rota.store import rotate as seal_anew

    home = Home(session.settings.home_path)
    try:
        count = seal_anew(home.store, read_key(old), read_key(new))
    except StoreError as error:
        raise CommandError(str(error)) from None
    record_offline(home.audit, "rotate", "key")
    print_line(
        as_typed(f"{count} rows encrypted anew; start the server with `rota start --key-file {shlex.quote(str(new))}`")
    )
    note("backups that were made before need the old key")


app.command("create")(create)
app.command("rotate")(rotate)
