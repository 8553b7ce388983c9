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
"""Time that a server may be away during a command that follows something without end. A slow start takes this long."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0
PASSING = frozenset((429, 502, 503, 504))
"""Status codes of temporary failures: the server is overloaded or starting, or a proxy cannot reach it."""


class Patience:
    """Retries requests while the server does not answer."""

    def __init__(
        self,
        around_output: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        seconds_max: float = math.inf,
        who: str = "the server",
    ) -> None:
        """`around_output` is entered around messages. `seconds_max` bounds the time that the server is away."""
        self._around_output = around_output
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
        """Send a request until there is an answer."""
        while True:
            try:
                answer = await question()
            except (ConnectionFailed, ApiError) as error:
                await self.wait_to_retry(error)
            else:
                self.record_answer()
                return answer

    async def follow(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield from a stream, which begins again after the server was away."""
        while True:
            try:
                async with aclosing(begin()) as coming:
                    async for one in coming:
                        self.record_answer()
                        yield one
                return
            except (ConnectionFailed, ApiError) as error:
                await self.wait_to_retry(error)

    def record_answer(self) -> None:
        """Record that the server has answered."""
        self._has_answered = True
        if self._trouble is not None:
            self._trouble, self._pause_seconds = None, FIRST_PAUSE_SECONDS
            with self._around_output():
                note(f"{self._who} is back")

    async def wait_to_retry(self, error: ConnectionFailed | ApiError) -> None:
        """Wait before the next attempt.

        Raises permanent errors, and CommandError when the server was away too long.
        """
        if isinstance(error, CredentialsFailed):
            raise CommandError(str(error), AWAY)
        if isinstance(error, ApiError) and error.code not in PASSING:
            raise error
        if self._trouble is None:
            self._away_since = time.monotonic()
            with self._around_output():
                note(f"{self._who} is away, and is waited for: {error}")
        elif time.monotonic() - self._away_since > self._seconds_max:
            raise CommandError(str(error), AWAY)
        self._trouble = error
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)
