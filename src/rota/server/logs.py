"""What an Instance (`/v1/logs`) or a Task (`/v1/tasks/…/logs`) has written, and what it goes on to write."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from rota.api import Instance, Kind, Task
from rota.control.holds.options import options_of
from rota.engine.objects import Objects, get
from rota.registry.errors import bad_request, forbidden, not_found
from rota.runtime.interface import Runtime
from rota.runtime.runner.tasklog import LOG_BYTES_MAX, LogReader
from rota.server.auth import User, allows
from rota.server.entering import authorise, place, running
from rota.server.http import Response, Stream

READ_BYTES = 64 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
"""Of what an instance has written before, at most."""
TAIL_LINES = 100
LOOK_SECONDS_MIN = 0.01
LOOK_SECONDS_MAX = 0.2
"""How often a log that is followed is looked at: soon after something was written, and less often in silence."""
FOLLOW_SECONDS_MAX = 4 * 3600.0

_NUMBER = re.compile(r"[0-9]{1,15}")


class Reader(Protocol):
    """A log, wherever it was left off."""

    def read(self, size: int) -> bytes:
        """What comes next; empty: nothing yet."""
        ...

    def close(self) -> None: ...


def logs(
    runtime: Runtime | None, objects: Objects, user: User, namespace: str, name: str, query: Mapping[str, str]
) -> Stream:
    """Answer with the log of one container of an Instance."""
    if user.scope == "claim":
        authorise(user, objects, namespace, name)
    else:
        check_access(user, Instance.api, namespace, name)
    runtime = running(runtime)
    instance, subject, container = place(objects, namespace, name, query.get("container", ""))
    uid = subject.uid
    path = runtime.log_file(subject, container)
    tail = number(query, "tail")

    def goes_on() -> bool:
        found = get(objects, Instance, name, namespace)
        return found is not None and found.metadata.uid == uid

    # Who has it sees what was written since.
    since = options_of(instance).logs.get(container, (0, 0)) if user.scope == "claim" else (0, 0)
    log = InstanceLog(path, TAIL_LINES if tail is None else tail, since)
    return as_stream(pieces(log, goes_on if follows(query) else None))


def task_logs(
    runtime: Runtime | None, objects: Objects, user: User, namespace: str, name: str, query: Mapping[str, str]
) -> Stream:
    """Answer with the log of a Task, of all its attempts: its last lines, or all of it from a byte on."""
    check_access(user, Task.api, namespace, name)
    runtime = running(runtime)
    task = get(objects, Task, name, namespace)
    if task is None:
        raise not_found(Task.api, name)
    tail, begin = number(query, "tail"), number(query, "from")
    if tail is not None and begin is not None:
        raise bad_request("tail does not go with from")
    uid = task.metadata.uid
    reader = LogReader(runtime.task_log(namespace, name, uid), begin or 0)

    def goes_on() -> bool:
        found = get(objects, Task, name, namespace)
        return found is not None and found.metadata.uid == uid and not found.over()

    return as_stream(pieces(reader, goes_on if follows(query) else None, tail))


def task_result(
    runtime: Runtime | None, objects: Objects, user: User, namespace: str, name: str, query: Mapping[str, str]
) -> Response:
    """Answer with the result of a Task, also with one that is too large for its status."""
    check_access(user, Task.api, namespace, name)
    runtime = running(runtime)
    task = get(objects, Task, name, namespace)
    if task is None:
        raise not_found(Task.api, name)
    kept = runtime.task_log(namespace, name, task.metadata.uid).with_suffix(".result")
    if kept.exists():
        return Response(200, kept.read_bytes(), "text/plain; charset=utf-8")
    result = task.status.result if task.status is not None else None
    return Response(200, msgspec.json.encode(result))


def check_access(user: User, kind: Kind, namespace: str, name: str) -> None:
    if not allows(user, "get", kind, namespace, name, ""):
        raise forbidden(kind, name, f'User "{user.name}" cannot get it')


def follows(query: Mapping[str, str]) -> bool:
    return query.get("follow") == "true"


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not _NUMBER.fullmatch(text):
        raise bad_request(f"{name}: {text!r} is no number")
    return int(text) if text else None


def as_stream(chunks: AsyncIterator[bytes]) -> Stream:
    return Stream(chunks, "text/plain; charset=utf-8", seconds_max=FOLLOW_SECONDS_MAX, endless=True)


async def pieces(reader: Reader, goes_on: Callable[[], bool] | None, tail: int | None = None) -> AsyncIterator[bytes]:
    """All there is, or the last lines of it; then what comes, for as long as something may.

    Somebody may write faster than it is read, so that all there is has a bound.
    """
    try:
        if tail is not None and (text := last_lines(whole(reader), tail)):
            yield text
        pause_seconds = LOOK_SECONDS_MIN
        sent_bytes = 0
        while goes_on is not None or sent_bytes < LOG_BYTES_MAX:
            # Before it is read: then all that was written until the end is there to be read.
            is_over = goes_on is None or not goes_on()
            if piece := reader.read(READ_BYTES):
                pause_seconds = LOOK_SECONDS_MIN
                sent_bytes += len(piece)
                yield piece
            elif is_over:
                return
            else:
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LOOK_SECONDS_MAX)
    finally:
        reader.close()


def whole(reader: Reader) -> bytes:
    """What is there now."""
    text = bytearray()
    while len(text) < LOG_BYTES_MAX and (piece := reader.read(READ_BYTES)):
        text += piece
    return bytes(text)


def last_lines(text: bytes, count: int) -> bytes:
    """The last lines of a text; one that is not complete yet is one."""
    begin = len(text) - text.endswith(b"\n")
    for _ in range(count):
        begin = text.rfind(b"\n", 0, begin)
        if begin < 0:
            return text
    return text[begin + 1 :] if count else b""


class InstanceLog:
    """Reads the log of a container: its last lines, and then what comes, also after it was put aside."""

    def __init__(self, path: Path, lines: int, since: tuple[int, int] = (0, 0)) -> None:
        """`since` is a file's number and a size: of that file, nothing before is read."""
        self._path = path
        self._since = since
        self._lines: int | None = lines
        self._file: BinaryIO | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        if self._lines is not None:
            self._file = _opened(self._path)
            self._rest = b"" if self._file is None else _tail(self._file, self._lines, self._since)
            self._lines = None
        if self._rest:
            piece, self._rest = self._rest[:size], self._rest[size:]
            return piece
        piece = self._file.read(size) if self._file is not None else b""
        if piece or not self._was_put_aside():
            return piece
        # Once more: it may have been written to until it was.
        if self._file is not None and (piece := self._file.read(size)):
            return piece
        self.close()
        self._file = _opened(self._path)
        return self._file.read(size) if self._file is not None else b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _was_put_aside(self) -> bool:
        """Whether there is another file under the name by now."""
        try:
            now = self._path.stat().st_ino
        except FileNotFoundError:
            return False
        return self._file is None or os.fstat(self._file.fileno()).st_ino != now


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _tail(file: BinaryIO, lines: int, since: tuple[int, int]) -> bytes:
    """The last lines of a file, which is left at its end."""
    size = file.seek(0, os.SEEK_END)
    floor = since[1] if os.fstat(file.fileno()).st_ino == since[0] else 0
    file.seek(max(floor, size - TAIL_BYTES_MAX))
    return last_lines(file.read(TAIL_BYTES_MAX), lines)
