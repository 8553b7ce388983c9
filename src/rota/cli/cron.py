"""`rota cron`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.session import Session, bad_usage

if TYPE_CHECKING:
    from rota.api.cron import Cron

COUNT_MAX = 1_000
SHOWN = 5


@command
def cron(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="CRON", help='Five fields in quotes, such as "*/5 * * * *".')],
    zone: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Set the time zone, such as Europe/Berlin.")
    ] = "UTC",
    count: Annotated[
        int, typer.Option("--count", "-c", metavar="NUMBER", min=1, max=COUNT_MAX, help="Show this number of runs.")
    ] = SHOWN,
) -> None:
    """Show when a cron would run next, without a server."""
    for tick in upcoming(understood(text, zone), time.time(), count):
        print_line(*parts(tick, zone))


def understood(text: str, zone: str) -> Cron:
    """Parse a cron. Raises CommandError with the message that a server would give."""
    from rota.api.cron import BadCron, cron
    from rota.api.problems import invalid
    from rota.api.zones import NoSuchZone

    try:
        return cron(text, zone)
    except BadCron as why:
        raise bad_usage(str(invalid("CRON", text, str(why)))) from None
    except NoSuchZone as why:
        raise bad_usage(str(invalid("--tz", zone, str(why)))) from None


def upcoming(ticking: Cron, now: float, count: int) -> list[int]:
    """Return the next ticks."""
    found: list[int] = []
    at: int | None = int(now)
    while at is not None and len(found) < count:
        at = ticking.after(at)
        if at is not None:
            found.append(at)
    return found


def parts(tick: int, zone_name: str) -> tuple[str, str]:
    """Return a tick on the clock of a zone, and how far away it is."""
    from rota.api.table import duration

    away = tick - time.time()
    return shown(tick, zone_name), f"   in {duration(away)}" if away > 0 else ""


def shown(tick: int, zone_name: str) -> str:
    """Return a tick on the clock of a zone, with its offset from UTC."""
    from datetime import datetime

    from rota.api.zones import zone

    return f"{datetime.fromtimestamp(tick, zone(zone_name)):%a %Y-%m-%d %H:%M:%S %z}"
