"""Wait a server out that is away: a restart of it is nothing that whoever waits for objects should notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TypeVar

from rota.cli.output import note
from rota.cli.session import CommandError
from rota.client import ConnectionFailed
from rota.client.failures import CredentialsFailed
from rota.registry import ApiError

T = TypeVar("T")

AWAY = 3
"""The exit code when the server did not come back in time. Of the objects nothing is known then."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0
PASSING = frozenset((429, 502, 503, 504))
"""Answers of a server that is coming, or of what stands before one that is away."""


class Patience:
    """With a server that does not answer, as long as whoever uses this goes on."""

    def __init__(self, aside: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """`aside` is where it may be written that the server is away."""
        self._aside = aside
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._trouble: Exception | None = None
        self._has_heard = False

    @property
    def doubt(self) -> str:
        """Why nothing is known of the objects as they are now; empty: it is known."""
        if self._trouble is not None:
            return str(self._trouble)
        return "" if self._has_heard else "the server did not answer in time"

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """An answer, however often it has to be asked for."""
        while True:
            try:
                answer = await question()
            except (ConnectionFailed, ApiError) as error:
                await self._bear(error)
            else:
                self._is_there()
                return answer

    async def follow(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """What comes, begun anew whenever the server was away."""
        while True:
            try:
                async with aclosing(begin()) as coming:
                    async for one in coming:
                        self._is_there()
                        yield one
                return
            except (ConnectionFailed, ApiError) as error:
                await self._bear(error)

    def _is_there(self) -> None:
        self._has_heard = True
        if self._trouble is not None:
            self._trouble, self._pause_seconds = None, FIRST_PAUSE_SECONDS
            with self._aside():
                note("the server is back")

    async def _bear(self, error: ConnectionFailed | ApiError) -> None:
        if isinstance(error, CredentialsFailed):
            raise CommandError(str(error), AWAY)
        if isinstance(error, ApiError) and error.code not in PASSING:
            raise error
        if self._trouble is None:
            with self._aside():
                note(f"the server is away, and is waited for: {error}")
        self._trouble = error
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)
