"""Makes one probe: a command in the instance, or a connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from rota.api.egress import Network
from rota.api.instance import Probe
from rota.engine.clock import Clock
from rota.runtime.interface import Subject
from rota.runtime.probes import inside
from rota.runtime.probes.state import PASSED, Result, failed, unknown

RunCommand = Callable[[Subject, str, Sequence[str], float], Awaitable[int]]
"""Runs a command in a container, and returns its exit code.

The command is killed when its seconds are over, with TimeoutError, and when the call is cancelled. Any other exception
means that Rota could not run it: the container is not at fault.
"""
Means = Literal["command", "connection"]

START_SECONDS_MAX = 5.0
"""The most seconds that Rota's own probe program may take to start. They do not count as the container's time."""
OVERDUE_SECONDS = 5.0
"""Seconds after its timeout within which a command must have been killed."""
PATH_SAFE = "/%?&=:@!$'()*+,;~[]"


class ProbeTarget(NamedTuple):
    """A container to probe, and its network."""

    subject: Subject
    container: str
    network: Network


def means(probe: Probe, network: Network) -> Means:
    """Return how to make a probe. A container with its own network namespace is probed by a command inside."""
    return "command" if probe.exec is not None or network != "host" else "connection"


class Attempts:
    """Makes probes on the clock of Rota."""

    def __init__(self, run_command: RunCommand, clock: Clock) -> None:
        self._run_command = run_command
        self._clock = clock

    async def make(self, probe: Probe, target: ProbeTarget) -> Result:
        """Make a probe, and return its result. Raises no exception."""
        try:
            if probe.exec is not None:
                return await self._run(probe, target, probe.exec.command, probe.timeout_seconds, _by_command)
            if target.network != "host":
                seconds = probe.timeout_seconds + START_SECONDS_MAX
                return await self._run(probe, target, command_inside(probe), seconds, _by_inside)
            async with _within(self._clock, probe.timeout_seconds):
                return await _dial(probe)
        except TimeoutError:
            return _silent(probe)
        except ConnectionRefusedError:
            return failed(f"{_described(probe)}: nothing listens there")
        except ConnectionError as error:
            return failed(f"{_described(probe)}: {error.strerror}")
        except Exception as error:
            return unknown(f"{_described(probe)} could not be tried: {error}")

    async def _run(
        self,
        probe: Probe,
        target: ProbeTarget,
        argv: Sequence[str],
        seconds: float,
        judged: Callable[[Probe, int], Result],
    ) -> Result:
        overdue = False
        try:
            async with _within(self._clock, seconds + OVERDUE_SECONDS) as limit:
                try:
                    code = await self._run_command(target.subject, target.container, argv, seconds)
                finally:
                    overdue = limit.expired()
        except TimeoutError:
            return unknown("the command could not be ended in time") if overdue else _silent(probe)
        except Exception as error:
            return unknown(f"the command could not be run: {error}")
        return judged(probe, code)


def command_inside(probe: Probe) -> list[str]:
    """Return the command that probes a port from inside."""
    port, path = _target(probe)
    python = os.path.realpath(sys.executable)
    return [python, "-I", "-S", "-c", _text(), str(probe.timeout_seconds), str(port), *([] if path is None else [path])]


@cache
def _text() -> str:
    return Path(inside.__file__).read_text(encoding="utf-8")


def _target(probe: Probe) -> tuple[int, str | None]:
    """Return the port, and for HTTP the path, quoted so that it cannot break the request line."""
    if probe.http_get is not None:
        return probe.http_get.port, quote(probe.http_get.path, safe=PATH_SAFE, errors="replace")
    assert probe.tcp_socket is not None
    return probe.tcp_socket.port, None


async def _dial(probe: Probe) -> Result:
    port, path = _target(probe)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as opened:
        opened.setblocking(False)
        await loop.sock_connect(opened, (inside.HOST, port))
        if inside.connects_to_itself(opened, port):
            raise ConnectionRefusedError
        if path is None:
            return PASSED
        await loop.sock_sendall(opened, inside.request(port, path))
        head = b""
        while len(head) < inside.HEAD_BYTES_MAX:
            part = await loop.sock_recv(opened, inside.HEAD_BYTES_MAX - len(head))
            if not part:
                return failed(f"{_described(probe)}: the connection was closed without an answer")
            head += part
            try:
                status = inside.status_of(head)
            except ValueError:
                break
            if status is not None:
                return PASSED if inside.passes(status) else failed(f"{_described(probe)} was answered with {status}")
        return failed(f"{_described(probe)}: the answer is not HTTP")


def _by_command(probe: Probe, code: int) -> Result:
    return PASSED if code == 0 else failed(f"the command exited with code {code}")


def _by_inside(probe: Probe, code: int) -> Result:
    described = _described(probe)
    match code:
        case 0:
            return PASSED
        case inside.REFUSED:
            return failed(f"{described}: nothing listens there")
        case inside.SILENT:
            return _silent(probe)
        case inside.NO_HTTP:
            return failed(f"{described}: the answer is not HTTP")
        case inside.CLOSED:
            return failed(f"{described}: the connection was closed without an answer")
        case inside.UNREACHABLE:
            return failed(f"{described}: it cannot be reached")
    if inside.WRONG_STATUS < code < inside.WRONG_STATUS + 10:
        return failed(f"{described} was answered with a status of {code - inside.WRONG_STATUS}xx")
    return unknown(f"{described} could not be tried: the program for it ended with code {code}")


def _silent(probe: Probe) -> Result:
    what = "the command" if probe.exec is not None else _described(probe)
    return failed(f"{what} took longer than {probe.timeout_seconds} s")


def _described(probe: Probe) -> str:
    port, path = _target(probe)
    return f"a connection to port {port}" if path is None else f"GET {path} of port {port}"


@contextlib.asynccontextmanager
async def _within(clock: Clock, seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError once so many seconds of the clock have passed."""
    async with asyncio.timeout(None) as limit:
        timer = clock.call_at(clock.now() + seconds, lambda: limit.reschedule(asyncio.get_running_loop().time()))
        try:
            yield limit
        finally:
            timer.cancel()
