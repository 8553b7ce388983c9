"""An event loop that reports when it is idle, so that time can be advanced then."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

from rota.registry.pacing import never_slice

MOMENT_SECONDS = 0.1
"""Timers of the machine's clock that are due sooner are waited for: they end real work in progress."""


class IdleLoop(asyncio.SelectorEventLoop):
    """An ordinary loop with `run_idle`. Code in it must not wait for files or sockets, or for long."""

    def __init__(self) -> None:
        self._asked = _Selector()
        super().__init__(self._asked)
        never_slice(self)

    def run_idle(self, idle: Callable[[], None]) -> None:
        """Run until `stop`. Whenever nothing is ready, `idle` is called, which must make something ready, or stop."""
        self._asked.idle = idle
        try:
            self.run_forever()
        finally:
            self._asked.idle = None


class _Selector(selectors.SelectSelector):
    """A selector, which a loop asks to wait only when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.idle is None:
            return super().select(timeout)
        if timeout is None or timeout > MOMENT_SECONDS:
            self.idle()
        elif timeout > 0:
            return super().select(timeout)
        return []
