"""The probes of all runs there are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from rota.api.egress import Network
from rota.api.instance import Container, Probe
from rota.engine.clock import Clock, RealClock, Timer
from rota.runtime.interface import Run, Subject
from rota.runtime.probes.attempt import Attempts, Means, Place, RunCommand, means
from rota.runtime.probes.lane import Lane
from rota.runtime.probes.state import ProbeState, Result, Role, first_in_seconds, next_in_seconds

COMMANDS_AT_ONCE_MAX = 32
"""Each is a process, and costs what a process costs."""
CONNECTIONS_AT_ONCE_MAX = 128
"""Each is a descriptor."""
NAMESPACES_AT_ONCE_MIN = 4
"""So many share these bounds: probes that hang for an hour must not be able to hold up those of everybody."""


class _Plan(NamedTuple):
    """What a container asks for: another plan is followed anew."""

    number: int
    readiness: Probe | None
    liveness: Probe | None
    network: Network


class _Line:
    """One probe of one run."""

    def __init__(self, run: _Followed, role: Role, probe: Probe, state: ProbeState) -> None:
        self.run = run
        self.role: Role = role
        self.probe = probe
        self.state = state
        self.means: Means = means(probe, run.place.network)
        self.timer: Timer | None = None
        self.task: asyncio.Task[None] | None = None


class _Followed:
    """One run of a container, and its probes."""

    def __init__(self, plan: _Plan, place: Place) -> None:
        self.plan = plan
        self.place = place
        self.lines: dict[Role, _Line] = {}
        self.turn: list[_Line] = []
        """What is probed, or is in a lane to be, and then what came due meanwhile."""


class Probes:
    """Follows runs. One for a server; `close` ends all of it.

    run_command  how a command is run in a container; see `RunCommand`
    chance       a number from 0 to 1, for what is spread
    """

    def __init__(
        self, run_command: RunCommand, clock: Clock | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock or RealClock()
        self._chance = chance
        self._attempts = Attempts(run_command, self._clock)
        self._lanes = {"command": self._lane(COMMANDS_AT_ONCE_MAX), "connection": self._lane(CONNECTIONS_AT_ONCE_MAX)}
        self._followed: dict[Subject, dict[str, _Followed | None]] = {}
        self._listeners: list[Callable[[Subject], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # What is asked of it.

    def follow(
        self, subject: Subject, container: Container, run: Run, *, network: Network, was_ready: bool = False
    ) -> None:
        """Probe a run as its container asks for. Said again it goes on; another run is begun anew; an end is an end.

        network    "none": its ports are reached from inside only. What runs without a sandbox has the host's
        was_ready  what is written down of this very run, for a server that was away: it is not made unready by that
        """
        containers = self._followed.setdefault(subject, {})
        plan = _Plan(run.number, container.readiness_probe, container.liveness_probe, network)
        known = containers.get(container.name)
        if self._closed or run.exit is not None:
            self._end(known)
            containers[container.name] = None
        elif known is None or known.plan != plan:
            self._end(known)
            containers[container.name] = self._begun(plan, Place(subject, container.name, network), run, was_ready)

    def ready(self, subject: Subject, container: str) -> tuple[bool, str]:
        """Whether a container can be used, and why not if it cannot."""
        followed = self._followed.get(subject, {}).get(container)
        if followed is None:
            return False, f"container {container} is not running"
        line = followed.lines.get("readiness")
        if line is None or line.state.verdict == "Passing":
            return True, ""
        return False, f"container {container} is not ready: {line.state.why or 'its probe has not been made yet'}"

    def must_restart(self, subject: Subject, container: str) -> str | None:
        """Why a container is to be started anew, if it is."""
        followed = self._followed.get(subject, {}).get(container)
        line = followed.lines.get("liveness") if followed else None
        if line is None or line.state.verdict != "Failing":
            return None
        return f"container {container} is not alive: {line.state.why}"

    def forget(self, subject: Subject) -> None:
        """It is gone."""
        for followed in self._followed.pop(subject, {}).values():
            self._end(followed)

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        """Be told when a verdict on an Instance has changed. Returns how to end that."""
        self._listeners.append(heard)
        return lambda: self._listeners.remove(heard)

    def stop(self) -> None:
        """End all probes. Nothing is begun any more."""
        self._closed = True
        for subject in list(self._followed):
            self.forget(subject)

    async def close(self) -> None:
        """`stop`, and wait until nothing is under way."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # How it goes.

    def _lane(self, at_once_max: int) -> Lane[_Line]:
        share_max = at_once_max // NAMESPACES_AT_ONCE_MIN
        return Lane(at_once_max, share_max, lambda line: line.run.place.subject.namespace, self._start)

    def _begun(self, plan: _Plan, place: Place, run: Run, was_ready: bool) -> _Followed:
        followed = _Followed(plan, place)
        up_seconds = self._clock.time() - run.started
        asked: list[tuple[Role, Probe | None]] = [("readiness", plan.readiness), ("liveness", plan.liveness)]
        for role, probe in asked:
            if probe is not None:
                state = ProbeState.first(role, probe.failure_threshold, passed_before=was_ready)
                line = followed.lines[role] = _Line(followed, role, probe, state)
                awaited = state.verdict == "Waiting"
                self._later(line, first_in_seconds(probe, up_seconds, self._chance(), awaited=awaited))
        return followed

    def _end(self, followed: _Followed | None) -> None:
        if followed is None:
            return
        for line in followed.lines.values():
            self._lanes[line.means].drop(line)
            if line.timer is not None:
                line.timer.cancel()
            if line.task is not None:
                line.task.cancel()
        followed.lines.clear()
        followed.turn.clear()

    def _later(self, line: _Line, seconds: float) -> None:
        line.timer = self._clock.call_at(self._clock.now() + seconds, lambda: self._due(line))

    def _due(self, line: _Line) -> None:
        line.timer = None
        line.run.turn.append(line)
        if len(line.run.turn) == 1:
            self._lanes[line.means].enter(line)

    def _start(self, line: _Line) -> None:
        task = line.task = asyncio.create_task(self._make(line), name=f"{line.role} {line.run.place.subject.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._lanes[line.means].leave(line))

    async def _make(self, line: _Line) -> None:
        began = self._clock.now()
        result = await self._attempts.make(line.probe, line.run.place)
        line.task = None
        turn = line.run.turn
        if not turn:
            return  # Its end came while it was made.
        assert turn[0] is line, "one probe of a container at a time"
        del turn[0]
        if turn:
            self._lanes[turn[0].means].enter(turn[0])
        self._later(line, next_in_seconds(line.probe, self._clock.now() - began, self._chance()))
        self._take(line, result)

    def _take(self, line: _Line, result: Result) -> None:
        before, line.state = line.state, line.state.after(result)
        if before.verdict != line.state.verdict:
            for heard in tuple(self._listeners):
                heard(line.run.place.subject)
