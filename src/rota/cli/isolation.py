"""Warn that nothing can be isolated."""

from __future__ import annotations

from rota.cli.output import note

NOT_ISOLATED = (
    "WARNING: nothing that runs here is isolated: {why_not}\n"
    "  What an admin starts runs as this user, on this host. What anybody else starts is refused.\n"
    "  Install the package bubblewrap and restart the server; `rota doctor` says what is missing."
)


def warn_of_no_sandbox(why_not: str) -> None:
    """Print that nothing can be isolated, what follows from that, and what to install."""
    for text in NOT_ISOLATED.format(why_not=why_not).splitlines():
        note(text)
