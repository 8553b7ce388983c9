"""Paths that are made of names.

- A name is one step of a path, and never leads out of the folder that it is a step from.
- Whatever a name was checked for when an object was admitted, it is checked here again: an object may come from a
  store that was restored, from a cluster, or from a version of Rota that was less strict.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME_BYTES_MAX = 255
"""As long as file systems let a name be."""


class UnsafeName(ValueError):  # noqa: N818 - named for what is the case
    """A name that would lead somewhere else."""


def step(name: str) -> str:
    """Return a name if it is one step of a path. Raises UnsafeName."""
    is_step = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    if not is_step or len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise UnsafeName(f"{name[:NAME_BYTES_MAX]!r} is no name of a file or folder")
    return name


def below(folder: Path, *names: str) -> Path:
    """Return the path of something in a folder, by the names that lead to it. Raises UnsafeName."""
    return Path(text_below(folder, *names))


def text_below(folder: Path | str, *names: str) -> str:
    """Return the same path as a text, which is made in a tenth of the time."""
    return "/".join((str(folder), *map(step, names)))
