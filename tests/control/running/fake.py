"""A runtime in memory, whose processes live and die as a test wants, and that keeps what it was told."""

from __future__ import annotations

import asyncio

import msgspec

from rota.engine import VirtualClock
from rota.runtime.interface import Order, Owner, Refused, Run, Subject
from rota.testing.runtime import MemoryRuntime


class FakeRuntime(MemoryRuntime):
    is_cluster = False

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.orders: list[Order] = []
        self.stopped: list[str] = []
        self.updates: list[Order] = []
        self.dropped: list[str] = []
        self.refuses: Refused | None = None
        self.sandbox = True
        self.dies_at_once = ""
        self.limits_unmet: tuple[str, ...] = ()

    def isolates(self, wanted: object, runtime: str | None = None) -> tuple[bool, str]:
        return super().isolates(wanted, runtime) if self.sandbox else (False, "no sandbox here")

    async def start(self, order: Order) -> Run:
        if self.refuses is not None:
            raise self.refuses
        known = self.runs(order.subject).get(order.container)
        if known is not None and known.number == order.number:
            return known
        assert known is None or known.exit is not None, f"{order.subject.name} is started while it runs"
        others = [s for s in self.alive if s.name == order.subject.name and s.uid != order.subject.uid]
        assert not others, f"two of {order.subject.name} at once"
        self.orders.append(order)
        run = await super().start(order)
        if self.limits_unmet:
            run = msgspec.structs.replace(run, limits_unmet=self.limits_unmet)
            self.alive[order.subject][order.container] = run
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

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        self.dropped.append(name)

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        self.stopped.append(subject.name)
        await super().stop(subject, grace_seconds)
