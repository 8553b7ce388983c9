"""Files that are not packed: those that never belong to code, and those that `.rotaignore` names.

A `.rotaignore` has the syntax of a `.gitignore`. The project's own, beside `rota.yaml`, applies to everything below it;
one in the packed folder is read after it. The last pattern that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

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
"""Patterns that are excluded unless a `.rotaignore` includes them again. The project file is among them: it is no code.
"""


class Excludes:
    """The patterns of one folder. `above` are those of the project, which contains the folder at `prefix`."""

    def __init__(self, lines: Iterable[str], above: Iterable[str] = (), prefix: str = "") -> None:
        written = [("", lines), (prefix, above), ("", ALWAYS)]
        self._specs = [(prefix, GitIgnoreSpec.from_lines(_valid(some))) for prefix, some in written]
        """The last pattern list first."""

    @classmethod
    def read(cls, top: Path, project: Path | None = None) -> Excludes:
        """Read the ignore files of a folder and of its project."""
        prefix = top.resolve().relative_to((project or top).resolve()).as_posix()
        return (
            cls(_read_patterns(top))
            if project is None or prefix == "."
            else cls(_read_patterns(top), _read_patterns(project), f"{prefix}/")
        )

    def is_excluded(self, name: str, *, is_folder: bool) -> bool:
        """Report whether a file or folder is excluded. `name` is relative to the top, with slashes."""
        decisions = (
            spec.check_file(f"{prefix}{name}{'/' if is_folder else ''}").include for prefix, spec in self._specs
        )
        return next((excluded for excluded in decisions if excluded is not None), False)


def _valid(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are valid patterns. Git ignores the others, too."""
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):
            continue
        yield line


def _read_patterns(folder: Path) -> list[str]:
    try:
        with (folder / IGNORE_FILE).open("rb") as file:
            text = file.read(IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[:LINES_MAX]
