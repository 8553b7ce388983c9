"""`rota stop`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.runtime.keeper.protocol import STOP_GRACE_SECONDS

GRACE_SECONDS_MAX = 3600.0


@command
async def stop(
    session: Session,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            max=GRACE_SECONDS_MAX,
            help="Give instances this time to end, whatever they ask for; then they are killed.",
        ),
    ] = STOP_GRACE_SECONDS,
) -> None:
    """End the server of this home, whichever terminal it runs in, and everything that it runs.

    Instances that a crashed server has left are ended, too. Unless a longer grace is given, nothing is left after 5 s.
    """
    from rota.server.home import Home
    from rota.server.stopping import Ended
    from rota.server.stopping import stop as stop_all

    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("the server of a home is stopped: --context and --kubeconfig mean another one")
    if sys.platform != "linux":
        raise CommandError("this works on Linux; here, press Ctrl-C where `rota up` runs")
    path = session.settings.home_path
    ended: Ended = await stop_all(Home(path), grace)
    if ended.server is None and not ended.left:
        print_line(f"nothing runs in {path}")
        return
    count = len(ended.instances)
    instances = f"{count} instance{'s' if count != 1 else ''}"
    if ended.server is None:
        print_line(f"ended what was left running in {path}", f": {instances}" if count else "")
    else:
        print_line(f"stopped the server (process {ended.server})", f" and {instances}" if count else "")
    if ended.server_killed:
        print_line("the server did not end by itself and was killed")
    if ended.killed:
        print_line(f"{len(ended.killed)} of {count} had not ended by themselves in time and were killed")
