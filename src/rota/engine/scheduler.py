"""The scheduler on an event loop: to the fixpoint, or for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import Future as ThreadFuture
from typing import Any, NamedTuple, Protocol

from rota.engine.budget import BUDGET
from rota.engine.clock import Clock, RealClock, Timer, VirtualClock
from rota.engine.core import Core
from rota.engine.drain import drain
from rota.engine.node import UNBOUNDED, Node
from rota.engine.outcome import DONE, OUTCOMES, BodyCancelled, Failed, Outcome, Promise, Status
from rota.engine.reruns import EMITTER, SOMEBODY
from rota.engine.view import View

AT_ONCE = 256
"""Bodies that run in a row before other work on the loop."""
LOOP_LOOK_SECONDS = 0.5
"""Seconds between checks of a waiting thread for the end of the loop."""
CONCURRENCY = 64
"""Bound on the concurrent bodies, of those that await."""


class Dispatcher(Protocol):
    """Runs the body of a node at a drain level. Returns the outcome, or an awaitable of it."""

    def __call__(self, id_: str, level: int, /) -> Promise: ...


class Result(NamedTuple):
    """The result of a run to the fixpoint."""

    level: int
    """The highest drain level: 0 none, 1 a dependency could never come, 2 a cycle."""
    cancelled: bool
    error: BaseException | None
    """The first error that a body raised; else that of the first node that did not converge."""


class Observer(Protocol):
    """Called after every run. It must be quick and must not raise."""

    def ran(self, id_: str, outcome: Outcome, waited: float, took: float) -> None: ...


class Scheduler:
    """Runs nodes. The contract is in the package's docstring.

    All methods may be called from bodies, on the loop or on threads, and take effect before they return.

    `rerun_at_drain` is called after each run of a node. It returns whether the node runs again at the fixpoint if
    something has arrived since that run began: for nodes that read everything and have no id to be parked on.
    """

    def __init__(
        self,
        dispatch: Dispatcher,
        *,
        clock: Clock | None = None,
        concurrency: int = CONCURRENCY,
        timeout_seconds: float | None = None,
        lane_of: Callable[[str], Hashable] | None = None,
        lane_limit: Callable[[Hashable], int] = lambda lane: UNBOUNDED,
        rerun_at_drain: Callable[[str], bool] | None = None,
        budget: int = BUDGET,
        live: bool = False,
        observer: Observer | None = None,
    ) -> None:
        assert concurrency >= 1, "something must be able to run"
        self.clock: Clock = clock or RealClock()
        self._dispatch = dispatch
        self._core = Core(
            self.clock,
            live=live,
            lane_of=lane_of,
            lane_limit=lane_limit,
            reruns=rerun_at_drain is not None,
            budget=budget,
        )
        self._rerun_at_drain = rerun_at_drain
        self.view = View(self._core)
        self._concurrency = concurrency
        self._timeout = timeout_seconds
        self._observer: Observer | None = None
        self.observer = observer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tasks: dict[asyncio.Task[None], tuple[Node, Awaitable[Outcome]]] = {}
        self._pumping = False
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._stopping = False
        self._cancelled = False
        self._error: BaseException | None = None
        self._end: asyncio.Future[None] | None = None

    @property
    def observer(self) -> Observer | None:
        """The observer of every run."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observer = observer
        self._core.timed = observer is not None

    @property
    def stopping(self) -> bool:
        """Report whether `stop` or `cancel` was called."""
        return self._stopping

    # Events from outside.

    def seed(self, ids: Iterable[str], after: Callable[[str], Iterable[str]] | None = None) -> None:
        """Add nodes, which run in the order of their ids. Known ones are left alone.

        `after` returns the known needs of a node: it does not run before all of them are ready, or one has failed or
        was skipped; but when serving it runs now and then, like every parked node.
        """
        self._call(self._core.seed, ids, after)
        if self._thread in (0, threading.get_ident()):
            self._pump_soon()

    def arrive(self, id_: str, content: Hashable = None, *, runnable: bool = True) -> None:
        """Report a new or changed thing: a node, which then runs, or plain data, which only wakes others.

        `content` identifies its state: with the same content as before, nothing happens. None is always
        new.
        """
        if self._thread and threading.get_ident() != self._thread:
            self._call_on_loop(lambda: self.arrive(id_, content, runnable=runnable))
            return
        self._core.arrive(id_, content, runnable=runnable)
        if not self._pumping and self._core.queued:
            self._pump_soon()

    def status(self, id_: str, status: Status) -> None:
        """Set the status of a node. All but Pending wake those that wait for it."""
        self._call(self._core.status, id_, status)

    def forget(self, id_: str) -> None:
        """Remove a node."""
        self._call(self._core.forget, id_)

    def remember(self, id_: str) -> None:
        """Cancel the removal of a running node."""
        self._call(self._core.remember, id_)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if self._thread and threading.get_ident() != self._thread:
            self._call_on_loop(lambda: self._call(function, *args))
            return
        function(*args)
        if not self._pumping and self._core.queued:
            self._pump_soon()

    def _call_on_loop(self, call: Callable[[], None]) -> None:
        """Make a call on the loop from a body's thread, and wait for it."""
        assert self._loop is not None
        done: ThreadFuture[None] = ThreadFuture()

        def on_loop() -> None:
            if EMITTER.get() is None:
                EMITTER.set(SOMEBODY)
            try:
                call()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(on_loop)
        while True:
            try:
                return done.result(LOOP_LOOK_SECONDS)
            except TimeoutError:
                if self._loop.is_closed():
                    raise RuntimeError("the loop of the scheduler has ended") from None

    # Start and end.

    async def run(self) -> Result:
        """Run to the fixpoint: until nothing runs, nothing can, and nothing parked could ever go on."""
        assert not self._core.live, "what runs for ever has no fixpoint"
        core = self._core
        core.level = 0
        core.budget.begin()
        self._error = None
        try:
            cancelled = await self._until_end()
        finally:
            core.budget.end()
        return Result(core.level, cancelled, self._error or core.budget.not_converged)

    async def serve(self) -> None:
        """Run until `stop` or `cancel`."""
        assert self._core.live, "make it with live=True"
        await self._until_end()

    async def _until_end(self) -> bool:
        """Run until the end. Return whether it was cancelled."""
        assert self._end is None, "it runs already"
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._end = self._loop.create_future()
        if self._stopping:
            self._finish()
        self._pump_soon()
        try:
            await self._end
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            cancelled = self._cancelled
            self._stopping = self._cancelled = False
            self._end = None
        return cancelled

    async def stop(self) -> None:
        """Start nothing more, and wait for the running bodies, unless called from one.

        Called before `run` or `serve`, it ends those at once.
        """
        self._stopping = True
        if asyncio.current_task() in self._tasks:
            return
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._finish()

    async def cancel(self) -> None:
        """Start nothing more, cancel the running bodies, and wait for them, unless called from one."""
        self._cancelled = self._stopping = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await self.stop()

    def _finish(self) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def _finish_if_stopped(self) -> None:
        if self._stopping and not self._tasks:
            self._finish()

    # Running bodies.

    def _pump_soon(self) -> None:
        if self._loop is not None and not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Run runnable nodes, up to `AT_ONCE`."""
        core, dispatch, observer = self._core, self._dispatch, self.observer
        tracks = core.reruns is not None
        finish = self._finished if tracks else core.finish
        if self._end is None or self._stopping:
            self._pumping = False
            self._finish_if_stopped()
            return
        core.fire()
        for _ in range(AT_ONCE):
            if len(self._tasks) >= self._concurrency:
                break
            node = core.take()
            if node is None:
                break
            began = core.clock.now() if observer else 0.0
            try:
                answer = dispatch(node.id, node.level) if not tracks else self._dispatch_as(node)
            except asyncio.CancelledError:
                answer = self._raised(BodyCancelled(f"{node.id}: its body was cancelled"))
            except Exception as error:
                answer = self._raised(error)
            except BaseException as error:
                self._pumping = False
                self._finished(node, self._raised(error))
                self._stopping = True
                self._end.set_exception(error)
                return
            if answer is DONE or type(answer) in OUTCOMES:
                if observer:
                    observer.ran(node.id, answer, began - node.queued, core.clock.now() - began)  # type: ignore[arg-type]
                finish(node, answer)  # type: ignore[arg-type]
            else:
                self._run_concurrently(node, answer)  # type: ignore[arg-type]
            if self._stopping:
                break
        self._pumping = False
        if self._stopping:
            self._finish_if_stopped()
            return
        if core.sleeping and not core.live and not isinstance(self.clock, VirtualClock):
            self._wait_for_timers()
        if core.queued and len(self._tasks) < self._concurrency and core.has_ready():
            self._pump_soon()
        elif core.live:
            self._wait_for_timers()
        elif not core.running:
            self._on_idle()

    def _dispatch_as(self, node: Node) -> Promise:
        """Run a body with its node as the emitter."""
        # The context ends with this callback; a body that awaits has a copy of it.
        EMITTER.set(node)
        return self._dispatch(node.id, node.level)

    def _on_idle(self) -> None:
        """Go on when nothing runs and nothing can: advance the clock, drain, or finish."""
        core = self._core
        if core.queued:
            return
        if core.sleeping:
            due = core.next_due()
            assert due is not None
            if isinstance(self.clock, VirtualClock):
                self.clock.advance_to(due)
                self._pump_soon()
        elif drain(core):
            self._pump_soon()
        else:
            self._finish()

    def _wait_for_timers(self) -> None:
        due = self._core.next_due()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.clock.call_at(due, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._pump_soon()

    def _run_concurrently(self, node: Node, answer: Awaitable[Outcome]) -> None:
        assert self._loop is not None
        self._core.note_concurrent(node)
        task = self._loop.create_task(self._body(node, answer))
        self._tasks[task] = (node, answer)
        task.add_done_callback(self._finish_unbegun)

    async def _body(self, node: Node, answer: Awaitable[Outcome]) -> None:
        began = self.clock.now() if self.observer else 0.0
        try:
            if self._timeout is None:
                outcome = await answer
            else:
                async with asyncio.timeout(self._timeout) as limit:
                    outcome = await answer
                if limit.expired():
                    raise TimeoutError  # it ignored the cancellation
            if type(outcome) not in OUTCOMES:
                raise TypeError(f"{node.id}: {outcome!r} is no outcome")
        except asyncio.CancelledError:
            outcome = self._raised(BodyCancelled(f"{node.id}: its body was cancelled"))
        except TimeoutError as error:
            late = self._timeout is not None and limit.expired()
            outcome = self._raised(TimeoutError(f"{node.id}: not done in {self._timeout} s") if late else error)
        except Exception as error:
            outcome = self._raised(error)
        if self.observer:
            self.observer.ran(node.id, outcome, began - node.queued, self.clock.now() - began)
        self._tasks.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
        self._finished(node, outcome)
        self._pump_soon()

    def _finish_unbegun(self, task: asyncio.Task[None]) -> None:
        """Finish the node of a task that was cancelled before it began."""
        left = self._tasks.pop(task, None)
        if left is None:
            return
        node, answer = left
        if (close := getattr(answer, "close", None)) is not None:
            close()
        if task.cancelled():
            error: BaseException = BodyCancelled(f"{node.id}: its body was cancelled")
        else:
            error = task.exception() or BodyCancelled(node.id)
        outcome = self._raised(error)
        if self.observer:
            self.observer.ran(node.id, outcome, 0.0, 0.0)
        self._finished(node, outcome)
        self._pump_soon()

    def _finished(self, node: Node, outcome: Outcome) -> None:
        """Finish a node, and note whether it runs again at the fixpoint."""
        if self._rerun_at_drain is None:
            self._core.finish(node, outcome)
            return
        again = False
        try:
            again = self._rerun_at_drain(node.id)
        except Exception as error:
            outcome = self._raised(error)
        self._core.finish_and_mark(node, outcome, again=again)

    def _raised(self, error: BaseException) -> Failed:
        if self._error is None and not (self._stopping and isinstance(error, BodyCancelled)):
            self._error = error
        return Failed(reason=type(error).__name__, message=str(error), error=error)
