"""`/v1/functions/NAMESPACE/NAME/logs`: the merged output of a function's calls.

A line has the call, its worker, and the output, with a space between. Calls are in the order in which they began, each
with its lines together; when the log is followed, each new line comes once it is complete. Output that belongs to no
call has `-` instead of the call: that of a worker that loads the code (`load` replaces its name if it failed and is
gone), and that of pip while it installs the packages (`packages`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from rota.api import Function, Instance, Task
from rota.client import Key
from rota.control.function import Serving
from rota.control.functions.call_tasks import kept_uid
from rota.control.functions.planning import CONTAINER, own
from rota.control.functions.served import BegunCall, ServedFunction
from rota.control.instances.names import subject_of
from rota.engine.objects import Objects, get
from rota.registry.errors import not_found
from rota.runtime.archive import Item, Reader, log_of
from rota.runtime.instance_log import BEGINNING, InstanceLog, Place, last_lines, newlines, place_in
from rota.runtime.interface import Subject
from rota.runtime.runner.tasklog import LogReader
from rota.server.function_position import MARGIN_SECONDS, Position, Progress, position_in
from rota.server.http import Request, Stream
from rota.server.log_streams import Piece, Pieces, Rhythm, as_stream, begin_of, follows, number
from rota.server.logs import READ_BYTES, TAIL_LINES, whole

FOLLOWED_MAX = 256
"""Logs that are followed at once. Logs of later calls wait until others are over."""
KNOWN_MAX = 1000
"""Logs of finished calls that a retry of the same task may continue."""
LINE_BYTES_MAX = 1024 * 1024
"""A longer line is split."""
SHOWN_BYTES_MAX = 10 * 1024 * 1024
"""Bytes of the last lines with their prefixes; the oldest log among them may exceed it a little."""
TURN_BYTES_MAX = 1024 * 1024
"""Bytes of followed logs that are read before other work of the event loop."""
NO_CALL = "-"
PACKAGES, LOAD, ROTA = "packages", "load", "rota"
"""The worker's place in lines that no worker has written."""


class Source(NamedTuple):
    """The log of a call."""

    began: float
    call: str
    worker: str
    log: Item
    id: str = ""
    """The id of the call if it began in this process; empty if it is over."""
    number: int = 0

    @property
    def key(self) -> str:
        """The key of the log in a position."""
        return self.log.owner


class PastLog(NamedTuple):
    """A log whose last lines may be shown."""

    began: float
    call: str
    worker: str
    open: Callable[[], Reader]


def function_logs(serving: Serving, objects: Objects, request: Request, namespace: str, name: str) -> Stream:
    """Answer with the last lines, or with those after a position; with `follow` go on as long as the function
    exists."""
    function = get(objects, Function, name, namespace)
    if function is None:
        raise not_found(Function.api, name)
    query = request.query
    tail, begin = number(query, "tail"), position_in(begin_of(query))
    merged = Merged(serving, function)
    return as_stream(request, merged.pieces(TAIL_LINES if tail is None else tail, begin, follow=follows(query)))


