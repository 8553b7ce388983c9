"""Files that nobody but Rota may read."""

from __future__ import annotations

import os
from pathlib import Path

MODE = 0o600


def write_private(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: whoever reads it meanwhile finds what was there before."""
    new = path.with_name(f"{path.name}.new")
    # One that is left from a crash may be open for others.
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "wb") as file:
        file.write(content)
    new.replace(path)
