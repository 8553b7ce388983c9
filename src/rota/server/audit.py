"""One line for each write: who did what to which object, and at which revision. Never what is in it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rota.registry import ApiError
from rota.server.auth import User

FILE_BYTES_MAX = 16 * 1024 * 1024
"""A full file is put aside once, so the trail has at most two of them."""
_encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class Line(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A line of the trail."""

    time: str
    user: str
    scope: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    code: int = 0
    revision: int = 0
    dry_run: bool = False


class Audit:
    """The trail, in a file that only the server's user can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lost = 0
        """Lines that could not be written since the last one that could."""
        self._open()

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = self._path.stat().st_size

    def write(self, line: Line) -> None:
        """A line that a full disk cannot take is counted, and how many there were is written down later."""
        text = _encode(line) + b"\n"
        if self.lost:
            note = Line(line.time, "rota", "server", "lose", "audit", name=str(self.lost))
            text = _encode(note) + b"\n" + text
        try:
            self._append(text)
        except OSError as error:
            if not self.lost:
                log.error("%s: what was done is not written down: %s", self._path, error.strerror)
            self.lost += 1
        else:
            self.lost = 0

    def _append(self, text: bytes) -> None:
        if self._size + len(text) > FILE_BYTES_MAX:
            self._file.close()
            self._path.replace(self._path.with_suffix(".log.1"))
            self._open()
        # All of it or nothing: half a line would spoil the next one.
        written = self._file.write(text)
        if written is not None and written < len(text):
            os.ftruncate(self._file.fileno(), self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(text)

    def close(self) -> None:
        self._file.close()


class Note(msgspec.Struct):
    """What is not known of a line before it is over."""

    name: str
    code: int = 500


@contextlib.contextmanager
def noting(
    audit: Audit, user: User, verb: str, resource: str, namespace: str, name: str = "", what: str = ""
) -> Iterator[Note]:
    """Write down that something was asked for, however it ends."""
    note = Note(name)
    try:
        yield note
    except ApiError as error:
        note.code = error.code
        raise
    finally:
        audit.write(Line(now(), user.name, user.scope, verb, resource, namespace, note.name, what, note.code))


def now() -> str:
    """The time of a line."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
