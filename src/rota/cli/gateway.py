"""What is asked of a server beside objects."""

from __future__ import annotations

from typing import Any

from rota.cli.session import CommandError
from rota.client import Client
from rota.client.http import HttpBackend
from rota.registry import ApiError

NOT_ROTA = "the server there is not Rota's: this works on a server that `rota up` started"


def backend_of(client: Client) -> HttpBackend:
    """The connection to the server."""
    if not isinstance(client.backend, HttpBackend):
        raise CommandError(NOT_ROTA)
    return client.backend


async def call(client: Client, method: str, path: str, body: Any = None) -> Any:
    """One request to Rota's gateway, and its JSON answer."""
    import msgspec

    headers = {"Content-Type": "application/json"} if body is not None else None
    encoded = msgspec.json.encode(body) if body is not None else None
    try:
        answer = await backend_of(client).raw(method, path, encoded, headers)
    except ApiError as error:
        # A server without a gateway does not know the path; one with it names what is missing.
        if error.code == 404 and path.count("/") == 2:
            raise CommandError(NOT_ROTA) from None
        raise
    return msgspec.json.decode(answer.body) if answer.body else None
