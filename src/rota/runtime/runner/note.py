"""The note in which a runner says what its box is, for whoever runs commands beside what runs there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.runtime.private import write_private


class Note(msgspec.Struct, frozen=True):
    """A box that runs."""

    process: str
    """Its number, and when it began."""
    env: Mapping[str, str]
    """What it was started with."""


def write(path: Path, note: Note | None) -> None:
    """Write down which box there is; None: there is none, and commands have to wait for one."""
    write_private(path, msgspec.json.encode(note) if note is not None else b"")


def read(path: Path) -> Note | None:
    """The box that there is. Raises FileNotFoundError where no runner writes such a note."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=Note) if content else None
    except msgspec.MsgspecError:
        return None
