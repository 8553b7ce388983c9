"""Read a server's log to its end. A stream that is cut continues at its position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

from rota.cli.gateway import NOT_ROTA, backend_of
from rota.cli.patience import AWAY_SECONDS_MAX, PASSING, Patience
from rota.cli.session import CommandError
from rota.client import Client, ConnectionFailed, frames
from rota.client.connection import header
from rota.client.failures import BadAnswer
from rota.client.frames import Frame, Frames, Position
from rota.registry import ApiError

AGAIN_SECONDS = 0.2
"""Pause before a stream that the server ended is requested again: the server is about to stop, or hours have passed."""
ANOTHER_VERSION = "the server is another version of Rota, which sends logs in another form: `rota restart` restarts it"


async def log_pieces(
    client: Client, path: str, asked: Mapping[str, Any], patience: Patience
) -> AsyncGenerator[bytes, None]:
    """Yield a log in pieces, each once. `asked` are the parameters of the first request."""
    position = Position()
    cell = Patience(seconds_max=AWAY_SECONDS_MAX, who="the cell")
    while True:
        try:
            async with aclosing(_frames(client, path, asked, position)) as coming:
                async for frame in coming:
                    patience.record_answer()
                    cell.record_answer()
                    if frame.kind == frames.END:
                        return
                    if frame.kind == frames.DATA:
                        position.take(frame.position)
                    if frame.data:
                        yield frame.data
            await asyncio.sleep(AGAIN_SECONDS)
        except BadAnswer:
            raise
        except (ConnectionFailed, ApiError) as error:
            if is_of_cell(error):
                await _wait_to_retry(cell, error)
                continue
            if not patience.has_answered:
                raise explained(error) from None
            if isinstance(error, ApiError) and error.code == 404 and position.text:
                return  # The task or instance was deleted, and its log with it.
            await patience.wait_to_retry(error)


def is_of_cell(error: Exception) -> bool:
    """Report whether the error is about an unreachable cell, while its hub answers."""
    return isinstance(error, ApiError) and error.code in PASSING and (error.details or {}).get("kind") == "cells"


async def _wait_to_retry(cell: Patience, error: ConnectionFailed | ApiError) -> None:
    """Wait for a cell that answered before. Raises the error if it did not, or takes too long."""
    if not cell.has_answered:
        raise error
    try:
        await cell.wait_to_retry(error)
    except CommandError:
        raise error from None


async def _frames(
    client: Client, path: str, asked: Mapping[str, Any], position: Position
) -> AsyncGenerator[Frame, None]:
    backend = backend_of(client)
    query = dict(asked)
    if position.text:
        query.pop("tail", None)
        query["from"] = position.text
    accepted = {"Accept": frames.CONTENT_TYPE}
    url = f"{path}?{urlencode(query)}"
    async with backend.stream("GET", url, headers=accepted, patience_seconds=frames.SILENCE_SECONDS_MAX) as stream:
        if not header(stream.headers, "content-type").startswith(frames.CONTENT_TYPE):
            raise CommandError(ANOTHER_VERSION)
        arriving = Frames(backend.target.endpoint.url)
        async for piece in stream:
            for frame in arriving.split(piece):
                yield frame


def explained(error: Exception) -> Exception:
    """Return the error to show for a failed request to the gateway."""
    if not isinstance(error, ApiError):
        return error
    is_unknown_path = error.code in (403, 404) and not (error.details or {}).get("name")
    return CommandError(NOT_ROTA) if is_unknown_path else error
