"""`rota version`."""

from __future__ import annotations

from rota.cli.command import command
from rota.cli.session import Session


@command
def version(_: Session) -> None:
    """Print the version."""
    from rota import __version__

    print(__version__)
