"""`rota up`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import line
from rota.cli.session import Session, bad_usage


@command
def up(
    session: Session,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 7443,
    controllers: Annotated[
        bool, typer.Option("--controllers/--no-controllers", help="Whether controllers run in this process.")
    ] = True,
) -> None:
    """Start a server here, in the foreground. Ctrl-C stops it."""
    from rota.server import Ready, serve

    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("a server starts here: --context and --kubeconfig mean another one")

    def ready(at: Ready) -> None:
        line("Rota is ready at ", (at.url, "bold"), f"; for kubectl: export KUBECONFIG={at.kubeconfig}")

    serve(session.settings.home_path, host=host, port=port, with_controllers=controllers, on_ready=ready)
