"""The request to end a job early: its reason, and its deadline."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Literal

GRACE_SECONDS = 5.0
"""Seconds from SIGTERM to SIGKILL when the time of a job is up."""

Why = Literal["Timeout", "Cancelled", "WorkerLost"]


class Stop:
    """The requests to end one job, from before it starts until its end is known."""

    def __init__(self) -> None:
        self.why: Why | None = None
        """The reason of the first request, or None if there was no request yet."""
        self._loop = asyncio.get_running_loop()
        self._end_at = math.inf
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def after(self, seconds: float) -> None:
        """Request the end of the job, as Timeout, after so many seconds."""
        self._timer = self._loop.call_later(seconds, self.ask, "Timeout", GRACE_SECONDS)

    def ask(self, why: Why, grace_seconds: float) -> None:
        """Request the end of the job, by force after the grace. A later request can only shorten the grace."""
        if self._is_over:
            return
        self.why = self.why or why
        self._end_at = min(self._end_at, self._loop.time() + grace_seconds)
        self._wake()

    def _wake(self, *_: object) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def wait(self, ended: asyncio.Future[Any]) -> bool:
        """Wait until `ended` is done or another request comes. Returns False once the grace of a request is over."""
        seconds = None if self.why is None else self._end_at - self._loop.time()
        if seconds is not None and seconds <= 0:
            return False
        self._news = self._loop.create_future()
        ended.add_done_callback(self._wake)
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._news
        finally:
            ended.remove_done_callback(self._wake)
            if timer is not None:
                timer.cancel()
        return True

    def over(self) -> None:
        """Ignore requests from now on."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
