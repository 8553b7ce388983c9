"""Follow a task: its newest form, and what it writes. A server that is away for a while is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from rota.api import Task
from rota.cli.following import follow_named, key_in
from rota.cli.gateway import NOT_ROTA, backend_of
from rota.cli.output import printable
from rota.cli.session import CommandError
from rota.cli.tasks import is_over
from rota.client import Client, ConnectionFailed
from rota.registry import ApiError

Object = dict[str, Any]

AWAY_SECONDS_MAX = 60.0
"""How long a server may be away: as long as one takes that is started anew."""
AGAIN_SECONDS = 0.2
LINE_BYTES_MAX = 1024 * 1024
"""A longer line is shown as several."""


class Patience:
    """With a server that does not answer."""

    def __init__(self) -> None:
        self._away_since: float | None = None

    def is_there(self) -> None:
        self._away_since = None

    async def wait(self, error: ConnectionFailed) -> None:
        """Returns when it is worth another try. Raises the error when it was too long."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since > AWAY_SECONDS_MAX:
            raise error
        await asyncio.sleep(AGAIN_SECONDS)


async def forms_of(client: Client, name: str, uid: str) -> AsyncGenerator[Object, None]:
    """A task as it is, and after every change. It ends when the task is over, or gone."""
    at, patience = key_in(client, Task.api, name), Patience()
    while True:
        try:
            async with aclosing(follow_named(client, Task.api, [at])) as changes:
                async for key, task in changes:
                    patience.is_there()
                    if key != at:
                        continue
                    if task is None or task["metadata"]["uid"] != uid:
                        return
                    yield task
                    if is_over(task):
                        return
        except ConnectionFailed as error:
            await patience.wait(error)


async def output_of(client: Client, task: Object) -> AsyncGenerator[bytes, None]:
    """What a task has written, and what it goes on to write until it is over, in pieces."""
    meta, patience = task["metadata"], Patience()
    received_bytes = 0
    while True:
        try:
            async with backend_of(client).stream("GET", log_path(client, meta["name"], received_bytes)) as pieces:
                async for piece in pieces:
                    patience.is_there()
                    received_bytes += len(piece)
                    yield piece
            # It has ended in good order: so it does too when the server is about to stop, or after some hours.
            if await _is_at_its_end(client, meta["name"], meta["uid"]):
                return
        except ConnectionFailed as error:
            await patience.wait(error)
        except ApiError as error:
            raise explained(error) from None


def log_path(client: Client, name: str, begin_bytes: int) -> str:
    where = f"{quote(client.namespace, safe='')}/{quote(name, safe='')}"
    return f"/v1/tasks/{where}/logs?follow=true&from={begin_bytes}"


def explained(error: ApiError) -> Exception:
    """What is wrong with a request to the gateway."""
    is_unknown_path = error.code in (403, 404) and not (error.details or {}).get("name")
    return CommandError(NOT_ROTA) if is_unknown_path else error


async def _is_at_its_end(client: Client, name: str, uid: str) -> bool:
    try:
        task = await client.get(Task.api, name)
    except ApiError as error:
        if error.code != 404:
            raise
        return True
    return task["metadata"]["uid"] != uid or is_over(task)


class Lines:
    """Pieces in, complete lines out, with nothing in them that a terminal would obey."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, piece: bytes) -> list[str]:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            whole, self._rest = [*whole, self._rest], b""
        return [_shown(one) for one in whole]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [_shown(rest)] if rest else []


def _shown(text: bytes) -> str:
    return printable(text.decode(errors="replace"), keep="\t")
