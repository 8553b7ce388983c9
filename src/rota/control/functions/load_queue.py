"""The queue of functions that get a worker only to load their newest version once. Pure: the time is an argument.

- At most `AT_ONCE_MAX` are loaded at a time; the others wait, first come, first served.
- A worker stays for a while after that, for the calls that may follow, or to try again if it failed. It makes room at
  once when another function waits.
- A load that takes longer than `LOADING_SECONDS_MAX` goes on, and no longer counts against the limit.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.client import Key

AT_ONCE_MAX = 4
LOADING_SECONDS_MAX = 120.0


class LoadQueue:
    """The functions of a server that are being loaded, or wait for it."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        """`wake` is called for a function that may begin, or whose worker has to make room."""
        self._wake = wake
        self._began: dict[Key, float] = {}
        """The time at which each load began, the oldest first."""
        self._stays_until: dict[Key, float] = {}
        """The time until which the worker of an ended load may stay."""
        self._waiting: dict[Key, None] = {}

    def begin(self, key: Key, now: float) -> bool:
        """Ask to load a function. Returns whether it may begin now. Asking again changes nothing."""
        if key in self._began:
            return True
        if self._stays_until.pop(key, None) is not None:
            self._began[key] = now
            return True
        self._waiting[key] = None
        self._admit(now)
        return key in self._began

    def end(self, key: Key, now: float, stays_seconds: float) -> None:
        """End a load, successful or not. The worker may stay for a while."""
        self._waiting.pop(key, None)
        if self._began.pop(key, None) is not None:
            self._stays_until[key] = now + stays_seconds
            self._admit(now)

    def left(self, key: Key, now: float) -> float:
        """Return the seconds for which the worker of an ended load may stay."""
        return max(0.0, self._stays_until.get(key, now) - now)

    def is_over(self, key: Key, now: float) -> bool:
        """Report whether the time of a worker after its load is over, so that it has to go."""
        return self._stays_until.get(key, now + 1.0) <= now

    def leave(self, key: Key, now: float) -> None:
        """Remove a function that is deleted, or whose worker was there only to load it and is gone."""
        self._waiting.pop(key, None)
        self._began.pop(key, None)
        self._stays_until.pop(key, None)
        self._admit(now)

    def wait_seconds(self, key: Key, now: float) -> float | None:
        """Return the seconds after which to ask again, also without a wake-up; None: the function does not wait."""
        if key not in self._waiting:
            return None
        return max(0.0, min(self._began.values(), default=now) + LOADING_SECONDS_MAX - now)

    def _admit(self, now: float) -> None:
        while self._waiting and self._room(now) > 0:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._began[key] = now
            self._wake(key)
        # A worker that was asked to make room takes it until it is gone.
        leaving = sum(until <= now for until in self._stays_until.values())
        staying = sorted((until, key) for key, until in self._stays_until.items() if until > now)
        for _, key in staying[: max(0, len(self._waiting) - leaving)]:
            self._stays_until[key] = now
            self._wake(key)

    def _room(self, now: float) -> int:
        busy = sum(now - began < LOADING_SECONDS_MAX for began in self._began.values())
        return AT_ONCE_MAX - busy - len(self._stays_until)
