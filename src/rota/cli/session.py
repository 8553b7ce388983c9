"""What every command gets: which server and namespace are meant, and a client of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.client import Client

MANAGER = "rota"
"""Under which name the command line owns fields."""
FAILED = 1
BAD_USAGE = 2


class CommandError(Exception):
    """A command cannot go on; the message says what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def bad_usage(message: str) -> CommandError:
    return CommandError(message, BAD_USAGE)


@dataclass(frozen=True, slots=True)
class Settings:
    """Which server and namespace are meant, as far as it was said."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    home: str | None = None

    def overridden(self, other: Settings) -> Settings:
        """These settings, but for what the other ones say."""
        given = {name: getattr(other, name) for name in Settings.__slots__ if getattr(other, name) is not None}
        return replace(self, **given)

    @property
    def home_path(self) -> Path:
        """The folder of the local server."""
        return Path(self.home or os.environ.get("ROTA_HOME") or "~/.rota").expanduser()


Connect = Callable[[Settings], AbstractAsyncContextManager["Client"]]


@asynccontextmanager
async def connect_to_server(settings: Settings) -> AsyncIterator[Client]:
    """A client of the server that the settings mean."""
    from rota.client import Client

    try:
        client = Client.connect(
            home=settings.home,
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            manager=MANAGER,
            namespace=settings.namespace,
        )
    except ValueError as error:
        raise bad_usage(str(error)) from None
    try:
        yield client
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command."""

    settings: Settings = Settings()
    connect_with: Connect = connect_to_server

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of the server that is meant. Errors about objects that are not there then name those that are."""
        from rota.registry import ApiError

        async with self.connect_with(self.settings) as client:
            try:
                yield client
            except ApiError as error:
                from rota.cli.existing import explain_missing

                await explain_missing(client, error)
                raise
