"""When what has ended is started again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

RESTART_SECONDS_MIN = 10.0
RESTART_SECONDS_MAX = 300.0
STEADY_SECONDS = 600.0
"""A run of this length was no crash: what comes after it starts afresh."""
_DOUBLINGS_MAX = 5
"""Beyond these the delay is the longest anyway, and powers of two grow large."""

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
