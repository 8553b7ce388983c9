"""Wait a server out that is away: a restart of it is nothing that whoever waits for objects should notice."""

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
"""The exit code when the server did not come back in time. Of the objects nothing is known then."""
AWAY_SECONDS_MAX = 60.0
"""How long a server may be away from who follows something without end: as long as one takes that is started anew."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0
PASSING = frozenset((429, 502, 503, 504))
"""Answers of a server that is coming, or of what stands before one that is away."""


class Patience:
    """With a server that does not answer, as long as whoever uses this goes on."""

    def __init__(
        self,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        seconds_max: float = math.inf,
        who: str = "the server",
    ) -> None:
        """`aside` is where it may be written that the server is away; after so many seconds it is given up."""
        self._aside = aside
        self._seconds_max = seconds_max
        self._who = who
        self._away_since = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._trouble: Exception | None = None
        self._has_heard = False

    @property
    def has_heard(self) -> bool:
        """Whether the server has answered at all."""
        return self._has_heard

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
                await self.bear(error)
            else:
                self.is_there()
                return answer

    async def follow(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """What comes, begun anew whenever the server was away."""
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
        """The server has answered."""
        self._has_heard = True
        if self._trouble is not None:
            self._trouble, self._pause_seconds = None, FIRST_PAUSE_SECONDS
            with self._aside():
                note(f"{self._who} is back")

    async def bear(self, error: ConnectionFailed | ApiError) -> None:
        """Wait until it is worth another try. Raises what will not pass, and CommandError when it took too long."""
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
