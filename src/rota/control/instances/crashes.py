"""What is said of an instance that keeps ending."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rota.api import Condition
from rota.api.instance import LastExit

LINES_MAX = 10
LINE_LENGTH_MAX = 200


def crashing(last_exit: LastExit, crashes: int, starts_at: float, output: Sequence[str]) -> Condition:
    """The condition Available of an instance that has crashed so often in a row, with the end of its output.

    The next start is told as a time, not as seconds to go: those would have to be written anew all the while.
    """
    when = datetime.fromtimestamp(int(starts_at), UTC).isoformat().replace("+00:00", "Z")
    times = "once" if crashes == 1 else f"{crashes} times in a row"
    message = f"it {ending(last_exit)}, {times}; it is started again at {when}"
    lines = [_cut(line.rstrip()) for line in output if line.strip()][-LINES_MAX:]
    return Condition(type="Available", status="False", reason="InstanceCrashing", message="\n".join([message, *lines]))


def ending(last_exit: LastExit) -> str:
    """How a run ended, as part of a sentence."""
    if last_exit.signal is not None:
        how = f"was ended by signal {last_exit.signal}"
    elif last_exit.code is not None:
        how = f"exited with code {last_exit.code}"
    else:
        how = "ended"
    return f"{how} ({last_exit.reason})" if last_exit.reason else how


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else line[: LINE_LENGTH_MAX - 1] + "…"