class Merged:
    """The merged logs of one function."""

    def __init__(self, serving: Serving, function: Function) -> None:
        self._serving = serving
        self._archive = serving.runtime.archive
        self._function = function
        self._function_calls = serving.calls.served(function)
        self._last_number = 0
        """The number of the last call whose log was opened."""
        self._coming: deque[Source] = deque()
        self._readers: dict[str, Reader] = {}
        """The readers of calls by the owner of the log, so that a retry continues where reading stopped."""
        self._open: dict[str, Open] = {}
        self._places: dict[str, Place] = {}
        """The positions at which the logs of workers continue, until they are opened."""
        self._progress = Progress(serving.calls.epoch, self._may_go_on)

    async def pieces(self, tail: int, begin: Position | None, *, follow: bool) -> Pieces:
        try:
            objects, namespace = self._serving.objects, self._function.metadata.namespace
            # Read before the calls that have begun, so that a call that begins meanwhile is not shown twice.
            tasks = cast("Sequence[Task]", await objects.select(Task.api, namespace, self._is_call))
            begun = list(self._function_calls.begun)
            self._last_number = begun[-1].number if begun else 0
            before = b""
            if begin is not None:
                self._resume(begin, begun, tasks)
            else:
                before = await asyncio.to_thread(_last, self._begin(begun, tasks, tail, follow=follow), tail)
            yield Piece(before, self._progress.take())
            rhythm = Rhythm()
            while follow and self._is_there():
                self._open_new()
                output = b"".join(self._read())
                if change := self._progress.take():
                    yield Piece(output, change)
                    rhythm.had_output()
                elif await rhythm.rest():
                    yield None
        finally:
            for one in self._open.values():
                one.reader.close()

    def _is_there(self) -> bool:
        meta = self._function.metadata
        found = get(self._serving.objects, Function, meta.name, meta.namespace)
        return found is not None and found.metadata.uid == meta.uid

    # Where it begins.

    def _begin(self, begun: list[BegunCall], tasks: Sequence[Task], tail: int, *, follow: bool) -> list[PastLog]:
        """Follow the calls under way from now on. Returns all other logs, the oldest first."""
        calls = self._calls(begun, tasks)
        if follow:
            self._coming.extend(one for one in calls if one.id and self._serving.calls.is_under_way(one.id))
            self._open_workers(is_first=True)
            self._open_packages(tail, None)
        followed = {one.key for one in self._coming}
        for one in calls:
            self._progress.know(one.number, one.began)
            if one.key in followed:
                self._progress.reach(one.key, 0)
            elif one.began > calls[-1].began - MARGIN_SECONDS:
                self._progress.reach(one.key, self._archive.written_bytes(one.log))
                self._progress.leave(one.key, one.began)
        others = self._of_no_call(tail, is_followed=follow)
        before = [
            PastLog(one.began, one.call, one.worker, partial(self._archive.stream, one.log))
            for one in calls
            if one.key not in followed
        ]
        return sorted([*before, *others], key=lambda one: one[:3])

    def _resume(self, begin: Position, begun: list[BegunCall], tasks: Sequence[Task]) -> None:
        """Continue after a position: with the rest of the logs in it, and the logs of all calls that have begun
        since."""
        is_same = begin.epoch == self._serving.calls.epoch
        # The number of remembered calls is bounded. Others are found as tasks.
        is_gap = is_same and bool(begun) and begun[0].number > begin.known + 1
        self._progress.know(begin.known if is_same else 0, begin.after)
        for one in self._calls(begun, tasks):
            offset = begin.logs.get(one.key)
            if offset is not None:
                self._readers[one.key] = self._archive.stream(one.log, offset if isinstance(offset, int) else 0)
            elif one.number and is_same:
                if one.number <= begin.known:
                    continue
            elif (is_same and not is_gap) or not begin.may_be_new(one.began):
                continue
            self._coming.append(one)
            self._progress.reach(one.key, offset or 0)
        for key, place in begin.logs.items():
            if key.startswith(NO_CALL) and (found := place_in(str(place))) is not None:
                self._places[key] = found
        self._open_packages(0, self._places.pop(f"{NO_CALL}{PACKAGES}", BEGINNING))

    # Existing logs.

    def _calls(self, begun: Iterable[BegunCall], tasks: Iterable[Task]) -> list[Source]:
        """Return the logs of all calls, in the order in which they began."""
        meta = self._function.metadata
        # The newest calls may not be recorded yet. Of a retried call the last attempt counts.
        known = {source.key: source for source in map(self._source, begun)}
        found = list(known.values())
        for task in tasks:
            status = task.status
            assert status is not None and status.start_time is not None
            log = log_of(meta.namespace, task.metadata.name, kept_uid(task))
            if log.owner not in known:
                worker = status.attempts[-1].instance if status.attempts else status.instance_name
                found.append(Source(status.start_time.timestamp(), task.metadata.name, worker or NO_CALL, log))
        return sorted(found)

    def _is_call(self, task: Task) -> bool:
        """Report whether a task is a call of this function that has begun."""
        call, status = task.spec.function, task.status
        is_own = call is not None and call.name == self._function.metadata.name
        return is_own and status is not None and status.start_time is not None

    def _source(self, begun: BegunCall) -> Source:
        log = log_of(self._function.metadata.namespace, begun.call, begun.uid)
        return Source(begun.time, begun.call, begun.worker, log, begun.id, begun.number)

    def _of_no_call(self, tail: int, *, is_followed: bool) -> list[PastLog]:
        """Return the logs of workers beside calls, and of the preparation of the newest version. Followed ones are read
        separately."""
        objects, preparing, found = self._serving.objects, self._serving.preparing, []
        instances = cast("Sequence[Instance]", objects.owned(Instance.api, self._function.metadata.uid))
        workers = own(self._function, instances)
        for instance in workers:
            made = instance.metadata.creation_timestamp
            log = partial(self._archive.instance_log, subject_of(instance), CONTAINER, tail)
            found.append(PastLog(made.timestamp() if made else 0.0, NO_CALL, instance.metadata.name, log))
        packages = preparing.packages_log(self._function)
        if packages is not None and not is_followed and (changed := _changed_at(packages)) is not None:
            found.append(PastLog(changed, NO_CALL, PACKAGES, partial(LogReader, packages)))
        load, status = preparing.load_log(self._function), self._function.status
        # A worker that still exists has it in its own log.
        newest = status.version if status is not None else None
        is_shown = any(one.spec.template_hash == newest for one in workers)
        if not is_shown and (changed := _changed_at(load)) is not None:
            found.append(PastLog(changed, NO_CALL, LOAD, partial(LogReader, load)))
        return found

    def _may_go_on(self, key: str) -> bool:
        """Report whether a finished call may be retried, and then continues its log."""
        name, _, uid = key.partition("@")
        task = get(self._serving.objects, Task, name, self._function.metadata.namespace)
        return task is not None and task.metadata.uid == uid and not task.over()

    # New logs.

    def _open_new(self) -> None:
        """Open the logs of new calls and workers."""
        line = self._now()
        if line.begun and line.begun[-1].number > self._last_number:
            fresh = [one for one in line.begun if one.number > self._last_number]
            self._coming.extend(map(self._source, fresh))
            self._last_number = line.begun[-1].number
        while self._coming and len(self._open) < FOLLOWED_MAX:
            self._open_call(self._coming.popleft())
        self._open_workers(is_first=False)

    def _open_call(self, source: Source) -> None:
        reader = self._readers.pop(source.key, None) or self._archive.stream(source.log)
        self._readers[source.key] = reader
        if len(self._readers) > KNOWN_MAX:
            self._readers.pop(next(iter(self._readers))).close()
        opened = Open(source.key, f"{source.call} {source.worker} ", reader, self._until_over(source.id), source.began)
        self._open[source.id or source.key] = opened
        self._progress.know(source.number, source.began)
        self._progress.reach(opened.key, opened.position)

    def _open_packages(self, tail: int, begin: Place | None) -> None:
        packages = self._serving.preparing.packages_log(self._function)
        if packages is not None:
            reader = InstanceLog(packages, tail, begin=begin)
            opened = Open(f"{NO_CALL}{PACKAGES}", f"{NO_CALL} {PACKAGES} ", reader, lambda: True)
            self._open[PACKAGES] = opened
            self._progress.reach(opened.key, opened.position)

    def _now(self) -> ServedFunction:
        """Return the calls of the function. It is a new object after this process has become leader again."""
        meta = self._function.metadata
        return self._serving.calls.find(Key(meta.namespace, meta.name)) or self._function_calls

    def _until_over(self, id_: str) -> Callable[[], bool]:
        return lambda: self._serving.calls.is_under_way(id_)

    def _open_workers(self, *, is_first: bool) -> None:
        """Open the logs of new workers. Earlier logs begin at their end, because their last lines are shown already."""
        for worker in self._now().routing.workers:
            subject = worker.subject
            if subject.uid in self._open:
                continue
            key = f"{NO_CALL}{subject.uid}"
            begin = None if is_first else self._places.pop(key, BEGINNING)
            log = self._archive.instance_log(subject, CONTAINER, 0, begin=begin)
            opened = Open(key, f"{NO_CALL} {subject.name} ", log, self._until_gone(subject))
            self._open[subject.uid] = opened
            self._progress.reach(key, opened.position)

    def _until_gone(self, subject: Subject) -> Callable[[], bool]:
        return lambda: self._now().routing.worker(subject.uid) is not None

    def _read(self) -> list[bytes]:
        """Read the logs in turn, up to a bounded number of bytes; the others are first the next time."""
        found: list[bytes] = []
        for id_, one in list(self._open.items()):
            if sum(map(len, found)) > TURN_BYTES_MAX:
                break
            self._open[id_] = self._open.pop(id_)
            # Checked before the read, so that the read includes everything up to the end.
            goes_on = one.goes_on()
            if output := one.read():
                found.append(output)
                self._progress.reach(one.key, one.position)
            elif not goes_on:
                found.append(one.end())
                del self._open[id_]
                if one.began:
                    self._progress.reach(one.key, one.position)
                    self._progress.leave(one.key, one.began)
                else:
                    self._progress.drop(one.key)
        return found


