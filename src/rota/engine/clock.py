"""Clocks: the real one, and a virtual one that jumps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from types import TracebackType
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """A source of time and timers."""

    @property
    def can_be_set(self) -> bool:
        """True if `time` may jump independently of `now`, because the machine's clock is set."""
        ...

    def now(self) -> float:
        """Return monotonic seconds, from an arbitrary start."""
        ...

    def time(self) -> float:
        """Return the seconds since 1970."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` when `now` reaches `when`."""
        ...


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The monotonic clock, with the time of a suspended machine if possible: its leases expire meanwhile."""


class RealClock:
    """The time of the machine. Timers run on the current event loop."""

    can_be_set = True

    def now(self) -> float:
        return time.clock_gettime(_UPTIME)

    def time(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        # A loop's own clock may have another start.
        return asyncio.get_running_loop().call_later(max(0.0, when - self.now()), callback)


def after(clock: Clock, seconds: float) -> asyncio.Future[None]:
    """Return a future that is done after some seconds."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not done.done():
            done.set_result(None)

    timer = clock.call_at(clock.now() + seconds, end)
    done.add_done_callback(lambda _: timer.cancel())
    return done


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait for some seconds."""
    await after(clock, seconds)


class Limit:
    """`asyncio.timeout` by a clock: its body ends with a TimeoutError after some seconds."""

    __slots__ = ("_clock", "_seconds", "_timeout", "_timer")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        """`seconds`: None for no limit."""
        self._clock = clock
        self._seconds = seconds
        self._timer: Timer | None = None
        self._timeout = asyncio.timeout(None)

    def expired(self) -> bool:
        return self._timeout.expired()

    def _expire(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Limit:
        await self._timeout.__aenter__()
        if self._seconds is not None:
            self._timer = self._clock.call_at(self._clock.now() + self._seconds, self._expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, at)


class VirtualTimer:
    """A scheduled call of a virtual clock."""

    __slots__ = ("_clock", "callback")

    def __init__(self, callback: Callable[[], None], clock: VirtualClock | None = None) -> None:
        """`clock.cancelled` is called when this is cancelled."""
        self.callback: Callable[[], None] | None = callback
        self._clock = clock

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            if self._clock is not None:
                self._clock.cancelled()


class VirtualClock:
    """A clock that stands still until it is advanced."""

    can_be_set = False

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._now = 0.0
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._made = 0
        self._cancelled = 0
        """Number of cancelled timers in the heap."""

    def now(self) -> float:
        return self._now

    def time(self) -> float:
        return self._start + self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback, self)
        self._made += 1
        heappush(self._timers, (when, self._made, timer))
        return timer

    def cancelled(self) -> None:
        """Note a cancelled timer. When half of the heap is cancelled, those are removed."""
        self._cancelled += 1
        if 2 * self._cancelled >= len(self._timers):
            self._timers = [one for one in self._timers if one[2].callback is not None]
            heapify(self._timers)
            self._cancelled = 0

    def next_due(self) -> float | None:
        """Return the time of the first scheduled call; None if there is none."""
        while self._timers and self._timers[0][2].callback is None:
            self._pop()
        return self._timers[0][0] if self._timers else None

    def _pop(self) -> tuple[float, Callable[[], None] | None]:
        """Remove the first timer from the heap. Return its time and its callback."""
        when, _, timer = heappop(self._timers)
        callback, timer.callback = timer.callback, None
        if callback is None:
            self._cancelled -= 1
        return when, callback

    def advance(self, seconds: float) -> None:
        """Advance time. Calls that come due are made at their time, in order."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, callback = self._pop()
            self._now = max(self._now, when)
            if callback is not None:
                callback()
        self._now = until

    def advance_once(self, until: float) -> bool:
        """Advance time until the first call that is due by `until`, and make only that one.

        Returns whether there was one; if not, the time is `until`. So each of several calls at one instant can have its
        effects before the next one, as on a machine.
        """
        due = self.next_due()
        if due is None or due > until:
            self._now = max(self._now, until)
            return False
        when, callback = self._pop()
        self._now = max(self._now, when)
        assert callback is not None
        callback()
        return True

    def advance_to(self, when: float) -> None:
        """Advance time to an instant."""
        self.advance(max(0.0, when - self._now))
