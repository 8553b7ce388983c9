"""Wait for a server that is away, so that commands survive its restart."""

from __future__ import annotations

import asyncio
import math
import time
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
"""The exit code when the server is not back in time and the state of the objects is unknown."""
AWAY_SECONDS_MAX = 60.0
"""Time that a server may be away from a command that follows something without end: the time of a slow start."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0
PASSING = frozenset((429, 502, 503, 504))
"""Status codes that pass: of a server that is overloaded or starting, or of a proxy before one that is away."""


class Patience:
    """Retries requests while the server does not answer."""

    def __init__(
        self,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        seconds_max: float = math.inf,
        who: str = "the server",
    ) -> None:
        """`aside` is entered around messages about the server. `seconds_max` bounds the time that it is away."""
        self._aside = aside
        self._seconds_max = seconds_max
        self._who = who
        self._away_since = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._trouble: Exception | None = None
        self._has_answered = False

    @property
    def has_answered(self) -> bool:
        """True once the server has answered."""
        return self._has_answered

    @property
    def doubt(self) -> str:
        """The reason why the state of the objects is unknown; empty if it is known."""
        if self._trouble is not None:
            return str(self._trouble)
        return "" if self._has_answered else "the server did not answer in time"

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                answer = await question()
            except (ConnectionFailed, ApiError) as error:
                await self.bear(error)
            else:
                self.is_there()
                return answer

    async def follow(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield from a stream, which begins again after the server was away."""
        while True:
            try:
                async with aclosing(begin()) as coming:
                    async for one in coming:
                        self.is_there()
                        yield one
                return
            except (ConnectionFailed, ApiError) as error:
                await self.bear(error)

    def is_there(self) -> None:
        """Record that the server has answered."""
        self._has_answered = True
        if self._trouble is not None:
            self._trouble, self._pause_seconds = None, FIRST_PAUSE_SECONDS
            with self._aside():
                note(f"{self._who} is back")

    async def bear(self, error: ConnectionFailed | ApiError) -> None:
        """Wait before the next attempt. Raises errors that will not pass, and CommandError when the server was away too
        long."""
        if isinstance(error, CredentialsFailed):
            raise CommandError(str(error), AWAY)
        if isinstance(error, ApiError) and error.code not in PASSING:
            raise error
        if self._trouble is None:
            self._away_since = time.monotonic()
            with self._aside():
                note(f"{self._who} is away, and is waited for: {error}")
        elif time.monotonic() - self._away_since > self._seconds_max:
            raise CommandError(str(error), AWAY)
        self._trouble = error
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)
