"""What is not packed: what never belongs to code, and what `.rotaignore` names, as `.gitignore` would.

A line is a pattern. Empty lines and those that begin with `#` say nothing. `!` takes what an earlier line left out in
again, but not from a folder that is left out as a whole. With a `/` at its end a pattern is for folders only; with one
elsewhere it begins at the top, without one it is for every level. `*` and `?` stand for anything but a `/`, `[…]` for
one character, `**` for any number of folders. The last line that fits decides. The project's own file, beside
`rota.yaml`, holds for all that is below it; one in the folder that is packed comes after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

IGNORE_FILE = ".rotaignore"
IGNORE_BYTES_MAX = 64 * 1024
LINES_MAX = 1_000
ALWAYS = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[co]",
    ".venv/",
    "venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    "*.egg-info/",
    ".DS_Store",
    ".env",
    ".env.*",
    "/rota.yaml",
    "/rota.schema.json",
    f"/{IGNORE_FILE}",
)
"""Left out unless the file takes it in again. The project file is among it: who changes a schedule changes no code."""


class _Pattern(NamedTuple):
    fits: re.Pattern[str]
    folders_only: bool
    takes_in: bool


class Excludes:
    """The patterns of one folder. `above` are those of the project, in which it is at `place`."""

    def __init__(self, lines: Iterable[str], above: Iterable[str] = (), place: str = "") -> None:
        written = [("", ALWAYS), (place, above), ("", lines)]
        self._patterns = [
            (pattern, at) for at, some in written for line in some if (pattern := _parsed(line)) is not None
        ]

    @classmethod
    def read(cls, top: Path, project: Path | None = None) -> Excludes:
        """Those that always hold, those of the project's file, and those of the folder's own."""
        place = top.resolve().relative_to((project or top).resolve()).as_posix()
        return cls(_lines(top)) if project is None or place == "." else cls(_lines(top), _lines(project), f"{place}/")

    def leaves_out(self, name: str, *, is_folder: bool) -> bool:
        """Whether this is not packed. `name` is relative to the top, with slashes."""
        out = False
        for (fits, folders_only, takes_in), place in self._patterns:
            if (is_folder or not folders_only) and fits.fullmatch(place + name):
                out = not takes_in
        return out


def _lines(folder: Path) -> list[str]:
    try:
        with (folder / IGNORE_FILE).open("rb") as file:
            text = file.read(IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[:LINES_MAX]


def _parsed(line: str) -> _Pattern | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    takes_in = text.startswith("!")
    text = text[1:] if takes_in else text.removeprefix("\\")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    above = "" if anchored else "(?:.*/)?"
    try:
        fits = re.compile(above + _expression(text))
    except re.error:
        # Such as [z-a]: it can only mean itself.
        fits = re.compile(above + re.escape(text))
    return _Pattern(fits, folders_only, takes_in)


def _expression(text: str) -> str:
    """A pattern as a regular expression."""
    out, i = "", 0
    while i < len(text):
        if text.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif text.startswith("/**", i) and i + 3 == len(text):
            out, i = out + "/.+", i + 3
        elif text[i] == "*":
            out, i = out + "[^/]*", i + 1
            while i < len(text) and text[i] == "*":
                i += 1
        elif text[i] == "?":
            out, i = out + "[^/]", i + 1
        elif text[i] == "[" and (end := text.find("]", i + 2)) > 0:
            inside = text[i + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("&&", r"&\&")
            inside = f"^/{inside[1:]}" if inside[0] in "!^" else inside
            out, i = out + f"[{inside}]", end + 1
        elif text[i] == "\\" and i + 1 < len(text):
            out, i = out + re.escape(text[i + 1]), i + 2
        else:
            out, i = out + re.escape(text[i]), i + 1
    return out
