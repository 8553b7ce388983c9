"""`/v1/logs` and `/v1/tasks/…/logs`: the output of an Instance or a Task."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rota.api import Instance, Task
from rota.control.functions.call_tasks import kept_uid
from rota.control.holds.options import options_of
from rota.engine.objects import Objects, get
from rota.registry.errors import not_found
from rota.runtime.archive import Reader, log_of, result_of
from rota.runtime.instance_log import last_lines, place_in
from rota.runtime.interface import Runtime
from rota.runtime.runner.tasklog import LOG_BYTES_MAX
from rota.server.auth import User
from rota.server.entering import Absent, place, present
from rota.server.http import Request, Response, Stream
from rota.server.log_streams import Piece, Pieces, Rhythm, as_stream, begin_of, follows, number

READ_BYTES = 64 * 1024
TAIL_LINES = 100


def logs(
    runtime: Runtime | Absent, objects: Objects, request: Request, user: User, namespace: str, name: str
) -> Stream:
    """Answer with the log of one container of an Instance."""
    runtime, query = present(runtime), request.query
    instance, subject, container = place(objects, namespace, name, query.get("container", ""))
    uid = subject.uid
    tail, begin = number(query, "tail"), place_in(begin_of(query))

    def goes_on() -> bool:
        found = get(objects, Instance, name, namespace)
        return found is not None and found.metadata.uid == uid

    # A holder sees the output since the beginning of its hold.
    since = options_of(instance).logs.get(container, (0, 0)) if user.scope == "claim" else (0, 0)
    log = runtime.archive.instance_log(subject, container, TAIL_LINES if tail is None else tail, since, begin)
    return as_stream(request, pieces(log, goes_on if follows(query) else None))


def task_logs(runtime: Runtime | Absent, objects: Objects, request: Request, namespace: str, name: str) -> Stream:
    """Answer with the log of a Task, of all its attempts: its last lines, or everything from a byte on."""
    runtime, query = present(runtime), request.query
    task = get(objects, Task, name, namespace)
    if task is None:
        raise not_found(Task.api, name)
    begin_of(query)
    tail, begin = number(query, "tail"), number(query, "from")
    uid = task.metadata.uid
    reader = runtime.archive.stream(log_of(namespace, name, kept_uid(task)), begin or 0)

    def goes_on() -> bool:
        found = get(objects, Task, name, namespace)
        return found is not None and found.metadata.uid == uid and not found.over()

    return as_stream(request, pieces(reader, goes_on if follows(query) else None, tail))


async def task_result(runtime: Runtime | Absent, objects: Objects, namespace: str, name: str) -> Response:
    """Answer with the result of a Task, even if it is too large for its status."""
    runtime = present(runtime)
    task = get(objects, Task, name, namespace)
    if task is None:
        raise not_found(Task.api, name)
    kept = await runtime.archive.get(result_of(namespace, name, kept_uid(task)))
    if kept is not None:
        return Response(200, kept, "text/plain; charset=utf-8")
    result = task.status.result if task.status is not None else None
    return Response(200, msgspec.json.encode(result))


async def pieces(reader: Reader, goes_on: Callable[[], bool] | None, tail: int | None = None) -> Pieces:
    """Yield the whole log or its last lines, then new output as long as there may be any.

    The amount is bounded, because the log may grow faster than it is read.
    """
    try:
        first = reader.read(READ_BYTES) if tail is None else last_lines(whole(reader), tail)
        # Sent even if empty, so that a client that is cut off has a position.
        yield Piece(first, reader.position())
        rhythm = Rhythm()
        sent_bytes = len(first)
        while goes_on is not None or sent_bytes < LOG_BYTES_MAX:
            # Checked before the read, so that the read includes everything up to the end.
            is_over = goes_on is None or not goes_on()
            if piece := reader.read(READ_BYTES):
                sent_bytes += len(piece)
                yield Piece(piece, reader.position())
                rhythm.had_output()
            elif is_over:
                return
            elif await rhythm.rest():
                yield None
    finally:
        reader.close()


def whole(reader: Reader) -> bytes:
    """Return the present content of a log."""
    text = bytearray()
    while len(text) < LOG_BYTES_MAX and (piece := reader.read(READ_BYTES)):
        text += piece
    return bytes(text)
