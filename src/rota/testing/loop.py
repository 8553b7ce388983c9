"""An event loop that says when nothing is left to do, so that time need not pass by itself."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

MOMENT_SECONDS = 0.1
"""What is due so soon on the machine's clock is waited for: it is the end of something that goes on."""


class IdleLoop(asyncio.SelectorEventLoop):
    """Runs as any other, but for `run_idle`: what runs there must not wait for files, sockets, or long."""

    def __init__(self) -> None:
        self._asked = _Selector()
        super().__init__(self._asked)

    def run_idle(self, idle: Callable[[], None]) -> None:
        """Run until `stop`. Whenever nothing is ready to run, `idle` is called, which makes something so, or stops."""
        self._asked.idle = idle
        try:
            self.run_forever()
        finally:
            self._asked.idle = None


class _Selector(selectors.SelectSelector):
    """A loop asks it to wait when nothing is ready, and to look without waiting when something is."""

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
