"""Work that is finished once it has begun, even if its caller is cancelled, so that its result is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _nothing() -> None:
    """Do nothing."""


async def finished(doing: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = _nothing) -> T:
    """Await work to its end, and then raise a cancellation of the caller.

    `on_cancel` is called at the cancellation, so that long work can end sooner.
    """
    task = asyncio.ensure_future(doing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Mark it as retrieved: nobody receives it.
        raise
