"""Wait until something is so, of what no news can be had: by looking again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

PATIENCE_SECONDS = 60.0
"""The most that a loaded machine needs for a moment's work of an idle one."""
POLL_SECONDS = 0.02


def until(
    what: Callable[[], Any],
    otherwise: str | Callable[[], object] = "",
    *,
    seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Any:
    """Return the first true value of `what`. If none comes in time, fail with `otherwise`: what is there instead."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() >= deadline:
            raise AssertionError(_message(seconds, otherwise() if callable(otherwise) else otherwise))
        time.sleep(poll_seconds)
    return found


async def until_async(
    what: Callable[[], Any],
    otherwise: str | Callable[[], object] = "",
    *,
    seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Any:
    """Do the same in an event loop. Both functions may be coroutine functions. What takes longer is cancelled."""
    try:
        async with asyncio.timeout(seconds) as patience:
            while not (found := await _value(what)):
                await asyncio.sleep(poll_seconds)
            return found
    except TimeoutError:
        if not patience.expired():
            raise
    raise AssertionError(_message(seconds, await _value(otherwise) if callable(otherwise) else otherwise))


async def until_so(
    look: Callable[[], Any],
    so: Callable[[Any], Any],
    what: str,
    *,
    seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Any:
    """Return the first thing that `look` finds which is `so`. If none comes in time, fail with `what` and the last."""
    last: Any = None

    async def is_so() -> bool:
        nonlocal last
        last = await _value(look)
        return bool(so(last))

    await until_async(is_so, lambda: f"{what}: {last!r}", seconds=seconds, poll_seconds=poll_seconds)
    return last


async def _value(what: Callable[[], Any]) -> Any:
    found = what()
    return await found if isawaitable(found) else found


def _message(seconds: float, there: object) -> str:
    return f"not so after {seconds:g} s: {there}" if there else f"not so after {seconds:g} s"
