"""The runs of a home, by the records of its keeper."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rota.runtime.interface import Exit, Run, Subject
from rota.runtime.keeper.client import Exited, Keeper, KeeperGone, Record, Snapshot, Started
from rota.runtime.paths import step
from rota.runtime.places import Places

TAIL_BYTES_MAX = 2_048
TAIL_LINES_MAX = 10
"""The most bytes and lines of a run's last output that are kept with its exit, for people."""


class KeptRuns:
    """The newest run of each container of each Instance. `follow` keeps them up to date; cancel it at the end."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._runs: dict[Subject, dict[str, Run]] = {}
        self._listeners: list[Callable[[Subject], None]] = []
        self._is_complete = asyncio.Event()
        self.strange: set[str] = set()
        """Keys of the keeper's records that belong to no instance."""

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._runs

    def __iter__(self) -> Iterator[Subject]:
        return iter(list(self._runs))

    def of(self, subject: Subject) -> Mapping[str, Run]:
        """Return the newest run of each container of an Instance."""
        return self._runs.get(subject, {})

    def going(self, subject: Subject) -> dict[str, Run]:
        """Return the runs of an Instance that have not ended."""
        return {name: run for name, run in list(self.of(subject).items()) if run.exit is None}

    def forget(self, subject: Subject) -> None:
        self._runs.pop(subject, None)

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        for subject in self:
            listener(subject)
        return lambda: self._listeners.remove(listener)

    def notify(self, subject: Subject) -> None:
        for listener in tuple(self._listeners):
            listener(subject)

    async def follow(self, keeper: Keeper) -> None:
        """Receive the records of a keeper, and notify listeners of changes. Runs until the keeper's events end."""
        async for event in keeper.events():
            if isinstance(event, Snapshot):
                before, self._runs = self._runs, {}
                for record in event.records:
                    self.take(record)
                changed = {one for one in (*before, *self._runs) if before.get(one) != self._runs.get(one)}
                self._is_complete.set()
            else:
                assert isinstance(event, Started | Exited)
                taken = self.take(event.record)
                changed = set() if taken is None else {taken}
            for subject in changed:
                self.notify(subject)

    async def until_complete(self, following: asyncio.Task[None]) -> None:
        """Return once all runs are known. Raises if the connection to the keeper ends first."""
        if self._is_complete.is_set():
            return
        waiting = asyncio.ensure_future(self._is_complete.wait())
        try:
            await asyncio.wait((waiting, following), return_when=asyncio.FIRST_COMPLETED)
            if not self._is_complete.is_set():
                following.result()
                raise KeeperGone
        finally:
            waiting.cancel()

    def take(self, record: Record) -> Subject | None:
        """Store the run of a record. Return its instance, or None if it belongs to no instance."""
        try:
            subject, container = _parsed(record.key)
            run = _run(record, self._places.log_text(subject, container))
        except ValueError:
            self.strange.add(record.key)
            return None
        known = self._runs.setdefault(subject, {}).get(container)
        # The answer to a start may come after the news of its end.
        if known is None or (known.number, known.exit is not None) <= (run.number, run.exit is not None):
            self._runs[subject][container] = run
        return subject


def key_of(subject: Subject, container: str) -> str:
    return "/".join((*subject, container))


def _parsed(key: str) -> tuple[Subject, str]:
    """Return the instance and container that a keeper's key names. Raises ValueError for a key that names none."""
    namespace, name, uid, container = map(step, key.split("/"))
    return Subject(namespace, name, uid), container


def _run(record: Record, log_path: str) -> Run:
    """Return the run that a keeper's record describes. The log path in the record is not trusted."""
    ended = None
    if record.exit is not None:
        found = record.exit
        reason = "OutOfMemory" if found.oom else found.reason or ""
        ended = Exit(found.time, found.code, found.signal, reason, _tail(Path(f"{log_path}.log")))
    id_ = f"{record.pid}@{record.pid_start}"
    return Run(int(record.run), id_, record.started, ended, tuple(record.limits_unmet), record.closed)


def _tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-TAIL_LINES_MAX:])
