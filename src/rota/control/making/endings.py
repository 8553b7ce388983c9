"""Ends that take their time: each goes on by itself, and is reported when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

AT_ONCE_SECONDS = 0.05
"""Most ends take no time: they are waited for."""


class Endings:
    """Things that are being ended, by a name of each. `close` leaves them to whoever comes next."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def begin(self, name: Hashable, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End a thing, unless that is under way. What comes of it is observed elsewhere."""
        if name not in self._tasks:
            task = self._tasks[name] = asyncio.create_task(end(), name=f"end of {name}")
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def over(
        self, name: Hashable, end: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], None]
    ) -> bool:
        """Report whether a thing has ended; the first call begins its end. `then` is called when it has.

        Raises what its end raised; called again after that, it begins anew.
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
