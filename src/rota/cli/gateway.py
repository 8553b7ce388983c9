"""Requests to the gateway of a Rota server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rota.cli import terminal
from rota.cli.session import CommandError
from rota.client import Client
from rota.client.http import HttpBackend
from rota.registry import ApiError

SIGNALLED = 128
NOT_ROTA = "the server there is not Rota's: this works on one that `rota start` started"


def backend_of(client: Client) -> HttpBackend:
    """Return the connection to the server. Raises CommandError if there is none."""
    if not isinstance(client.backend, HttpBackend):
        raise CommandError(NOT_ROTA)
    return client.backend


@contextmanager
def of_rota_only() -> Iterator[None]:
    """Turn a 404 into an error that says that the server is not Rota's."""
    try:
        yield
    except ApiError as error:
        if error.code == 404:
            raise CommandError(NOT_ROTA) from None
        raise


async def call(client: Client, method: str, path: str, body: Any = None) -> Any:
    """Send one request to the gateway. Returns its JSON answer."""
    import msgspec

    headers = {"Content-Type": "application/json"} if body is not None else None
    encoded = msgspec.json.encode(body) if body is not None else None
    # A server without a gateway does not know the path; one that has it names what is missing below.
    with of_rota_only() if path.count("/") == 2 else nullcontext():
        answer = await backend_of(client).raw(method, path, encoded, headers)
    return msgspec.json.decode(answer.body) if answer.body else None


async def in_good_order(act: Callable[[], Awaitable[int]]) -> int:
    """Run a command on the gateway. Returns its exit code; ended by a signal, the code that a shell would give."""
    with terminal.ends_in_good_order() as came:
        try:
            return await act()
        except ApiError as error:
            if error.code == 404 and not (error.details or {}).get("name"):
                raise CommandError(NOT_ROTA) from None
            raise
        except asyncio.CancelledError:
            if came:
                return SIGNALLED + came[0]
            raise