class Open:
    """A followed log."""

    def __init__(self, key: str, prefix: str, reader: Reader, goes_on: Callable[[], bool], began: float = 0.0) -> None:
        """`began` is the start of its call; 0 for the log of a worker."""
        self._prefix = prefix.encode()
        self._rest = b""
        self.key = key
        self.reader = reader
        self.goes_on = goes_on
        self.began = began

    @property
    def position(self) -> int | str:
        """The position of a client that has received every complete line."""
        return self.reader.position(len(self._rest))

    def read(self) -> bytes:
        """Return the lines that are complete."""
        lines, newline, self._rest = (self._rest + self.reader.read(READ_BYTES)).rpartition(b"\n")
        output = prefixed(self._prefix, lines) if newline else b""
        if len(self._rest) > LINE_BYTES_MAX:
            output, self._rest = output + prefixed(self._prefix, self._rest), b""
        return output

    def end(self) -> bytes:
        """Return the rest of an incomplete line."""
        rest, self._rest = self._rest, b""
        self.reader.close()
        return self._prefix + rest + b"\n" if rest else b""


def _changed_at(log: Path) -> float | None:
    """Return the time of the last write to a log; None if it does not exist."""
    try:
        return log.stat().st_mtime
    except OSError:
        return None


def prefixed(prefix: bytes, lines: bytes) -> bytes:
    """Put a prefix before each line. A newline is added to the last one."""
    return prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n"


def _last(logs: list[PastLog], count: int) -> bytes:
    """Return the last lines of all logs, as far as there is room for them."""
    found: list[bytes] = []
    left, room = count, SHOWN_BYTES_MAX
    while logs and left > 0 and room > 0:
        _, call, worker, open_log = logs.pop()
        prefix = f"{call} {worker} ".encode()
        reader = open_log()
        text = whole(reader)
        reader.close()
        # Even empty lines have a prefix.
        if text := last_lines(text, min(left, room // len(prefix) + 1)):
            lines = text.removesuffix(b"\n")
            found.append(prefixed(prefix, lines))
            left -= newlines(lines) + 1
            room -= len(found[-1])
    if room <= 0:
        cut = f"what was written before is not shown: at most {SHOWN_BYTES_MAX} bytes are"
        found.append(f"{NO_CALL} {ROTA} [rota: {cut}]\n".encode())
    return b"".join(reversed(found))
