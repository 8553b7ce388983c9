"""`/v1/functions/NAMESPACE/NAME/logs`: what the calls of a function have written, merged, and what they go on to write.

A line is the call, its worker, and what was written there, with a space between. Calls are in the order in which they
began, each with its lines together; of what is written from now on, each line comes when it is complete. What is of no
call has `-` in its place: what a worker wrote while it loaded the code, also if that failed and the worker is gone
(`load` is then in the place of its name), and what pip wrote when it installed the packages (`packages`).
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
"""Logs that are read at once: those of calls that began later come when others are over."""
KNOWN_MAX = 1000
"""Logs of calls that are over, and that another try of the same task may go on with."""
LINE_BYTES_MAX = 1024 * 1024
"""A longer line comes as several."""
SHOWN_BYTES_MAX = 10 * 1024 * 1024
"""Of the last lines, with what is put before each; a little more for the oldest log of them."""
TURN_BYTES_MAX = 1024 * 1024
"""Of what is followed, in one turn: then others have theirs."""
NO_CALL = "-"
PACKAGES, LOAD, ROTA = "packages", "load", "rota"
"""In the place of the worker, of what none has written."""


class Source(NamedTuple):
    """The log of a call that is there."""

    began: float
    call: str
    worker: str
    log: Item
    id: str = ""
    """Of the call, if it began in this process; empty: it is over."""
    number: int = 0

    @property
    def key(self) -> str:
        """By which a position names it."""
        return self.log.owner


class Written(NamedTuple):
    """A log of which the last lines may be shown."""

    began: float
    call: str
    worker: str
    open: Callable[[], Reader]


def function_logs(serving: Serving, objects: Objects, request: Request, namespace: str, name: str) -> Stream:
    """Answer with the last lines, or with what is after a position; with `follow` go on while there is the function."""
    function = get(objects, Function, name, namespace)
    if function is None:
        raise not_found(Function.api, name)
    query = request.query
    tail, begin = number(query, "tail"), position_in(begin_of(query))
    merged = Merged(serving, function)
    return as_stream(request, merged.pieces(TAIL_LINES if tail is None else tail, begin, follow=follows(query)))


class Merged:
    """The logs of one function, as one."""

    def __init__(self, serving: Serving, function: Function) -> None:
        self._serving = serving
        self._archive = serving.runtime.archive
        self._function = function
        self._served = serving.calls.served(function)
        self._seen = 0
        """The number of the last call that is read, or was."""
        self._coming: deque[Source] = deque()
        self._readers: dict[str, Reader] = {}
        """Of calls, by the owner of the log: it is read on where it was left off."""
        self._open: dict[str, Open] = {}
        self._places: dict[str, Place] = {}
        """Where the logs of workers are to be read on, until they are."""
        self._progress = Progress(serving.calls.epoch, self._may_go_on)

    async def pieces(self, tail: int, begin: Position | None, *, follow: bool) -> Pieces:
        try:
            objects, namespace = self._serving.objects, self._function.metadata.namespace
            # Before it is looked which calls have begun: one that begins meanwhile is not told twice.
            tasks = cast("Sequence[Task]", await objects.select(Task.api, namespace, self._is_call))
            begun = list(self._served.begun)
            self._seen = begun[-1].number if begun else 0
            before = b""
            if begin is not None:
                self._resume(begin, begun, tasks)
            else:
                before = await asyncio.to_thread(_last, self._begin(begun, tasks, tail, follow=follow), tail)
            yield Piece(before, self._progress.take())
            rhythm = Rhythm()
            while follow and self._is_there():
                self._see()
                said = b"".join(self._read())
                if change := self._progress.take():
                    yield Piece(said, change)
                    rhythm.heard()
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

    def _begin(self, begun: list[BegunCall], tasks: Sequence[Task], tail: int, *, follow: bool) -> list[Written]:
        """Have what is under way read from now on. Returns all else that was written, the oldest first."""
        calls = self._calls(begun, tasks)
        if follow:
            self._coming.extend(one for one in calls if one.id and self._serving.calls.is_under_way(one.id))
            self._see_workers(is_first=True)
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
            Written(one.began, one.call, one.worker, partial(self._archive.stream, one.log))
            for one in calls
            if one.key not in followed
        ]
        return sorted([*before, *others], key=lambda one: one[:3])

    def _resume(self, begin: Position, begun: list[BegunCall], tasks: Sequence[Task]) -> None:
        """Have everything after a position read: the rest of what was being read, and all of what has begun since."""
        is_same = begin.epoch == self._serving.calls.epoch
        # As many are remembered as there is room for. Those between are found as tasks.
        is_gap = is_same and bool(begun) and begun[0].number > begin.seen + 1
        self._progress.know(begin.seen if is_same else 0, begin.after)
        for one in self._calls(begun, tasks):
            offset = begin.logs.get(one.key)
            if offset is not None:
                self._readers[one.key] = self._archive.stream(one.log, offset if isinstance(offset, int) else 0)
            elif one.number and is_same:
                if one.number <= begin.seen:
                    continue
            elif (is_same and not is_gap) or not begin.may_be_new(one.began):
                continue
            self._coming.append(one)
            self._progress.reach(one.key, offset or 0)
        for key, place in begin.logs.items():
            if key.startswith(NO_CALL) and (found := place_in(str(place))) is not None:
                self._places[key] = found
        self._open_packages(0, self._places.pop(f"{NO_CALL}{PACKAGES}", BEGINNING))

    # What there is.

    def _calls(self, begun: Iterable[BegunCall], tasks: Iterable[Task]) -> list[Source]:
        """The logs of all calls, in the order in which they began."""
        meta = self._function.metadata
        # The newest calls may not be written down yet. Of one that is tried again the last try is told.
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
        """Report whether it is a call of this function that has begun."""
        call, status = task.spec.function, task.status
        is_own = call is not None and call.name == self._function.metadata.name
        return is_own and status is not None and status.start_time is not None

    def _source(self, begun: BegunCall) -> Source:
        log = log_of(self._function.metadata.namespace, begun.call, begun.uid)
        return Source(begun.time, begun.call, begun.worker, log, begun.id, begun.number)

    def _of_no_call(self, tail: int, *, is_followed: bool) -> list[Written]:
        """What workers wrote beside calls, and what was written while the newest version was made ready.

        Each is when it began, no call, who wrote it, and the log. What is followed is read from now on.
        """
        objects, preparing, found = self._serving.objects, self._serving.preparing, []
        instances = cast("Sequence[Instance]", objects.owned(Instance.api, self._function.metadata.uid))
        workers = own(self._function, instances)
        for instance in workers:
            made = instance.metadata.creation_timestamp
            log = partial(self._archive.instance_log, subject_of(instance), CONTAINER, tail)
            found.append(Written(made.timestamp() if made else 0.0, NO_CALL, instance.metadata.name, log))
        packages = preparing.packages_log(self._function)
        if packages is not None and not is_followed and (changed := _changed_at(packages)) is not None:
            found.append(Written(changed, NO_CALL, PACKAGES, partial(LogReader, packages)))
        load, status = preparing.load_log(self._function), self._function.status
        # A worker that is still there has it in its own log.
        newest = status.version if status is not None else None
        is_told = any(one.spec.template_hash == newest for one in workers)
        if not is_told and (changed := _changed_at(load)) is not None:
            found.append(Written(changed, NO_CALL, LOAD, partial(LogReader, load)))
        return found

    def _may_go_on(self, key: str) -> bool:
        """Whether a call whose log was read to its end may be made again, and then writes to the same."""
        name, _, uid = key.partition("@")
        task = get(self._serving.objects, Task, name, self._function.metadata.namespace)
        return task is not None and task.metadata.uid == uid and not task.over()

    # What comes.

    def _see(self) -> None:
        """Calls and workers that are new."""
        line = self._now()
        if line.begun and line.begun[-1].number > self._seen:
            fresh = [one for one in line.begun if one.number > self._seen]
            self._coming.extend(map(self._source, fresh))
            self._seen = line.begun[-1].number
        while self._coming and len(self._open) < FOLLOWED_MAX:
            self._open_call(self._coming.popleft())
        self._see_workers(is_first=False)

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
        """It is another one when this process has led anew."""
        meta = self._function.metadata
        return self._serving.calls.find(Key(meta.namespace, meta.name)) or self._served

    def _until_over(self, id_: str) -> Callable[[], bool]:
        return lambda: self._serving.calls.is_under_way(id_)

    def _see_workers(self, *, is_first: bool) -> None:
        """Of those that there are already, nothing before: that was among the last lines."""
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
        """What came, of one log after the other, until that is enough; the rest of them are first the next time."""
        found: list[bytes] = []
        for id_, one in list(self._open.items()):
            if sum(map(len, found)) > TURN_BYTES_MAX:
                break
            self._open[id_] = self._open.pop(id_)
            # Before it is read: then all that was written until the end is there to be read.
            goes_on = one.goes_on()
            if said := one.read():
                found.append(said)
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
    """A log that is followed."""

    def __init__(self, key: str, prefix: str, reader: Reader, goes_on: Callable[[], bool], began: float = 0.0) -> None:
        """`began` is when the call did that it is of; 0: it is a worker's."""
        self._prefix = prefix.encode()
        self._rest = b""
        self.key = key
        self.reader = reader
        self.goes_on = goes_on
        self.began = began

    @property
    def position(self) -> int | str:
        """Where somebody goes on who has every line that was handed out."""
        return self.reader.position(len(self._rest))

    def read(self) -> bytes:
        """The lines that are complete by now."""
        lines, newline, self._rest = (self._rest + self.reader.read(READ_BYTES)).rpartition(b"\n")
        said = prefixed(self._prefix, lines) if newline else b""
        if len(self._rest) > LINE_BYTES_MAX:
            said, self._rest = said + prefixed(self._prefix, self._rest), b""
        return said

    def end(self) -> bytes:
        """What is left of a line that was not ended."""
        rest, self._rest = self._rest, b""
        self.reader.close()
        return self._prefix + rest + b"\n" if rest else b""


def _changed_at(log: Path) -> float | None:
    """When a log was last written to; None: there is none."""
    try:
        return log.stat().st_mtime
    except OSError:
        return None


def prefixed(prefix: bytes, lines: bytes) -> bytes:
    """The lines with something before each. The newline of the last one is added."""
    return prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n"


def _last(logs: list[Written], count: int) -> bytes:
    """The last lines of all of them, as far as there is room for them."""
    found: list[bytes] = []
    left, room = count, SHOWN_BYTES_MAX
    while logs and left > 0 and room > 0:
        _, call, worker, open_log = logs.pop()
        prefix = f"{call} {worker} ".encode()
        reader = open_log()
        text = whole(reader)
        reader.close()
        # Lines may be empty, and what is put before them is not.
        if text := last_lines(text, min(left, room // len(prefix) + 1)):
            lines = text.removesuffix(b"\n")
            found.append(prefixed(prefix, lines))
            left -= newlines(lines) + 1
            room -= len(found[-1])
    if room <= 0:
        cut = f"what was written before is not shown: at most {SHOWN_BYTES_MAX} bytes are"
        found.append(f"{NO_CALL} {ROTA} [rota: {cut}]\n".encode())
    return b"".join(reversed(found))
