"""Work that is finished once it has begun, also if its caller is gone, so that its result is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _nothing() -> None:
    """It goes on as it would have."""


async def finished(doing: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = _nothing) -> T:
    """Await something to its end. Whoever is cancelled meanwhile is told so afterwards.

    `on_cancel` is called at once then: what takes long may end sooner.
    """
    task = asyncio.ensure_future(doing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Nobody is there to be told.
        raise
