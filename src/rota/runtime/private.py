"""Writes files that only Rota may read."""

from __future__ import annotations

import os
from pathlib import Path

MODE = 0o600


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader finds either the old or the new content."""
    new = path.with_name(f"{path.name}.new")
    # A file left from a crash may be readable for others.
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "wb") as file:
        file.write(content)
    new.replace(path)
