"""When what has ended is started again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from rota.runtime.interface import Run

RESTART_SECONDS_MIN = 10.0
RESTART_SECONDS_MAX = 300.0
STEADY_SECONDS = 600.0
"""A run of this length was no crash: what comes after it starts afresh."""
_DOUBLINGS_MAX = 5
"""Beyond these the delay is the longest anyway, and powers of two grow large."""
RUNS_REMEMBERED = 16
"""Runs of a container that count for the pause before the next one."""

RestartPolicy = Literal["Always", "OnFailure", "Never"]


def restarts(policy: RestartPolicy, *, failed: bool) -> bool:
    """Whether a runtime starts again what ended this way."""
    return policy == "Always" or (policy == "OnFailure" and failed)


def crashes_in_a_row(runs: Iterable[tuple[float, float]]) -> int:
    """How many of the last runs, each from its start to its end, were short. They come in order, the oldest first.

    The number of all restarts does not tell: after a long run the count begins again.
    """
    crashes = 0
    for started, ended in runs:
        crashes = 0 if ended - started >= STEADY_SECONDS else crashes + 1
    return crashes


def restart_delay(crashes: int, ended: float, now: float) -> float:
    """Seconds from now until the next start, after so many crashes in a row.

    The first is answered at once: most things die of something that does not happen again.
    """
    if crashes <= 1:
        return 0.0
    delay = min(RESTART_SECONDS_MAX, RESTART_SECONDS_MIN * 2.0 ** min(crashes - 2, _DOUBLINGS_MAX))
    # A clock that was set back must not make the wait longer than it is.
    return max(0.0, min(ended, now) + delay - now)


class RunHistory:
    """The last runs of each container of an instance that have ended."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, tuple[float, float]]] = {}

    def note(self, runs: Mapping[str, Run]) -> None:
        """Remember runs that have ended. Noted again, they count once."""
        for name, run in runs.items():
            assert run.exit is not None
            past = self._ended.setdefault(name, {})
            past[run.number] = (run.started, run.exit.time)
            if len(past) > RUNS_REMEMBERED:
                del past[min(past)]

    def crashes(self, container: str) -> int:
        """Count the last runs of a container in a row that were short."""
        return crashes_in_a_row(self._ended.get(container, {}).values())
