"""Why and when a job is made to end before its time."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Literal

GRACE_SECONDS = 5.0
"""Between the request to end and the end, when the time is up."""

Why = Literal["Timeout", "Cancelled", "WorkerLost"]


class Stop:
    """Of one job, from before it starts until its end is known."""

    def __init__(self) -> None:
        self.why: Why | None = None
        """The first request counts."""
        self._loop = asyncio.get_running_loop()
        self._end_at = math.inf
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def after(self, seconds: float) -> None:
        """Its time is up after so long."""
        self._timer = self._loop.call_later(seconds, self.ask, "Timeout", GRACE_SECONDS)

    def ask(self, why: Why, grace_seconds: float) -> None:
        """It is to end now, and is made to after the grace; never later than was said before."""
        if self._is_over:
            return
        self.why = self.why or why
        self._end_at = min(self._end_at, self._loop.time() + grace_seconds)
        self._wake()

    def _wake(self, *_: object) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def wait(self, ended: asyncio.Future[Any]) -> bool:
        """Until it has ended or is asked to; once it is, until it has ended or has no time left, which is false."""
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
        """Requests come too late now."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
