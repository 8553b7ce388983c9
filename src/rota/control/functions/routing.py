"""Which worker of a function gets a call, and who waits. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rota.runtime.interface import Subject

QUEUE_SLACK = 64
"""So many who wait no more may be in a queue before they are taken out."""


class Worker:
    """One worker, as far as calls go."""

    def __init__(self, subject: Subject, version: str, concurrency: int) -> None:
        self.subject = subject
        self.version = version
        self.concurrency = concurrency
        self.is_open = False
        """Whether it takes calls now."""
        self.calls: set[str] = set()
        self.stream: object = None
        """On which it is told of calls: another one knows nothing of those that were told on this."""

    @property
    def has_room(self) -> bool:
        return self.is_open and len(self.calls) < self.concurrency


class Queue:
    """Who waits, in the order in which they came."""

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

    Callers that wait have a queue that has a bound, and tasks another one: the two take turns, so that neither has to
    wait for all of the other.
    """

    def __init__(self, waiting_max: int) -> None:
        self.version = ""
        """The one that is wanted."""
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
        """Whether no more callers may wait."""
        return len(self._callers) >= self._waiting_max

    @property
    def under_way(self) -> int:
        return sum(len(worker.calls) for worker in self._workers.values())

    @property
    def is_served(self) -> bool:
        """Whether any worker takes calls."""
        return any(worker.is_open for worker in self._workers.values())

    def open_workers(self) -> set[str]:
        """Those that take calls now, by uid."""
        return {uid for uid, worker in self._workers.items() if worker.is_open}

    def worker(self, uid: str) -> Worker | None:
        return self._workers.get(uid)

    def meet(self, subject: Subject, version: str, concurrency: int) -> Worker:
        """A worker that there is."""
        worker = self._workers.get(subject.uid)
        if worker is None:
            worker = self._workers[subject.uid] = Worker(subject, version, concurrency)
        return worker

    def part(self, uid: str) -> set[str]:
        """A worker is gone. Returns the calls that went with it."""
        worker = self._workers.pop(uid, None)
        return worker.calls if worker is not None else set()

    def take(self, call: str, *, is_task: bool = False, first: bool = False) -> Worker | None:
        """The worker that a call gets now. None: it waits, before all others if it was sent away by one."""
        if self.waiting == 0 or first:
            worker = self._chosen()
            if worker is not None:
                worker.calls.add(call)
                return worker
        (self._tasks if is_task else self._callers).add(call, first=first)
        return None

    def leave(self, call: str) -> None:
        """A call waits no more."""
        self._callers.leave(call)
        self._tasks.leave(call)

    def next(self) -> tuple[str, Worker] | None:
        """Whose turn it is, and the worker that it gets. None: nobody waits, or nobody has room."""
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
        """Return the calls that wait and that somebody waits for: all but tasks."""
        return list(self._callers)

    def _chosen(self) -> Worker | None:
        rooms = [worker for worker in self._workers.values() if worker.has_room]
        # Only when none of the newest can be called do others get calls: else they would never be done.
        if any(worker.is_open and worker.version == self.version for worker in self._workers.values()):
            rooms = [worker for worker in rooms if worker.version == self.version]
        return min(rooms, key=lambda worker: (len(worker.calls), worker.subject.name), default=None)
