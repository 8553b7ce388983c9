"""Restart policy and crash-loop back-off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from rota.runtime.interface import Run

RESTART_SECONDS_MIN = 10.0
RESTART_SECONDS_MAX = 300.0
STEADY_SECONDS = 600.0
"""A run of this length is no crash: the count of crashes begins anew after it."""
_DOUBLINGS_MAX = 5
"""Beyond these the delay is at its maximum, and powers of two grow large."""
RUNS_REMEMBERED = 16
"""Ended runs of a container that are kept to count its crashes."""

RestartPolicy = Literal["Always", "OnFailure", "Never"]


def restarts(policy: RestartPolicy, *, failed: bool) -> bool:
    """Report whether a restart policy restarts a container after such an end."""
    return policy == "Always" or (policy == "OnFailure" and failed)


def crashes_in_a_row(runs: Iterable[tuple[float, float]]) -> int:
    """Count the short runs since the last long one. Runs are (start, end), the oldest first."""
    crashes = 0
    for started, ended in runs:
        crashes = 0 if ended - started >= STEADY_SECONDS else crashes + 1
    return crashes


def restart_delay(crashes: int, ended: float, now: float) -> float:
    """Return the seconds from now until the next start, after so many crashes in a row. The first has no delay."""
    if crashes <= 1:
        return 0.0
    delay = min(RESTART_SECONDS_MAX, RESTART_SECONDS_MIN * 2.0 ** min(crashes - 2, _DOUBLINGS_MAX))
    # A clock that was set back must not lengthen the delay.
    return max(0.0, min(ended, now) + delay - now)


class RunHistory:
    """The last runs of each container of an instance that have ended."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, tuple[float, float]]] = {}

    def note(self, runs: Mapping[str, Run]) -> None:
        """Add ended runs. A run that is added twice counts once."""
        for name, run in runs.items():
            assert run.exit is not None
            past = self._ended.setdefault(name, {})
            past[run.number] = (run.started, run.exit.time)
            if len(past) > RUNS_REMEMBERED:
                del past[min(past)]

    def crashes(self, container: str) -> int:
        """Count the crashes in a row of a container."""
        return crashes_in_a_row(self._ended.get(container, {}).values())
