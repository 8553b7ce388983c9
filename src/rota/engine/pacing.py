"""Rate limits: back-off after errors, a brake for nodes that run over and over, searches, relooks of parked nodes."""

from __future__ import annotations

from rota.engine import chance

BACKOFF_SECONDS_FIRST = 0.1
BACKOFF_SECONDS_MAX = 300.0

CONFLICT_SECONDS_FIRST = 0.01
CONFLICT_SECONDS_MAX = 1.0

SPIN_WINDOW_SECONDS = 10.0
SPIN_RUNS_MAX = 200
"""Bound on the runs of one node in a window. Beyond it the node is slowed down."""
SPIN_PAUSE_SECONDS_FIRST = 0.2
SPIN_PAUSE_SECONDS_MAX = 30.0
SPIN_CALM_SECONDS = 1.0
"""Seconds without a wake after a run, after which a node is calm."""

LOOKS_AT_ONCE_MAX = 20_000
LOOKS_PER_SECOND = 2_000
"""Bounds on the objects visited in searches for cycles in one namespace: a few percent of the time."""

RELOOKS_PER_SECOND_MAX = 200
"""Bound on the relooks of all nodes together."""
JITTER = 0.2
TIERS = ((60.0, 1.0), (300.0, 15.0), (600.0, 60.0))
"""Seconds of waiting, and the pause between relooks up to then."""
SLOWEST_SECONDS = 300.0


class Looks:
    """A budget of visited objects for each namespace: an initial amount, refilled at a constant rate."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """By namespace, the used amount, and the time of that."""

    def are_left(self, namespace: str, now: float) -> bool:
        """Report whether a search may begin. One that has begun may exceed the budget."""
        return self._used_by(namespace, now) < LOOKS_AT_ONCE_MAX

    def take(self, namespace: str, count: int, now: float) -> None:
        used = self._used_by(namespace, now)
        self._used = {one: use for one, use in self._used.items() if self._used_by(one, now)}
        self._used[namespace] = (used + count, now)

    def _used_by(self, namespace: str, now: float) -> float:
        used, at = self._used.get(namespace, (0.0, now))
        return max(0.0, used - (now - at) * LOOKS_PER_SECOND)


class Backoff:
    """Exponential back-off by node, with jitter."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._conflicts: dict[str, int] = {}

    def failed(self, id_: str) -> float:
        """Return the pause after one more failure."""
        count = self._failures.get(id_, 0)
        self._failures[id_] = count + 1
        pause: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** min(count, 20))
        return pause * chance.uniform(0.5, 1.0)

    def conflicted(self, id_: str) -> float:
        """Return the pause after a conflict: 0 for the first one.

        From the second one in a row on, the cache is behind; the next event of the object ends the pause.
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
    """A limit on the runs of each node in a window. A node beyond it pauses before each run, longer each time."""

    def __init__(self) -> None:
        self._runs: dict[str, int] = {}
        """Runs by node in the current window, which all nodes share."""
        self._began = 0.0
        self._slowed: dict[str, _Slowed] = {}

    def pause(self, id_: str, now: float, runs_max: int = SPIN_RUNS_MAX) -> float:
        """Return the seconds to wait before a run; 0 for none. `runs_max` is the bound for one window."""
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
    """A node that pauses before each run, until it has not been woken for a while."""

    __slots__ = ("_pause", "asked_at", "ran_at")

    def __init__(self, now: float) -> None:
        self.ran_at = now
        self.asked_at: float | None = now
        self._pause = SPIN_PAUSE_SECONDS_FIRST

    def is_calm(self, now: float) -> bool:
        """Report whether the node was not woken for `SPIN_CALM_SECONDS` after its last run or after its pause."""
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


def relook_seconds(waited: float) -> float:
    """Return the pause before the next relook of a node that has waited for some time, without jitter."""
    for until, pause in TIERS:
        if waited < until:
            return pause
    return SLOWEST_SECONDS


def jittered(seconds: float) -> float:
    return seconds * chance.uniform(1.0 - JITTER, 1.0 + JITTER)


class Slots:
    """Evenly spaced time slots, each of which is given out once."""

    def __init__(self, per_second: float) -> None:
        self._pause = 1.0 / per_second
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Reserve the next slot. Return its time."""
        slot = max(now, self._next)
        self._next = slot + self._pause
        return slot
