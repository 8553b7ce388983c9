"""The session of a command: which server and namespace are meant, and a client of that server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.client import Client

MANAGER = "rota"
"""The field manager of the command line."""
FAILED = 1
BAD_USAGE = 2


class CommandError(Exception):
    """Ends a command. The message says what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def bad_usage(message: str) -> CommandError:
    return CommandError(message, BAD_USAGE)


@dataclass(frozen=True, slots=True)
class Settings:
    """The server and the namespace that a command line names. Options that are left out are None."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    home: str | None = None

    def overridden(self, other: Settings) -> Settings:
        """Return these settings, with those that `other` has in their place."""
        given = {name: getattr(other, name) for name in Settings.__slots__ if getattr(other, name) is not None}
        return replace(self, **given)

    @property
    def home_path(self) -> Path:
        """The folder of the local server."""
        return Path(self.home or os.environ.get("ROTA_HOME") or "~/.rota").expanduser()


Connect = Callable[[Settings], AbstractAsyncContextManager["Client"]]


@asynccontextmanager
async def connect_to_server(settings: Settings) -> AsyncIterator[Client]:
    """Connect to the server that the settings name."""
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


@dataclass(slots=True)
class Session:
    """One run of one command."""

    settings: Settings = Settings()
    connect_with: Connect = connect_to_server
    has_asked: bool = False
    """True once the command had a client of another process, whose answers may have any shape."""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect to the server. Errors about missing objects are extended by the names that exist."""
        from rota.registry import ApiError

        async with self.connect_with(self.settings) as client:
            self.has_asked = self.has_asked or not client.in_process
            try:
                yield client
            except ApiError as error:
                from rota.cli.missing_names import explain_missing

                await explain_missing(client, error)
                raise


NOT_UNDERSTOOD = "what the server answers is not understood: {}\nis it a Rota, and of this version?"
_MISREAD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, AssertionError, RecursionError)
"""Exceptions of Python for a value of an unexpected type, or without an expected part."""


def understood(error: Exception) -> Exception:
    """Return the error of a command; a CommandError if Python failed on an answer of an unexpected shape."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if not isinstance(cause, _MISREAD) or type(cause).__module__.startswith("rota."):
        return error
    return CommandError(NOT_UNDERSTOOD.format(f"{_where(cause)}: {cause}"))


def _where(error: BaseException) -> str:
    """Return the class of an error and the last line of Rota in its traceback."""
    name = type(error).__name__
    for frame, number in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("rota."):
            name = f"{type(error).__name__} in {module}:{number}"
    return name
