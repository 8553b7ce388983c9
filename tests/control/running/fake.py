"""A runtime in memory, whose processes live and die as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rota.engine import VirtualClock
from rota.runtime.interface import Box, Execution, Exit, NotRunning, Order, Owner, Refused, Run, Subject


class FakeRuntime:
    name = "fake"

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._listeners: list[Callable[[Subject], None]] = []
        self.alive: dict[Subject, dict[str, Run]] = {}
        self.orders: list[Order] = []
        self.stopped: list[str] = []
        self.updates: list[Order] = []
        self.dropped: list[str] = []
        self.dropped_logs: list[str] = []
        self.refuses: Refused | None = None
        self.sandbox = True
        self.dies_at_once = ""

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        return self.alive.get(subject, {})

    def known(self, namespace: str, name: str) -> list[Subject]:
        return [one for one in self.alive if (one.namespace, one.name) == (namespace, name)]

    def log_file(self, subject: Subject, container: str) -> Path:
        return Path("/nowhere")

    def isolates(self, wanted: object, runtime: str | None = None) -> tuple[bool, str]:
        isolated = self.sandbox and wanted != "none"
        return isolated, "Sandboxed" if isolated else "no sandbox here"

    async def start(self, order: Order) -> Run:
        if self.refuses is not None:
            raise self.refuses
        runs = self.alive.setdefault(order.subject, {})
        known = runs.get(order.container)
        if known is not None and known.number == order.number:
            return known
        assert known is None or known.exit is not None, f"{order.subject.name} is started while it runs"
        others = [s for s in self.alive if s.name == order.subject.name and s.uid != order.subject.uid]
        assert not others, f"two of {order.subject.name} at once"
        self.orders.append(order)
        run = runs[order.container] = Run(order.number, f"run-{len(self.orders)}", self._clock.time())
        self._tell(order.subject)
        if self.dies_at_once and order.argv[0] == self.dies_at_once:
            asyncio.get_running_loop().call_soon(self._die_soon, order, 5)
        return run

    def _die_soon(self, order: Order, turns: int) -> None:
        """Not before it was seen to run."""
        if turns:
            asyncio.get_running_loop().call_soon(self._die_soon, order, turns - 1)
        elif order.subject in self.alive:
            self.die(order.subject.name, container=order.container)

    async def update(self, order: Order) -> None:
        self.updates.append(order)

    async def box(self, order: Order, digest: str) -> Box:
        return Box(order.argv, order.env, "/nowhere", "/workspace", "/nowhere.prepared")

    async def exec(self, subject: Subject, container: str, argv: Sequence[str], **how: object) -> Execution:
        raise NotRunning("nothing runs here")

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        self.die(subject.name, code=143, container=container)

    def task_log(self, namespace: str, name: str, uid: str) -> Path:
        return Path("/nowhere", namespace, f"{name}@{uid}.log")

    def keep_result(self, name: str, uid: str, namespace: str, result: str) -> None: ...

    async def drop_task_logs(self, namespace: str, name: str) -> None:
        self.dropped_logs.append(name)

    def storages(self) -> list[tuple[str, Owner]]:
        return []

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        self.dropped.append(name)

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        self.alive.pop(subject, None)
        self.stopped.append(subject.name)
        self._tell(subject)

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        self._listeners.append(heard)
        for subject in self.alive:
            heard(subject)
        return lambda: self._listeners.remove(heard)

    def die(self, name: str, code: int = 1, lines: str = "", container: str = "main") -> None:
        """What runs under a name ends."""
        [subject] = [one for one in self.alive if one.name == name]
        run = self.alive[subject][container]
        ended = Exit(self._clock.time(), code=code, lines=lines)
        self.alive[subject][container] = msgspec.structs.replace(run, exit=ended)
        self._tell(subject)

    def _tell(self, subject: Subject) -> None:
        for heard in self._listeners:
            heard(subject)
