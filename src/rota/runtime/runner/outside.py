"""What runs in a box, as the host sees it: nobody in the box has a say in that."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rota.runtime.keeper.kernel import is_alive, start_time_of
from rota.runtime.runner.agent import LISTS_CHILDREN, children

DEPTH_MAX = 8
"""How far below what was started an agent is."""


class Outside:
    """The processes of one box. They have numbers of their own in there, and others here."""

    def __init__(self, top: int, agent: int) -> None:
        """What was started, and the number that its agent has for itself."""
        self._agent = _find(top, agent) if LISTS_CHILDREN else None
        self._began = start_time_of(self._agent) if self._agent is not None else None
        self._known: dict[int, int] = {}

    def is_clear(self, kept: Iterable[int]) -> bool:
        """Whether nothing runs but the agent and some processes, as the box numbers them. False: it is not certain.

        Orphans come to the agent. Those that are kept are looked at first: what leaves them is with the agent then.
        """
        if self._agent is None or self._began is None:
            return False
        found = {self._here(number) for number in kept}
        if None in found or any(pid is not None and children(pid) for pid in found):
            return False
        return set(children(self._agent)) <= found and is_alive(self._agent, self._began)

    def _here(self, number: int) -> int | None:
        if number not in self._known:
            assert self._agent is not None
            pids = children(self._agent)
            self._known = {inside: pid for pid in pids if (inside := _inside(pid)) is not None}
        return self._known.get(number)


def _find(top: int, number: int) -> int | None:
    at = [top]
    for _ in range(DEPTH_MAX):
        for pid in at:
            if _inside(pid) == number:
                return pid
        at = [below for pid in at for below in children(pid)]
    return None


def _inside(pid: int) -> int | None:
    """The number that a process has in the innermost of its namespaces."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None
