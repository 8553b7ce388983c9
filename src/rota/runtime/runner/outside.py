"""What runs in a box, as the host sees it: nobody in the box has a say in that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path

from rota.runtime.keeper.kernel import is_alive, start_time_of
from rota.runtime.runner.agent import FIRST, children, is_running

DEPTH_MAX = 8
"""How far below what was started an agent is."""


class Outside:
    """The processes of one box. They have numbers of their own in there, and others here."""

    def __init__(self, top: int, agent: int) -> None:
        """What was started, and the number that its agent has for itself."""
        path = _find(top, agent)
        self._agent = path[-1] if path else None
        self._began = start_time_of(self._agent) if self._agent is not None else None
        # An orphan that does not descend from the agent comes to the first process of its namespace.
        self._above = [(pid, below) for pid, below in pairwise(path) if len(_numbers(pid)) == len(_numbers(path[-1]))]
        self._known: dict[int, int] = {}
        self._number = agent
        self._proc: int | None = None
        """The processes of its namespace, as the box numbers them."""
        self.is_apart = self._agent is not None and len(_numbers(self._agent)) > len(_numbers(os.getpid()))
        """Whether it is in a namespace of its own."""
        if self.is_apart:
            # Where it cannot be had, nothing is certain, and the box is replaced after each task.
            with contextlib.suppress(OSError):
                self._proc = os.open(f"/proc/{self._agent}/root/proc", os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        if self._proc is not None:
            os.close(self._proc)
            self._proc = None

    def is_clear(self, kept: Iterable[int]) -> bool:
        """Whether nothing runs but the agent and some processes, as the box numbers them. False: it is not certain.

        Orphans come to the agent. Those that are kept are looked at first: what leaves them is with the agent then.
        """
        if self._agent is None or self._began is None:
            return False
        found = {self._here(number) for number in kept}
        if None in found or any(is_running(below) for pid in found if pid is not None for below in children(pid)):
            return False
        if any(is_running(other) for pid, below in self._above for other in children(pid) if other != below):
            return False
        return set(children(self._agent)) <= found and is_alive(self._agent, self._began)

    def is_alone(self, kept: Collection[int]) -> bool:
        """Whether nothing has come into its namespace from outside, but some processes. True where it has none."""
        if self._proc is None:
            return not self.is_apart
        but, proc = {FIRST, self._number, *kept}, f"/proc/self/fd/{self._proc}"
        try:
            numbers = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return False
        return not any(is_running(number, proc) for number in numbers if number not in but)

    def _here(self, number: int) -> int | None:
        if number not in self._known:
            assert self._agent is not None
            pids = children(self._agent)
            self._known = {numbers[-1]: pid for pid in pids if (numbers := _numbers(pid))}
        return self._known.get(number)


def _find(top: int, number: int) -> list[int]:
    """Return the way from a process down to the one that has this number for itself; empty: there is none."""
    ways = [[top]]
    for _ in range(DEPTH_MAX):
        for way in ways:
            if _numbers(way[-1])[-1:] == [number]:
                return way
        ways = [[*way, below] for way in ways for below in children(way[-1])]
    return []


def _numbers(pid: int) -> list[int]:
    """Return the numbers that a process has in its namespaces, that in the innermost last; empty: it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []
