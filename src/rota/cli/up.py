"""`rota up`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated

import typer

from rota import __version__
from rota.cli.command import command
from rota.cli.output import line
from rota.cli.session import CommandError, Session, bad_usage


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
            help="The port for functions and webhooks; 0 takes a free one. Without it 7480, or a free one "
            "with --port 0.",
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
    log_file: Annotated[
        str,
        typer.Option(
            "--log-file",
            metavar="FILE",
            help="Write to this file and not to the terminal. From 4 MiB on it is put aside as FILE.1, and begun anew.",
        ),
    ] = "",
) -> None:
    """Start a server here, in the foreground. Ctrl-C stops it. `rota start` starts one in the background."""
    from rota.control.spawners.apis import api_of
    from rota.server import Ready, serve
    from rota.server.background_state import Options, State, announce, find, own_state, withdraw
    from rota.server.home import Home

    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("a server starts here: --context and --kubeconfig mean another one")

    for url in allow_api or ():
        try:
            api_of(url)
        except ValueError as error:
            raise bad_usage(f"--allow-api: {error}") from None

    home = Home(session.settings.home_path)
    found = find(home)
    if found.condition == "running" and found.state is not None:
        where = f"at {found.state.url} (process {found.pid})"
        raise CommandError(
            f"a server of {home.path} is running already, {where}\n`rota restart` replaces it, `rota stop` ends it"
        )
    told: list[State] = []
    if log_file:
        _write_to(log_file)

    def ready(at: Ready) -> None:
        # A port that was chosen is kept by the next server: clients know it.
        options = Options(host, _port_of(at.url), _port_of(at.edge), tuple(allow_api or ()), controllers)
        told.append(own_state(__version__, at.url, at.edge, options, _no_sandbox))
        announce(home, told[0])
        kubeconfig = f"; for kubectl: export KUBECONFIG={at.kubeconfig}"
        line("Rota is ready at ", (at.url, "bold"), f"; functions and webhooks at {at.edge}{kubeconfig}")

    serve(
        home.path,
        host=host,
        port=port,
        edge_port=edge_port,
        allowed_apis=allow_api or (),
        with_controllers=controllers,
        on_ready=ready,
    )
    withdraw(home, told[0])
    if log_file:
        _mark("ended")


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _no_sandbox() -> str:
    from rota.runtime import sandbox

    ok, why_not = sandbox.available()
    return "" if ok else why_not


def _write_to(log_file: str) -> None:
    from pathlib import Path

    from rota.server.background_log import write_to

    write_to(Path(log_file))
    _mark(f"Rota {__version__} begins, process {os.getpid()}")


def _mark(what: str) -> None:
    """A log is read long after: when this was, and what."""
    line(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {what}")
