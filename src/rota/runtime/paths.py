"""Makes paths of names, and refuses names that lead elsewhere.

- A name is a single step of a path, and never leads out of its folder.
- Names that admission has checked are checked again: an object may come from a restored store, from a cluster, or from
  a less strict version of Rota.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME_BYTES_MAX = 255
"""The longest name of a file system."""


class UnsafeName(ValueError):  # noqa: N818 - named for what is the case
    """A name that is not a single step of a path."""


def step(name: str) -> str:
    """Return a name if it is one step of a path. Raises UnsafeName."""
    is_step = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    if not is_step or len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise UnsafeName(f"{name[:NAME_BYTES_MAX]!r} is no name of a file or folder")
    return name


def below(folder: Path, *names: str) -> Path:
    """Return the path below a folder by these names. Raises UnsafeName."""
    return Path(text_below(folder, *names))


def text_below(folder: Path | str, *names: str) -> str:
    """Return the path below a folder as text. This takes a tenth of the time of `below`."""
    return "/".join((str(folder), *map(step, names)))
