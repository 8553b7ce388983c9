"""Which functions may have a worker only so that their newest version is loaded once. Pure: the time is told.

- At most `AT_ONCE_MAX` at a time; the others wait, first come, first served.
- A worker that has done it stays for a while, for the calls that may follow, or to try again if it failed. It makes
  room at once when another function waits.
- One that takes longer than `LOADING_SECONDS_MAX` goes on, and keeps nobody waiting any longer.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.client import Key

AT_ONCE_MAX = 4
LOADING_SECONDS_MAX = 120.0


class Loads:
    """The functions of a server that are being loaded, or wait for that."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        """`wake` is called for a function that may begin, or whose worker has to make room."""
        self._wake = wake
        self._began: dict[Key, float] = {}
        """When each that is being loaded was begun, in that order."""
        self._stays_until: dict[Key, float] = {}
        """Of those that are over: until when their workers may stay."""
        self._waiting: dict[Key, None] = {}

    def begin(self, key: Key, now: float) -> bool:
        """Ask to load a function; whether it may be done now. Asked again, nothing changes."""
        if key in self._began:
            return True
        if self._stays_until.pop(key, None) is not None:
            self._began[key] = now
            return True
        self._waiting[key] = None
        self._admit(now)
        return key in self._began

    def end(self, key: Key, now: float, stays_seconds: float) -> None:
        """A function is loaded, or cannot be. Its worker may stay for a while."""
        self._waiting.pop(key, None)
        if self._began.pop(key, None) is not None:
            self._stays_until[key] = now + stays_seconds
            self._admit(now)

    def left(self, key: Key, now: float) -> float:
        """For how many seconds a worker that is no longer needed may stay."""
        return max(0.0, self._stays_until.get(key, now) - now)

    def is_over(self, key: Key, now: float) -> bool:
        """Whether a worker that is no longer needed has to go, or has gone."""
        return self._stays_until.get(key, now + 1.0) <= now

    def leave(self, key: Key, now: float) -> None:
        """A function has no worker any more that is there only for this, or is gone."""
        self._waiting.pop(key, None)
        self._began.pop(key, None)
        self._stays_until.pop(key, None)
        self._admit(now)

    def wait_seconds(self, key: Key, now: float) -> float | None:
        """When to ask again, for one that waits and may not be woken; None: it does not wait."""
        if key not in self._waiting:
            return None
        return max(0.0, min(self._began.values(), default=now) + LOADING_SECONDS_MAX - now)

    def _admit(self, now: float) -> None:
        while self._waiting and self._room(now) > 0:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._began[key] = now
            self._wake(key)
        # Those that are asked to make room have it until they have left.
        asked = sum(until <= now for until in self._stays_until.values())
        staying = sorted((until, key) for key, until in self._stays_until.items() if until > now)
        for _, key in staying[: max(0, len(self._waiting) - asked)]:
            self._stays_until[key] = now
            self._wake(key)

    def _room(self, now: float) -> int:
        busy = sum(now - began < LOADING_SECONDS_MAX for began in self._began.values())
        return AT_ONCE_MAX - busy - len(self._stays_until)
