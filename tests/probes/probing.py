"""Containers that are probed in a time that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from rota.api.instance import Container, ExecAction, HTTPGetAction, Probe, TCPSocketAction
from rota.engine import VirtualClock
from rota.runtime.interface import Exit, Run, Subject
from rota.runtime.probes import Probes

TURNS = 30
START = 1_700_000_000.0


def subject(name: str = "agents-0", namespace: str = "default") -> Subject:
    return Subject(namespace, name, f"uid-of-{name}")


def asking(*command: str, **more: Any) -> Probe:
    return Probe(exec=ExecAction(command=list(command or ("check",))), **more)


def getting(port: int, path: str = "/", **more: Any) -> Probe:
    return Probe(http_get=HTTPGetAction(port=port, path=path), **more)


def connecting(port: int, **more: Any) -> Probe:
    return Probe(tcp_socket=TCPSocketAction(port=port), **more)


def a_container(readiness: Probe | None = None, liveness: Probe | None = None, name: str = "main") -> Container:
    return Container(name=name, readiness_probe=readiness, liveness_probe=liveness)


def a_run(number: int = 0, started: float = START, code: int | None = None) -> Run:
    return Run(number, f"run-{number}", started, None if code is None else Exit(started, code=code))


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Commands:
    """Instead of commands in instances: a test says what they come to."""

    def __init__(self) -> None:
        self.codes: dict[str, int | BaseException] = {}
        """By instance; nothing said: 0."""
        self.hang = False
        self.calls: list[tuple[str, str, tuple[str, ...], float]] = []
        self.times: list[float] = []
        self.now: Callable[[], float] = lambda: 0.0
        self.running: list[str] = []
        self.running_max = 0
        self._gate = asyncio.Event()

    async def run(self, subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        self.calls.append((subject.name, container, tuple(argv), seconds))
        self.times.append(self.now())
        self.running.append(subject.name)
        self.running_max = max(self.running_max, len(self.running))
        try:
            if self.hang:
                await self._gate.wait()
        finally:
            self.running.remove(subject.name)
        code = self.codes.get(subject.name, 0)
        if isinstance(code, BaseException):
            raise code
        return code

    def go_on(self) -> None:
        """End everything that hangs, and let nothing hang any more."""
        self.hang = False
        self._gate.set()


class World:
    """Probes in virtual time. Use it in an `async with`."""

    def __init__(self, chance: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = VirtualClock(START)
        self.commands = Commands()
        self.commands.now = self.clock.now
        self.probes = Probes(self.commands.run, self.clock, chance)
        self.told: list[str] = []
        self.stop_listening = self.probes.listen(lambda one: self.told.append(one.name))

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.probes.close()
        assert not self.commands.running, "nothing is left behind"

    def follow(self, container: Container, run: Run | None = None, one: Subject | None = None, **more: Any) -> None:
        self.probes.follow(one or subject(), container, run or a_run(), network=more.pop("network", "host"), **more)

    async def pass_(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, in steps: what comes due in a step is done before the next."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(min(step, until - self.clock.now()))
            await settle()

    def ready(self, one: Subject | None = None) -> bool:
        return self.probes.ready(one or subject(), "main")[0]

    def why(self) -> str:
        return self.probes.ready(subject(), "main")[1]

    def must_restart(self) -> str | None:
        return self.probes.must_restart(subject(), "main")
