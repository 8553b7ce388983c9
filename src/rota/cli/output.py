"""Print text: aligned tables, colour on terminals, and no control characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, TextIO

from rota.cli.typed_commands import as_typed

Part = tuple[str, str]
"""A text and its style."""

GAP = "   "
NOTHING = "-"
GOOD = frozenset(("Ready", "True", "Succeeded", "Running", "Idle", "Active", "Bound", "Normal", "ok"))
BAD = frozenset(("Failed", "False", "Expired", "Degraded", "Warning", "Disabled", "missing"))
UNDECIDED = frozenset(("Pending", "Unknown", "Waiting", "Queued", "Starting", "Stopping", "Scaling", "Terminating"))


def style_of(word: str) -> str:
    """Return the colour of a word for a state."""
    return "green" if word in GOOD else "red" if word in BAD else "yellow" if word in UNDECIDED else ""


@cache
def _console(stream: TextIO) -> Any:
    """Return the console that writes colours to a stream, or None if it gets none."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return None
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_line(*parts: Part | str, stream: TextIO | None = None) -> None:
    """Print one line and flush it."""
    stream = stream or sys.stdout
    styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
    if stream.isatty():
        # Programs get the text as it is; a terminal would obey control characters.
        styled = [(printable(text, keep="\n\t"), style) for text, style in styled]
    console = _console(stream)
    if console is None:
        print("".join(text for text, _ in styled), file=stream, flush=True)
        return
    from rich.text import Text

    console.print(Text.assemble(*styled, no_wrap=True, overflow="ignore"))


def note(message: str) -> None:
    """Print a message beside the result, on standard error."""
    print_line(printable(as_typed(message)), stream=sys.stderr)


def error_line(message: str) -> None:
    """Print an error on standard error, with what to do about it on the lines below."""
    first, *rest = printable(as_typed(message), keep="\n").split("\n")
    print_line(("error: ", "bold red"), first, stream=sys.stderr)
    for more in rest:
        print_line(f"  {more}", stream=sys.stderr)


def printable(text: str, keep: str = "") -> str:
    """Return a text with control characters escaped: anyone may have written it, and a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or f"\\x{ord(char):02x}"


class Columns:
    """Prints rows under a heading. Columns keep their width from one batch of rows to the next, and only grow."""

    def __init__(self, heading: Sequence[str]) -> None:
        self._heading = list(heading)
        self._widths = [len(name) for name in heading]
        self._headed = False

    def fit(self, rows: Sequence[Sequence[Any]]) -> None:
        """Widen the columns for rows that are written later."""
        for row in rows:
            self._widths = [max(width, len(_cell(cell))) for width, cell in zip(self._widths, row, strict=True)]

    def write(self, rows: Sequence[Sequence[Any]], indent: str = "") -> None:
        self.fit(rows)
        texts = [[_cell(cell) for cell in row] for row in rows]
        if not self._headed:
            self._headed = True
            print_line(indent, *self._padded(self._heading, lambda _: "bold"))
        for row in texts:
            print_line(indent, *self._padded(row, style_of))

    def _padded(self, cells: list[str], style: Any) -> list[Part]:
        parts: list[Part] = []
        for i, (cell, width) in enumerate(zip(cells, self._widths, strict=True)):
            last = i == len(cells) - 1
            parts.append((cell, style(cell)))
            if not last:
                parts.append((" " * (width - len(cell)) + GAP, ""))
        return parts


def _cell(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value))
