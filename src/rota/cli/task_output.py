"""Follow a task: its changes and its output. While the server is away, the client waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from rota.api import Task
from rota.cli.following import follow_named, key_in
from rota.cli.log_following import log_pieces
from rota.cli.output import printable
from rota.cli.patience import Patience
from rota.cli.tasks import is_over
from rota.client import Client

Object = dict[str, Any]

LINE_BYTES_MAX = 1024 * 1024
"""A longer line is split."""


async def forms_of(client: Client, name: str, uid: str, patience: Patience) -> AsyncGenerator[Object, None]:
    """Yield a task after every change, until it is over or deleted."""
    at = key_in(client, Task.api, name)
    async with aclosing(patience.follow(lambda: follow_named(client, Task.api, [at]))) as changes:
        async for key, task in changes:
            if key != at:
                continue
            if task is None or task["metadata"]["uid"] != uid:
                return
            yield task
            if is_over(task):
                return


def output_of(client: Client, name: str, patience: Patience) -> AsyncGenerator[bytes, None]:
    """Yield the output of a task in pieces, until it is over."""
    where = f"{quote(client.namespace, safe='')}/{quote(name, safe='')}"
    return log_pieces(client, f"/v1/tasks/{where}/logs", {"follow": "true"}, patience)


class Lines:
    """Splits output into lines without control characters."""

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
