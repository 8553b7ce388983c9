"""Schedules the probes of all runs, and keeps their verdicts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from rota.api.egress import Network
from rota.api.instance import Container, Probe
from rota.engine.clock import Clock, RealClock, Timer
from rota.runtime.interface import Run, Subject
from rota.runtime.probes.attempt import Attempts, Means, ProbeTarget, RunCommand, means
from rota.runtime.probes.fair_queue import FairQueue
from rota.runtime.probes.state import ProbeState, Result, Role, first_in_seconds, next_in_seconds

COMMANDS_AT_ONCE_MAX = 32
"""The most probes by command that run at once: each is a process."""
CONNECTIONS_AT_ONCE_MAX = 128
"""The most probes by connection that run at once: each is a descriptor."""
NAMESPACES_AT_ONCE_MIN = 4
"""One namespace gets at most one part in this many of each bound, so that its hanging probes delay no other's."""


class _ProbePlan(NamedTuple):
    """The probes of a run. When the plan changes, probing starts over."""

    number: int
    readiness: Probe | None
    liveness: Probe | None
    network: Network


class _RunProbe:
    """One probe of one run."""

    def __init__(self, run: _RunProbes, role: Role, probe: Probe, state: ProbeState) -> None:
        self.run = run
        self.role: Role = role
        self.probe = probe
        self.state = state
        self.means: Means = means(probe, run.target.network)
        self.timer: Timer | None = None
        self.task: asyncio.Task[None] | None = None


class _RunProbes:
    """The probes of one run of a container."""

    def __init__(self, plan: _ProbePlan, target: ProbeTarget) -> None:
        self.plan = plan
        self.target = target
        self.probes: dict[Role, _RunProbe] = {}
        self.due: list[_RunProbe] = []
        """The probe that runs or is queued, followed by those that came due since."""


class Probes:
    """Probes the runs of a server. Owns tasks: call `close`.

    run_command  runs a command in a container; see `RunCommand`
    chance       returns a number from 0 to 1, by which starts are spread
    """

    def __init__(
        self, run_command: RunCommand, clock: Clock | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock or RealClock()
        self._chance = chance
        self._attempts = Attempts(run_command, self._clock)
        self._queues = {
            "command": self._queue(COMMANDS_AT_ONCE_MAX),
            "connection": self._queue(CONNECTIONS_AT_ONCE_MAX),
        }
        self._followed: dict[Subject, dict[str, _RunProbes | None]] = {}
        self._listeners: list[Callable[[Subject], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # Requests.

    def follow(
        self, subject: Subject, container: Container, run: Run, *, network: Network, was_ready: bool = False
    ) -> None:
        """Probe a run as its container demands. Starts over for another run or other probes, ends with it.

        network    the network of the run; unless it is the host's, ports are probed from inside
        was_ready  the stored verdict on this run, so that a restart of the server does not make it unready
        """
        containers = self._followed.setdefault(subject, {})
        plan = _ProbePlan(run.number, container.readiness_probe, container.liveness_probe, network)
        known = containers.get(container.name)
        if self._closed or run.exit is not None:
            self._end(known)
            containers[container.name] = None
        elif known is None or known.plan != plan:
            self._end(known)
            containers[container.name] = self._begun(
                plan, ProbeTarget(subject, container.name, network), run, was_ready
            )

    def ready(self, subject: Subject, container: str) -> tuple[bool, str]:
        """Return whether a container is ready, and the reason if it is not."""
        followed = self._followed.get(subject, {}).get(container)
        if followed is None:
            return False, f"container {container} is not running"
        one = followed.probes.get("readiness")
        if one is None or one.state.verdict == "Passing":
            return True, ""
        return False, f"container {container} is not ready: {one.state.why or 'its probe has not been made yet'}"

    def must_restart(self, subject: Subject, container: str) -> str | None:
        """Return why a container must be restarted, or None if it need not be."""
        followed = self._followed.get(subject, {}).get(container)
        one = followed.probes.get("liveness") if followed else None
        if one is None or one.state.verdict != "Failing":
            return None
        return f"container {container} is not alive: {one.state.why}"

    def forget(self, subject: Subject) -> None:
        """Stop probing an instance that is gone."""
        for followed in self._followed.pop(subject, {}).values():
            self._end(followed)

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        """Call `listener` when a verdict on an Instance changes. Return a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def stop(self) -> None:
        """End all probes, and accept no new ones."""
        self._closed = True
        for subject in list(self._followed):
            self.forget(subject)

    async def close(self) -> None:
        """End all probes, and wait until none runs."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Scheduling.

    def _queue(self, at_once_max: int) -> FairQueue[_RunProbe]:
        share_max = at_once_max // NAMESPACES_AT_ONCE_MIN
        return FairQueue(at_once_max, share_max, lambda one: one.run.target.subject.namespace, self._start)

    def _begun(self, plan: _ProbePlan, target: ProbeTarget, run: Run, was_ready: bool) -> _RunProbes:
        followed = _RunProbes(plan, target)
        up_seconds = self._clock.time() - run.started
        wanted: list[tuple[Role, Probe | None]] = [("readiness", plan.readiness), ("liveness", plan.liveness)]
        for role, probe in wanted:
            if probe is not None:
                state = ProbeState.first(role, probe.failure_threshold, passed_before=was_ready)
                one = followed.probes[role] = _RunProbe(followed, role, probe, state)
                awaited = state.verdict == "Waiting"
                self._schedule(one, first_in_seconds(probe, up_seconds, self._chance(), awaited=awaited))
        return followed

    def _end(self, followed: _RunProbes | None) -> None:
        if followed is None:
            return
        for one in followed.probes.values():
            self._queues[one.means].drop(one)
            if one.timer is not None:
                one.timer.cancel()
            if one.task is not None:
                one.task.cancel()
        followed.probes.clear()
        followed.due.clear()

    def _schedule(self, one: _RunProbe, seconds: float) -> None:
        one.timer = self._clock.call_at(self._clock.now() + seconds, lambda: self._due(one))

    def _due(self, one: _RunProbe) -> None:
        one.timer = None
        one.run.due.append(one)
        if len(one.run.due) == 1:
            self._queues[one.means].enter(one)

    def _start(self, one: _RunProbe) -> None:
        task = one.task = asyncio.create_task(self._make(one), name=f"{one.role} {one.run.target.subject.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._queues[one.means].leave(one))

    async def _make(self, one: _RunProbe) -> None:
        began = self._clock.now()
        result = await self._attempts.make(one.probe, one.run.target)
        one.task = None
        due = one.run.due
        if not due:
            return  # The run ended while it was probed.
        assert due[0] is one, "one probe of a container at a time"
        del due[0]
        if due:
            self._queues[due[0].means].enter(due[0])
        self._schedule(one, next_in_seconds(one.probe, self._clock.now() - began, self._chance()))
        self._apply(one, result)

    def _apply(self, one: _RunProbe, result: Result) -> None:
        before, one.state = one.state, one.state.after(result)
        if before.verdict != one.state.verdict:
            for listener in tuple(self._listeners):
                listener(one.run.target.subject)
