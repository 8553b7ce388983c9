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
    edge_port: Annotated[
        int | None,
        typer.Option(
            "--edge-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="The port for webhooks; 0 takes a free one. Without it 7480, or a free one with --port 0.",
        ),
    ] = None,
    allow_api: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-api",
            metavar="URL",
            help="An API that TaskSpawners may poll beside https://api.github.com. May be given several times.",
        ),
    ] = None,
    controllers: Annotated[
        bool, typer.Option("--controllers/--no-controllers", help="Whether controllers run in this process.")
    ] = True,
) -> None:
    """Start a server here, in the foreground. Ctrl-C stops it."""
    from rota.control.spawners.apis import api_of
    from rota.server import Ready, serve

    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("a server starts here: --context and --kubeconfig mean another one")

    for url in allow_api or ():
        try:
            api_of(url)
        except ValueError as error:
            raise bad_usage(f"--allow-api: {error}") from None

    def ready(at: Ready) -> None:
        kubeconfig = f"; for kubectl: export KUBECONFIG={at.kubeconfig}"
        line("Rota is ready at ", (at.url, "bold"), f"; webhooks at {at.edge}/-/hooks{kubeconfig}")

    serve(
        session.settings.home_path,
        host=host,
        port=port,
        edge_port=edge_port,
        allowed_apis=allow_api or (),
        with_controllers=controllers,
        on_ready=ready,
    )
