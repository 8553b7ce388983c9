"""The files that are not packed: those that never belong to code, and those that `.rotaignore` names.

A `.rotaignore` is written as a `.gitignore`. The project's own, beside `rota.yaml`, holds for all that is below it; one
in the folder that is packed comes after it. The last pattern that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterable
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
"""Left out unless a file takes it in again. The project file is among it: a changed schedule is no changed code."""


class Excludes:
    """The patterns of one folder. `above` are those of the project, in which it is at `place`."""

    def __init__(self, lines: Iterable[str], above: Iterable[str] = (), place: str = "") -> None:
        written = [("", lines), (place, above), ("", ALWAYS)]
        self._specs = [(place, GitIgnoreSpec.from_lines(some)) for place, some in written]
        """The last ones first."""

    @classmethod
    def read(cls, top: Path, project: Path | None = None) -> Excludes:
        """Read the files of a folder and of its project."""
        place = top.resolve().relative_to((project or top).resolve()).as_posix()
        return cls(_lines(top)) if project is None or place == "." else cls(_lines(top), _lines(project), f"{place}/")

    def leaves_out(self, name: str, *, is_folder: bool) -> bool:
        """Report whether this is not packed. `name` is relative to the top, with slashes."""
        found = (spec.check_file(f"{place}{name}{'/' if is_folder else ''}").include for place, spec in self._specs)
        return next((left_out for left_out in found if left_out is not None), False)


def _lines(folder: Path) -> list[str]:
    try:
        with (folder / IGNORE_FILE).open("rb") as file:
            text = file.read(IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[:LINES_MAX]
