"""Bodies with dependencies, and what tests do with a scheduler, in one word each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from rota.engine import CASCADE, DONE, FORCE, Blocked, Done, Failed, Outcome, Result, Scheduler, VirtualClock

T = TypeVar("T")

TURNS = 30
SOON_SECONDS = 5.0
"""A run that takes longer hangs."""


class HeldScheduler(Scheduler):
    """A scheduler whose `run` does not end while `hold` lasts: more arrivals are to come."""

    _holds = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._pump_soon()

    def _on_idle(self) -> None:
        if not self._holds:
            super()._on_idle()


class Bodies:
    """A dispatcher: the body of every node looks at what the node needs, and says what it found."""

    def __init__(self, graph: Mapping[str, str]) -> None:
        self.graph = {id_: tuple(needs.split()) for id_, needs in graph.items()}
        self.data: set[str] = set()
        """The plain data that is there."""
        self.ran: list[tuple[str, int]] = []
        """Every run, with its level."""
        self.scheduler: HeldScheduler

    def on(self, **options: Any) -> HeldScheduler:
        """A scheduler that runs these bodies."""
        self.scheduler = HeldScheduler(self, clock=options.pop("clock", None) or VirtualClock(), **options)
        return self.scheduler

    def __call__(self, id_: str, level: int) -> Outcome | Awaitable[Outcome]:
        self.ran.append((id_, level))
        return self.decide(id_, level)

    def put(self, id_: str, content: str | None = None) -> None:
        """Data comes to be, and the scheduler is told."""
        self.data.add(id_)
        self.scheduler.arrive(id_, content, runnable=False)

    def ready(self, id_: str) -> bool:
        seen = self.scheduler.view.get(id_)
        return id_ in self.data or (seen is not None and seen.state == "done" and seen.outcome == DONE)

    def failed(self, id_: str) -> bool:
        seen = self.scheduler.view.get(id_)
        return seen is not None and seen.state == "failed"

    def skipped(self, id_: str) -> bool:
        seen = self.scheduler.view.get(id_)
        return seen is not None and seen.state == "done" and seen.status == "Skipped"

    def decide(self, id_: str, level: int) -> Outcome:
        """The rule: wait; later fail for what cannot come; at last fail for whatever is not ready."""
        needs = self.graph[id_]
        failed = tuple(need for need in needs if self.failed(need))
        skipped = tuple(need for need in needs if self.skipped(need))
        undecided = tuple(need for need in needs if need not in failed + skipped and not self.ready(need))
        view = self.scheduler.view
        if level < FORCE:
            waits_for = undecided if level < CASCADE else tuple(filter(view.pending, undecided))
            if waits_for:
                return Blocked(waits_for, message=f"not ready: {', '.join(waits_for)}")
            if undecided:
                because = undecided + failed + skipped
                return Failed(because, message=f"dependency not found: {', '.join(undecided)}")
            if failed:
                return Failed(failed + skipped, message=f"dependencies failed: {', '.join(failed)}")
            if skipped:
                return Failed(skipped, message=f"dependencies skipped: {', '.join(skipped)}")
            return DONE
        if not undecided and not failed and not skipped:
            return DONE
        circle = view.cycle(id_)
        message = f"dependency cycle detected: {' → '.join(circle)}" if circle else f"not ready: {', '.join(undecided)}"
        return Failed(undecided + failed + skipped, message=message)

    def runs(self, id_: str) -> int:
        return sum(ran == id_ for ran, _ in self.ran)

    def order(self) -> list[str]:
        return [id_ for id_, _ in self.ran]


def body_for(graph: Mapping[str, str]) -> Bodies:
    """By node: what it needs, with blanks between."""
    return Bodies(graph)


async def soon(work: Awaitable[T]) -> T:
    """The answer, or an error if it hangs."""
    async with asyncio.timeout(SOON_SECONDS):
        return await work


async def run(scheduler: Scheduler, *seeds: str) -> Result:
    """To the fixpoint, from these."""
    scheduler.seed(seeds)
    return await soon(scheduler.run())


async def settle() -> None:
    """Lets everything that is ready to run do so. It waits for no time to pass."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(scheduler: Scheduler) -> AsyncIterator[None]:
    """While this lasts, the scheduler serves. Then it is cancelled."""
    task = asyncio.create_task(scheduler.serve())
    await settle()
    try:
        yield
    finally:
        await soon(scheduler.cancel())
        await soon(task)


def said(scheduler: Scheduler) -> dict[str, str]:
    """Return the outcome of every node, in words."""
    return {seen.id: word(seen.outcome) for seen in scheduler.view}


def word(outcome: Outcome | None) -> str:
    if isinstance(outcome, Done):
        return outcome.status
    if isinstance(outcome, Failed):
        return f"Failed: {outcome.message}"
    return repr(outcome)


def assert_nothing_left(scheduler: Scheduler) -> None:
    """Nobody waits or runs, and the books say so too."""
    core = scheduler._core
    assert not core.waiting
    assert (core.parked, core.sleeping, core.queued, core.running) == (0, 0, 0, 0)
    assert {id_ for id_ in core.recovering if not scheduler.view.failed_because_of(id_)} == set()
    assert scheduler.view.parked() == scheduler.view.running() == scheduler.view.runnable() == []
    assert not any(scheduler.view.queued().values())
