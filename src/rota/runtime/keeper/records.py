"""What was started and how it ended, a file a key, for a server that was away and for the next keeper."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rota.runtime.keeper.protocol import hash_of

Record = dict[str, Any]


class Records:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._changed: dict[str, Record | None] = {}

    def read(self) -> list[Record]:
        """All there are. A file cut short by a crash was never told to anybody, and is dropped."""
        found = []
        for path in sorted(self._folder.iterdir()):
            record = _parsed(path)
            if record is not None:
                found.append(record)
            else:
                path.unlink(missing_ok=True)
        return found

    def put(self, record: Record) -> None:
        self._changed[record["key"]] = record

    def drop(self, key: str) -> None:
        self._changed[key] = None

    def commit(self) -> None:
        """Make durable what was put and dropped since the last time; one sync of the folder for all of it."""
        if not self._changed:
            return
        for key, record in list(self._changed.items()):
            path = self._folder / f"{hash_of(key)}.json"
            if record is None:
                path.unlink(missing_ok=True)
                continue
            part = path.with_suffix(".part")
            with open(part, "wb", opener=_private) as file:
                file.write(json.dumps(record).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        self._changed.clear()
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def stored_in(folder: Path) -> list[Record]:
    """Read the records of a folder, whoever it belongs to, and change nothing in it."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [record for path in paths if (record := _parsed(path)) is not None]


def _parsed(path: Path) -> Record | None:
    try:
        record = json.loads(path.read_bytes()) if path.suffix == ".json" else None
    except (ValueError, FileNotFoundError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("key"), str) and "state" in record else None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
