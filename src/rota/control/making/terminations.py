"""Terminations of instances, which go on in the background and are reported when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

AT_ONCE_SECONDS = 0.05
"""Time for which a caller waits for a termination, so that it need not ask again."""


class Terminations:
    """Terminations under way, by name. After `close`, the next maker finds what is still alive."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def begin(self, name: Hashable, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin a termination, unless it is under way. Its result is observed elsewhere."""
        if name not in self._tasks:
            task = self._tasks[name] = asyncio.create_task(end(), name=f"end of {name}")
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def over(
        self, name: Hashable, end: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], None]
    ) -> bool:
        """Report whether a termination is over; the first call begins it. Calls `then` if it ends after that call.

        Raises what the termination raised. The next call begins it anew.
        """
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.create_task(end(), name=f"end of {name}")
            await asyncio.wait((task,), timeout=AT_ONCE_SECONDS)
            if not task.done():
                task.add_done_callback(lambda _: then())
        if not task.done():
            return False
        del self._tasks[name]
        task.result()
        return True

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
