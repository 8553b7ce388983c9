"""Print the log of the home's own server. It is read as a file, because a server that crashed has one, too."""

from __future__ import annotations

import asyncio

from rota.cli.output import line, note, printable
from rota.cli.serving_options import check_local
from rota.cli.session import Session
from rota.cli.task_output import Lines


async def show_server_log(session: Session, tail: int, *, follow: bool) -> None:
    """Print the last lines, and with `follow` new ones."""
    from rota.server.background_log import FOLLOW_SECONDS, aside_of, end_of, following, log_of

    check_local(session)
    log = log_of(session.settings.home_path)
    # Begun before the end is read: what is written in between is then shown twice rather than never.
    pieces = following(log) if follow else None
    first = next(pieces) if pieces is not None else b""
    last = end_of(log, tail)
    if len(last) < tail:
        last = [*end_of(aside_of(log), tail - len(last)), *last]
    if not last and not log.exists():
        note(f"there is no log in {log.parent}: `rota start` begins one")
    for one in last:
        line(printable(one.decode(errors="replace"), keep="\t"))
    if pieces is None:
        return
    lines = Lines()
    for text in lines.split(first):
        line(text)
    for piece in pieces:
        for text in lines.split(piece):
            line(text)
        if not piece:
            await asyncio.sleep(FOLLOW_SECONDS)
