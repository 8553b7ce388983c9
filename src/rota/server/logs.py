"""`/v1/logs`: what an Instance has written, and what it goes on to write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from rota.api import Instance
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.registry.errors import bad_request, forbidden, not_found
from rota.runtime.interface import Runtime, Subject
from rota.server.auth import User, allows
from rota.server.http import Stream

READ_BYTES = 64 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
"""Of what was written before, at most."""
TAIL_LINES = 100
LOOK_SECONDS = 0.2
"""How often a log that is followed is looked at."""
FOLLOW_SECONDS_MAX = 4 * 3600.0


def logs(
    runtime: Runtime | None, objects: Objects, user: User, namespace: str, name: str, query: Mapping[str, str]
) -> Stream:
    """Answer with the log of one container of an Instance."""
    if not allows(user, "get", Instance.api, namespace, name, ""):
        raise forbidden(Instance.api, name, f'User "{user.name}" cannot get it')
    if runtime is None:
        raise ApiError(503, "ServiceUnavailable", "nothing runs in this server: it was started with --no-controllers")
    instance = get(objects, Instance, name, namespace)
    if instance is None:
        raise not_found(Instance.api, name)
    names = [container.name for container in instance.spec.containers]
    container = query.get("container") or names[0]
    if container not in names:
        raise bad_request(f'no container "{container}" in {name}; there are {", ".join(names)}')
    subject = Subject(namespace, name, instance.metadata.uid)
    path = runtime.log_file(subject, container)
    follow = query.get("follow") == "true"
    pieces = _read(path, _lines(query.get("tail", "")), follow, lambda: _is_there(objects, subject))
    return Stream(pieces, "text/plain; charset=utf-8", seconds_max=FOLLOW_SECONDS_MAX, endless=True)


def _lines(tail: str) -> int:
    if not tail:
        return TAIL_LINES
    if not tail.isdigit():
        raise bad_request(f"tail: {tail!r} is no number of lines")
    return int(tail)


def _is_there(objects: Objects, subject: Subject) -> bool:
    found = get(objects, Instance, subject.name, subject.namespace)
    return found is not None and found.metadata.uid == subject.uid


async def _read(path: Path, lines: int, follow: bool, goes_on: Callable[[], bool]) -> AsyncIterator[bytes]:
    file = _opened(path)
    try:
        if file is not None and (last := _tail(file, lines)):
            yield last
        while follow:
            piece = file.read(READ_BYTES) if file is not None else b""
            if piece:
                yield piece
                continue
            if _was_put_aside(path, file):
                if file is not None:
                    file.close()
                file = _opened(path)
                continue
            if not goes_on():
                return
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if file is not None:
            file.close()


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _was_put_aside(path: Path, file: BinaryIO | None) -> bool:
    """Whether there is another file under the name by now."""
    try:
        now = path.stat().st_ino
    except FileNotFoundError:
        return False
    return file is None or os.fstat(file.fileno()).st_ino != now


def _tail(file: BinaryIO, lines: int) -> bytes:
    """The last lines of a file, which is left at its end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES_MAX))
    text = file.read(TAIL_BYTES_MAX)
    kept = text.splitlines(keepends=True)[-lines:] if lines else []
    return b"".join(kept)
