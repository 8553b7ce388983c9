"""Records on disk of what was started and how it ended, one file per key, for a later server or keeper."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from rota.runtime.keeper.protocol import KEY_CHARS_MAX, RUN_CHARS_MAX, hash_of

Record = dict[str, Any]

SET_ASIDE = "damaged"
"""The folder for damaged records."""
SET_ASIDE_MAX = 64
"""The most damaged records that are kept; older ones are removed."""
RECORD_BYTES_MAX = 1024 * 1024


class RecordStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._changed: dict[str, Record | None] = {}
        self.set_aside: list[str] = []
        """Names of damaged files in the folder SET_ASIDE."""

    def read(self) -> list[Record]:
        """Return all records.

        Damaged files are moved aside, because they must not keep a keeper from starting. `.part` files are removed: a
        crash cut them short before any client was notified.
        """
        found = []
        for path in sorted(self._folder.iterdir()):
            record = _parsed(path)
            if record is not None:
                found.append(record)
            elif path.suffix == ".part" and not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                self._put_aside(path)
        return found

    def _put_aside(self, path: Path) -> None:
        folder = self._folder.with_name(SET_ASIDE)
        folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{time.time_ns():020}-{path.name[:128]}"
        path.rename(folder / name)
        self.set_aside.append(name)
        for old in sorted(folder.iterdir())[:-SET_ASIDE_MAX]:
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()

    def put(self, record: Record) -> None:
        self._changed[record["key"]] = record

    def drop(self, key: str) -> None:
        self._changed[key] = None

    def commit(self) -> None:
        """Make the changes since the last commit durable, with one sync of the folder."""
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


def read_records(folder: Path) -> list[Record]:
    """Return the records of a folder without changing anything in it."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [record for path in paths if (record := _parsed(path)) is not None]


def _parsed(path: Path) -> Record | None:
    if path.suffix != ".json":
        return None
    try:
        # Refuse links and pipes: only keepers write here, and they write files.
        with open(path, "rb", opener=_unlinked) as file:
            record = json.loads(file.read(RECORD_BYTES_MAX))
            is_whole = _is_record(record) and path.stem == hash_of(record["key"])
    except (ValueError, RecursionError, OSError):
        return None
    return record if is_whole else None


def _is_record(record: Any) -> bool:
    """Report whether a value is a record with all fields that the keeper uses."""
    if not isinstance(record, dict):
        return False
    log, ended = record.get("log"), record.get("exit")
    return (
        _is_text(record.get("key"), KEY_CHARS_MAX)
        and _is_text(record.get("run"), RUN_CHARS_MAX)
        and record.get("state") in ("running", "exited")
        and _is_whole(record.get("pid"))
        and record["pid"] >= 0
        and (record.get("pid_start") is None or _is_whole(record["pid_start"]))
        and _is_number(record.get("started"))
        and isinstance(record.get("tree"), str)
        and isinstance(log, dict)
        and isinstance(log.get("path_prefix"), str)
        and all(_is_whole(log.get(name, 0)) for name in ("bytes_max", "files_max"))
        and _are_texts(record.get("limits_unmet", []))
        and isinstance(record.get("closed", False), bool)
        and _is_whole(record.get("log_bytes_lost", 0))
        and (ended is None if record["state"] == "running" else _is_exit(ended))
    )


def _is_exit(ended: Any) -> bool:
    return (
        isinstance(ended, dict)
        and _is_number(ended.get("time"))
        and all(ended.get(name) is None or _is_whole(ended[name]) for name in ("code", "signal"))
        and (ended.get("reason") is None or isinstance(ended["reason"], str))
        and isinstance(ended.get("oom", False), bool)
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_text(value: Any, chars_max: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= chars_max and "\0" not in value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
