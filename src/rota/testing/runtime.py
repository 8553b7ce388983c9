"""A runtime in memory: everything it starts appears to run until it is ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from rota.api.egress import Policy
from rota.engine import Clock
from rota.runtime.interface import BoxSpec, Execution, Exit, NotRunning, Order, Overuse, Owner, Refusal, Run, Subject
from rota.runtime.keeper.protocol import LEASE_ENDED
from rota.testing.archive import MemoryArchive

NOWHERE = Path("/nowhere")
"""The path of files, none of which exist."""
ENDED = 143
"""The exit code of a process that was asked to end."""
ROUNDING_SECONDS = 1e-6


class MemoryRuntime:
    """A runtime whose processes only exist in memory."""

    name = "memory"
    policy = Policy()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.archive = MemoryArchive()
        self._listeners: list[Callable[[Subject], None]] = []
        self._started = 0
        self._leases: dict[Subject, tuple[float, float, float]] = {}
        self.alive: dict[Subject, dict[str, Run]] = {}
        self.has_runner: set[Subject] = set()
        """The instances with a runner."""
        self.overused: dict[Subject, Overuse] = {}
        self.cpu_used: dict[Subject, float] = {}
        self.entered: dict[Subject, int] = {}

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        return self.alive.get(subject, {})

    def known(self, namespace: str, name: str) -> list[Subject]:
        return [one for one in self.alive if (one.namespace, one.name) == (namespace, name)]

    def isolates(self, wanted: object, runtime: str | None = None) -> tuple[bool, str]:
        return (False, "nothing is kept apart") if wanted == "none" else (True, "Sandboxed")

    def overuse(self, subject: Subject) -> Overuse | None:
        return self.overused.get(subject)

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        return {one: self.cpu_used[one] for one in subjects if one in self.cpu_used}

    def refused(self, subject: Subject) -> Sequence[Refusal]:
        return ()

    async def start(self, order: Order) -> Run:
        runs = self.alive.setdefault(order.subject, {})
        known = runs.get(order.container)
        if known is not None and known.number == order.number:
            return known
        self._started += 1
        if order.has_runner:
            self.has_runner.add(order.subject)
        run = runs[order.container] = Run(order.number, f"run-{self._started}", self._clock.time())
        if order.lease_seconds is not None:
            self._lease(order.subject, order.lease_seconds)
        self._notify(order.subject)
        return run

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        for subject, seconds in leases.items():
            if subject not in self.alive or (unleased and subject in self._leases):
                continue
            if seconds is None:
                self._leases.pop(subject, None)
            else:
                self._lease(subject, seconds)

    def _lease(self, subject: Subject, seconds: float) -> None:
        """Set a lease, which expires by the clock that has advanced more, as in the keeper."""
        self._leases[subject] = (self._clock.now(), self._clock.time(), seconds)
        self._clock.call_at(self._clock.now() + seconds, self.look_at_leases)

    def look_at_leases(self) -> None:
        """End the instances whose leases have expired."""
        for subject, (uptime, wall, seconds) in [*self._leases.items()]:
            if max(self._clock.now() - uptime, self._clock.time() - wall) >= seconds - ROUNDING_SECONDS:
                del self._leases[subject]
                for container in [*self.alive.get(subject, {})]:
                    self._end(subject, container, Exit(self._clock.time(), code=ENDED, reason=LEASE_ENDED))

    def power_cut(self) -> None:
        """End everything, without reporting it."""
        self.alive.clear()
        self.has_runner.clear()
        self._leases.clear()

    async def update(self, order: Order) -> None:
        """Do nothing: there are no files."""

    async def box(self, order: Order, digest: str) -> BoxSpec:
        return BoxSpec(order.argv, order.env, str(NOWHERE), "/workspace", f"{NOWHERE}.prepared")

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        if self.alive.pop(subject, None) is not None:
            self._notify(subject)
            self.has_runner.discard(subject)

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        self.die(subject.name, code=ENDED, container=container)

    async def exec(self, subject: Subject, container: str, argv: Sequence[str], **how: object) -> Execution:
        raise NotRunning("nothing runs here")

    def entries(self, subject: Subject) -> int:
        return self.entered.get(subject, 0)

    def storages(self) -> list[tuple[str, Owner]]:
        return []

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        """Do nothing: there is no storage."""

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        for subject in self.alive:
            listener(subject)
        return lambda: self._listeners.remove(listener)

    def die(self, name: str, code: int = 1, lines: str = "", container: str = "main") -> None:
        """End the process of a container."""
        [subject] = [one for one in self.alive if one.name == name]
        self._end(subject, container, Exit(self._clock.time(), code=code, lines=lines))

    def kill(self, namespace: str, name: str) -> None:
        """Kill the processes of an instance. Raises `NotRunning` if there are none."""
        alive = [
            (subject, container)
            for subject in self.known(namespace, name)
            for container, run in self.alive[subject].items()
            if run.exit is None
        ]
        if not alive:
            raise NotRunning(f"nothing runs in Instance/{name}")
        for subject, container in alive:
            self._end(subject, container, Exit(self._clock.time(), signal=signal.SIGKILL))

    def _end(self, subject: Subject, container: str, ended: Exit) -> None:
        run = self.alive[subject][container]
        if run.exit is None:
            self.alive[subject][container] = msgspec.structs.replace(run, exit=ended)
            self._notify(subject)

    def _notify(self, subject: Subject) -> None:
        for listener in self._listeners:
            listener(subject)
