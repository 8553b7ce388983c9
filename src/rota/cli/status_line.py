"""A line at the bottom of a terminal that shows progress. It gives way to other output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rota.cli.output import Part, printable

DRAW_SECONDS = 0.1
ERASE = "\r\x1b[2K"


class StatusLine:
    """Draws on standard error within its `async with`, and only on a terminal."""

    def __init__(self, content: Callable[[], Sequence[Part]]) -> None:
        self._content = content
        self._stream = sys.stderr
        self.is_live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._console: Any = None
        self._drawn = ""
        self._drawing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StatusLine:
        if self.is_live:
            from rich.console import Console

            self._console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._drawing = asyncio.create_task(self._draw_again_and_again(), name="status line")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
            self._drawing = None
        self._erase()

    @contextlib.contextmanager
    def cleared(self) -> Iterator[None]:
        """Clear the line while whole lines are written to either output."""
        self._erase()
        yield
        if self._drawing is not None:
            self._draw()

    async def _draw_again_and_again(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(DRAW_SECONDS)

    def _draw(self) -> None:
        from rich.text import Text

        parts = [(printable(each), style) for each, style in self._content()]
        if os.environ.get("NO_COLOR"):
            parts = [(each, "") for each, _ in parts]
        text = Text.assemble(*parts, no_wrap=True)
        # A line that reaches the margin may be wrapped, and then cannot be erased.
        text.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        with self._console.capture() as captured:
            self._console.print(text, end="")
        if captured.get() != self._drawn:
            self._write(ERASE + captured.get())
            self._drawn = captured.get()

    def _erase(self) -> None:
        if self._drawn:
            self._write(ERASE)
            self._drawn = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
