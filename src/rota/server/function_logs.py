"""`/v1/functions/NAMESPACE/NAME/logs`: what the calls of a function have written, merged, and what they go on to write.

A line is the call, its worker, and what was written there, with a space between. Calls are in the order in which they
began, each with its lines together; of what is written from now on, each line comes when it is complete. What a worker
wrote while it loaded the code is of no call, which is `-`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from rota.api import Function, Instance, Task
from rota.client import Key
from rota.control.function import Serving
from rota.control.functions.line import Begun, Line
from rota.control.functions.planning import CONTAINER, own
from rota.control.orders import subject_of
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.registry.errors import not_found
from rota.runtime.interface import Subject
from rota.runtime.runner.tasklog import LogReader
from rota.server.auth import User
from rota.server.http import Stream
from rota.server.logs import (
    LOOK_SECONDS_MAX,
    LOOK_SECONDS_MIN,
    READ_BYTES,
    TAIL_LINES,
    InstanceLog,
    Reader,
    as_stream,
    check_access,
    follows,
    last_lines,
    number,
    whole,
)

FOLLOWED_MAX = 256
"""Logs that are read at once: those of calls that began later come when others are over."""
KNOWN_MAX = 1000
"""Logs of calls that are over, and that another try of the same task may go on with."""
LINE_BYTES_MAX = 1024 * 1024
"""A longer line comes as several."""
NO_CALL = "-"


class Source(NamedTuple):
    """A log that is there."""

    began: float
    call: str
    worker: str
    log: Path


def function_logs(
    serving: Serving | None, objects: Objects, user: User, namespace: str, name: str, query: Mapping[str, str]
) -> Stream:
    """Answer with the last lines, and with `follow` go on for as long as there is the function."""
    check_access(user, Function.api, namespace, name)
    check_access(user, Task.api, namespace, name)
    if serving is None:
        raise ApiError(503, "ServiceUnavailable", "no functions run in this server: it has no controllers")
    function = get(objects, Function, name, namespace)
    if function is None:
        raise not_found(Function.api, name)
    tail = number(query, "tail")
    merged = Merged(serving, function)
    return as_stream(merged.pieces(TAIL_LINES if tail is None else tail, follow=follows(query)))


class Merged:
    """The logs of one function, as one."""

    def __init__(self, serving: Serving, function: Function) -> None:
        self._serving = serving
        self._function = function
        self._line = serving.calls.line(function)
        self._seen = 0
        """The number of the last call that is read, or was."""
        self._coming: deque[Begun] = deque()
        self._readers: dict[str, LogReader] = {}
        """Of calls, by the place of the log: it is read on where it was left off."""
        self._open: dict[str, Open] = {}

    async def pieces(self, tail: int, *, follow: bool) -> AsyncIterator[bytes]:
        try:
            begun = list(self._line.begun)
            self._seen = begun[-1].number if begun else 0
            if follow:
                self._coming.extend(one for one in begun if self._serving.calls.is_under_way(one.id))
                self._see_workers(is_first=True)
            followed = {one.log for one in self._coming}
            sources = [one for one in self._sources(begun) if str(one.log) not in followed]
            if before := await asyncio.to_thread(_last, sources, tail):
                yield before
            pause_seconds = LOOK_SECONDS_MIN
            while follow and self._is_there():
                self._see()
                if said := b"".join(self._read()):
                    pause_seconds = LOOK_SECONDS_MIN
                    yield said
                else:
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(2 * pause_seconds, LOOK_SECONDS_MAX)
        finally:
            for one in self._open.values():
                one.reader.close()

    def _is_there(self) -> bool:
        meta = self._function.metadata
        found = get(self._serving.objects, Function, meta.name, meta.namespace)
        return found is not None and found.metadata.uid == meta.uid

    # What there is.

    def _sources(self, begun: Iterable[Begun]) -> list[Source]:
        """All logs, in the order in which they were begun."""
        meta, runtime, objects = self._function.metadata, self._serving.runtime, self._serving.objects
        # The newest calls may not be written down yet. Of one that is tried again the last try is told.
        known = {one.log: Source(one.time, one.call, one.worker, Path(one.log)) for one in begun}
        found = list(known.values())
        for task in cast("list[Task]", objects.list(Task.api, meta.namespace)):
            call, status = task.spec.function, task.status
            if call is None or call.name != meta.name or status is None or status.start_time is None:
                continue
            log = runtime.task_log(meta.namespace, task.metadata.name, task.metadata.uid)
            if str(log) not in known:
                worker = status.attempts[-1].instance if status.attempts else status.instance_name
                found.append(Source(status.start_time.timestamp(), task.metadata.name, worker or NO_CALL, log))
        for instance in own(self._function, cast("list[Instance]", objects.list(Instance.api, meta.namespace))):
            made = instance.metadata.creation_timestamp
            log = runtime.log_file(subject_of(instance), CONTAINER)
            found.append(Source(made.timestamp() if made else 0.0, NO_CALL, instance.metadata.name, log))
        return sorted(found)

    # What comes.

    def _see(self) -> None:
        """Calls and workers that are new."""
        line = self._now()
        if line.begun and line.begun[-1].number > self._seen:
            self._coming.extend(one for one in line.begun if one.number > self._seen)
            self._seen = line.begun[-1].number
        while self._coming and len(self._open) < FOLLOWED_MAX:
            one = self._coming.popleft()
            reader = self._readers.pop(one.log, None) or LogReader(Path(one.log))
            self._readers[one.log] = reader
            if len(self._readers) > KNOWN_MAX:
                self._readers.pop(next(iter(self._readers))).close()
            self._open[one.id] = Open(one.call, one.worker, reader, self._until_over(one.id))
        self._see_workers(is_first=False)

    def _now(self) -> Line:
        """It is another one when this process has led anew."""
        meta = self._function.metadata
        return self._serving.calls.known(Key(meta.namespace, meta.name)) or self._line

    def _until_over(self, id_: str) -> Callable[[], bool]:
        return lambda: self._serving.calls.is_under_way(id_)

    def _see_workers(self, *, is_first: bool) -> None:
        """Of those that there are already, nothing before: that was among the last lines."""
        for worker in self._now().routing.workers:
            subject = worker.subject
            if subject.uid not in self._open:
                log = InstanceLog(self._serving.runtime.log_file(subject, CONTAINER), 0 if is_first else TAIL_LINES)
                if is_first:
                    log.read(0)
                self._open[subject.uid] = Open(NO_CALL, subject.name, log, self._until_gone(subject))

    def _until_gone(self, subject: Subject) -> Callable[[], bool]:
        return lambda: self._now().routing.worker(subject.uid) is not None

    def _read(self) -> list[bytes]:
        found = []
        for id_, one in list(self._open.items()):
            # Before it is read: then all that was written until the end is there to be read.
            goes_on = one.goes_on()
            if said := one.read():
                found.append(said)
            elif not goes_on:
                found.append(one.end())
                del self._open[id_]
        return found


class Open:
    """A log that is followed."""

    def __init__(self, call: str, worker: str, reader: Reader, goes_on: Callable[[], bool]) -> None:
        self._prefix = f"{call} {worker} ".encode()
        self._rest = b""
        self.reader = reader
        self.goes_on = goes_on

    def read(self) -> bytes:
        """The lines that are complete by now."""
        *lines, self._rest = (self._rest + self.reader.read(READ_BYTES)).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        return b"".join(self._prefix + each + b"\n" for each in lines)

    def end(self) -> bytes:
        self.reader.close()
        return self._prefix + self._rest + b"\n" if self._rest else b""


def _last(sources: list[Source], count: int) -> bytes:
    """The last lines of all of them."""
    found: list[bytes] = []
    left = count
    while sources and left > 0:
        source = sources.pop()
        reader = LogReader(source.log)
        text = last_lines(whole(reader), left)
        reader.close()
        lines = text.removesuffix(b"\n").split(b"\n") if text else []
        found.append(b"".join(f"{source.call} {source.worker} ".encode() + each + b"\n" for each in lines))
        left -= len(lines)
    return b"".join(reversed(found))
