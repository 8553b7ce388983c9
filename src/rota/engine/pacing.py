"""How fast a node may go: back-off after errors, a brake for what runs again and again, a bound for long searches."""

from __future__ import annotations

from rota.engine import chance

BACKOFF_SECONDS_FIRST = 0.1
BACKOFF_SECONDS_MAX = 300.0

CONFLICT_SECONDS_FIRST = 0.01
CONFLICT_SECONDS_MAX = 1.0

SPIN_WINDOW_SECONDS = 10.0
SPIN_RUNS_MAX = 200
"""Runs of one node in a window; beyond that it is slowed down."""
SPIN_PAUSE_SECONDS_FIRST = 0.2
SPIN_PAUSE_SECONDS_MAX = 30.0
SPIN_CALM_SECONDS = 1.0
"""A node that nobody asked for so long after a run has come to rest."""

LOOKS_AT_ONCE_MAX = 20_000
LOOKS_PER_SECOND = 2_000
"""Objects that are looked at for the circles of one namespace: a few hundredths of the time that there is."""


class Looks:
    """What is looked at for each namespace: so much at once, and then so much in a second."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """By namespace, how much was used up, and when that was so."""

    def are_left(self, namespace: str, now: float) -> bool:
        """Whether anything may be looked at now. A search that has begun goes on to its end."""
        return self._used_by(namespace, now) < LOOKS_AT_ONCE_MAX

    def take(self, namespace: str, count: int, now: float) -> None:
        used = self._used_by(namespace, now)
        self._used = {one: seen for one, seen in self._used.items() if self._used_by(one, now)}
        self._used[namespace] = (used + count, now)

    def _used_by(self, namespace: str, now: float) -> float:
        used, at = self._used.get(namespace, (0.0, now))
        return max(0.0, used - (now - at) * LOOKS_PER_SECOND)


class Backoff:
    """Pauses that double with each failure in a row of a node, with jitter."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._conflicts: dict[str, int] = {}

    def failed(self, id_: str) -> float:
        """The pause after one more failure."""
        count = self._failures.get(id_, 0)
        self._failures[id_] = count + 1
        pause: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** min(count, 20))
        return pause * chance.uniform(0.5, 1.0)

    def conflicted(self, id_: str) -> float:
        """The pause after a write that somebody else was faster with: none at first.

        From the second one in a row on, what is read here is behind what is written; its news ends the pause.
        """
        count = self._conflicts.get(id_, 0)
        self._conflicts[id_] = count + 1
        if not count:
            return 0.0
        pause: float = min(CONFLICT_SECONDS_MAX, CONFLICT_SECONDS_FIRST * 2 ** min(count - 1, 20))
        return pause * chance.uniform(0.5, 1.0)

    def succeeded(self, id_: str) -> None:
        self._failures.pop(id_, None)
        self._conflicts.pop(id_, None)


class Brake:
    """Counts the runs of each node in a window. One that runs too often pauses before each run, longer each time."""

    def __init__(self) -> None:
        self._runs: dict[str, int] = {}
        """Of this window. All nodes have the same one: there may be many."""
        self._began = 0.0
        self._slowed: dict[str, _Slowed] = {}

    def pause(self, id_: str, now: float, runs_max: int = SPIN_RUNS_MAX) -> float:
        """Called before each run: 0, or the seconds that it has to wait first. `runs_max` is what a window may have."""
        slowed = self._slowed.get(id_)
        if slowed is not None:
            if slowed.asked_at is None:
                slowed.asked_at = now
            if not slowed.is_calm(now):
                return slowed.pause_or_run(now)
            del self._slowed[id_]
        if now - self._began >= SPIN_WINDOW_SECONDS:
            self._runs, self._began = {}, now
        count = self._runs.get(id_, 0)
        if count < runs_max:
            self._runs[id_] = count + 1
            return 0.0
        del self._runs[id_]
        self._slowed[id_] = _Slowed(now)
        return SPIN_PAUSE_SECONDS_FIRST

    def is_slowed(self, id_: str) -> bool:
        return id_ in self._slowed

    def forget(self, id_: str) -> None:
        self._runs.pop(id_, None)
        self._slowed.pop(id_, None)


class _Slowed:
    """A node that is slowed down. It is so until it is not asked for at once after a run."""

    __slots__ = ("_pause", "asked_at", "ran_at")

    def __init__(self, now: float) -> None:
        self.ran_at = now
        self.asked_at: float | None = now
        self._pause = SPIN_PAUSE_SECONDS_FIRST

    def is_calm(self, now: float) -> bool:
        """Whether nobody asked for it for a while after its last run, or after it was allowed to run."""
        assert self.asked_at is not None
        allowed_at = self.ran_at + self._pause
        return self.asked_at - self.ran_at >= SPIN_CALM_SECONDS or now - allowed_at >= SPIN_CALM_SECONDS

    def pause_or_run(self, now: float) -> float:
        left = self.ran_at + self._pause - now
        if left > 0:
            return left
        self.ran_at, self.asked_at = now, None
        self._pause = min(SPIN_PAUSE_SECONDS_MAX, self._pause * 2)
        return 0.0
