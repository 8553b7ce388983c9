"""The routing of a function's calls to its workers, and the queue of waiting calls. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rota.runtime.interface import Subject

QUEUE_SLACK = 64
"""Entries of calls that do not wait any more, which a queue may hold before it is compacted."""


class Worker:
    """One worker, and the calls that it has."""

    def __init__(self, subject: Subject, version: str, concurrency: int) -> None:
        self.subject = subject
        self.version = version
        self.concurrency = concurrency
        self.is_open = False
        """True if the worker takes calls now."""
        self.calls: set[str] = set()
        self.stream: object = None
        """The runner's stream on which its calls were sent. A new stream means that these calls are lost."""

    @property
    def has_room(self) -> bool:
        return self.is_open and len(self.calls) < self.concurrency


class Queue:
    """Waiting calls, in the order of their arrival."""

    def __init__(self) -> None:
        self._order: deque[str] = deque()
        self._there: set[str] = set()

    def __len__(self) -> int:
        return len(self._there)

    def __iter__(self) -> Iterator[str]:
        return iter([one for one in self._order if one in self._there])

    def add(self, call: str, *, first: bool) -> None:
        self._there.add(call)
        if first:
            self._order.appendleft(call)
        else:
            self._order.append(call)

    def leave(self, call: str) -> None:
        self._there.discard(call)
        if len(self._order) > 2 * len(self._there) + QUEUE_SLACK:
            self._order = deque(self)

    def pop(self) -> str:
        while (call := self._order.popleft()) not in self._there:
            pass
        self._there.discard(call)
        return call


class Routing:
    """The workers of one function, and the calls that wait for one.

    Callers wait in a queue with a bound, and tasks in another one without. The two are served alternately, so that
    neither has to wait for all of the other.
    """

    def __init__(self, waiting_max: int) -> None:
        self.version = ""
        """The version that calls go to, if a worker of it is open."""
        self._waiting_max = waiting_max
        self._workers: dict[str, Worker] = {}
        self._callers, self._tasks = Queue(), Queue()
        self._is_turn_of_tasks = False

    @property
    def workers(self) -> Iterable[Worker]:
        return self._workers.values()

    @property
    def waiting(self) -> int:
        return len(self._callers) + len(self._tasks)

    @property
    def is_full(self) -> bool:
        """True if the queue of callers is at its bound."""
        return len(self._callers) >= self._waiting_max

    @property
    def under_way(self) -> int:
        return sum(len(worker.calls) for worker in self._workers.values())

    @property
    def is_served(self) -> bool:
        """True if at least one worker takes calls, busy or not."""
        return any(worker.is_open for worker in self._workers.values())

    def open_workers(self) -> set[str]:
        """Return the uids of workers that take calls now."""
        return {uid for uid, worker in self._workers.items() if worker.is_open}

    def worker(self, uid: str) -> Worker | None:
        return self._workers.get(uid)

    def add_worker(self, subject: Subject, version: str, concurrency: int) -> Worker:
        """Return a worker, and add it if it is new."""
        worker = self._workers.get(subject.uid)
        if worker is None:
            worker = self._workers[subject.uid] = Worker(subject, version, concurrency)
        return worker

    def remove_worker(self, uid: str) -> set[str]:
        """Remove a worker, and return the calls that it had."""
        worker = self._workers.pop(uid, None)
        return worker.calls if worker is not None else set()

    def take(self, call: str, *, is_task: bool = False, first: bool = False) -> Worker | None:
        """Give a call a worker. Returns None if no worker is free; the call is queued, at the head if `first`."""
        if self.waiting == 0 or first:
            worker = self._chosen()
            if worker is not None:
                worker.calls.add(call)
                return worker
        (self._tasks if is_task else self._callers).add(call, first=first)
        return None

    def leave(self, call: str) -> None:
        """Remove a call from the queue."""
        self._callers.leave(call)
        self._tasks.leave(call)

    def next(self) -> tuple[str, Worker] | None:
        """Give the next waiting call a worker, and return both. None: no call waits, or no worker is free."""
        worker = self._chosen() if self.waiting else None
        if worker is None:
            return None
        is_task = not self._callers or (self._is_turn_of_tasks and bool(self._tasks))
        self._is_turn_of_tasks = not is_task
        call = (self._tasks if is_task else self._callers).pop()
        worker.calls.add(call)
        return call, worker

    def all_waiting(self) -> list[str]:
        return [*self._callers, *self._tasks]

    def impatient(self) -> list[str]:
        """Return the waiting calls without those of tasks."""
        return list(self._callers)

    def _chosen(self) -> Worker | None:
        rooms = [worker for worker in self._workers.values() if worker.has_room]
        # Workers of other versions get calls only while none of this version is open: otherwise they would never idle.
        if any(worker.is_open and worker.version == self.version for worker in self._workers.values()):
            rooms = [worker for worker in rooms if worker.version == self.version]
        return min(rooms, key=lambda worker: (len(worker.calls), worker.subject.name), default=None)
