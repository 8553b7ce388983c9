"""The server's side of the keeper: one connection that comes back, typed verbs, and what happened meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import rota
from rota.runtime.descriptors import inherited
from rota.runtime.keeper import protocol
from rota.runtime.keeper.connection import Connection
from rota.runtime.keeper.leasing import Leasing
from rota.runtime.keeper.messages import (
    Event,
    ExecStarted,
    Exit,
    Exited,
    Hello,
    KeeperError,
    KeeperGone,
    Limits,
    Log,
    Record,
    Records,
    Snapshot,
    Started,
)

__all__ = [
    "Event",
    "Execution",
    "Exit",
    "Exited",
    "Hello",
    "Keeper",
    "KeeperError",
    "KeeperGone",
    "Limits",
    "Log",
    "Record",
    "Snapshot",
    "Started",
]

_CONNECT_ATTEMPTS_MAX = 50
_CONNECT_PAUSE_SECONDS = 0.02
_ANSWER_SECONDS_MAX = 30.0

T = TypeVar("T")


class Execution:
    """A command that runs beside a child."""

    def __init__(self, keeper: Keeper, key: str, name: str, pid: int, ended: asyncio.Future[Exit]) -> None:
        self._keeper = keeper
        self._key = key
        self._name = name
        self.pid = pid
        self._ended = ended

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    async def signal(self, number: int) -> None:
        await self._keeper.signal(self._key, number, exec_name=self._name)


class Keeper:
    """The keeper of a home: started when there is none, found when there is one.

    Promises: every verb is done at most once by a call; `events` misses nothing, because it begins with a snapshot
    whenever the connection is a new one. Never: ends the keeper when it is closed; that is `shutdown`.
    """

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        self._home = home
        self._options = options
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._is_done = False
        self._may_launch = True
        self._launching: asyncio.Future[subprocess.CompletedProcess[bytes]] | None = None
        self.hello: Hello | None = None
        self._leasing = Leasing(lambda leases, unleased: self._extend(leases, unleased=unleased))
        self._listeners: list[socket.socket] = []

    def have_held(self, listeners: Sequence[socket.socket]) -> None:
        """The sockets that a keeper holds from when it is connected, for as long as it runs: `ports` says why."""
        self._listeners = list(listeners)

    @classmethod
    def connect(cls, home: Path, options: Sequence[str] = ()) -> Self:
        """To be entered with `async with`. The options are those of `python -m rota.runtime.keeper`."""
        return cls(home, options)

    @classmethod
    def existing(cls, home: Path) -> Self:
        """One that is never started: where there is none, everything that is asked of it raises `NotRunning`."""
        keeper = cls(home)
        keeper._may_launch = False
        return keeper

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._disconnect()

    async def start(
        self,
        key: str,
        run: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        log: Log,
        limits: Limits | None = None,
        unmet: Sequence[str] = (),
        uid: int | None = None,
        gid: int | None = None,
        pid_namespace: bool = False,
        wrappers: int = 0,
        host_pids: bool = False,
        lease_seconds: float | None = None,
    ) -> Record:
        """Run it, unless this very run was started before: then what became of it.

        With `wrappers`, the program is so many processes below the one that is started, and it alone is asked to end.
        `unmet` names limits that somebody else should hold, and cannot: they are told of with the rest.
        With `host_pids` it gets no PID namespace of its own, even where that is what holds a tree together.
        With `lease_seconds` it is ended after that time, whether anybody is there to ask for it or not, unless it is
        extended before. Raises KeeperError("TooOld") if the keeper that runs might not do that.
        """
        fields: dict[str, Any] = {
            "key": key,
            "run": run,
            "argv": argv,
            "env": env,
            "cwd": cwd,
            "log": log,
            "limits": limits or Limits(),
            "unmet": list(unmet),
        }
        extra = {"uid": uid, "gid": gid, "pid_namespace": pid_namespace, "wrappers": wrappers, "host_pids": host_pids}
        if lease_seconds is not None:
            await self._connected()
            Leasing.check(self.hello)
            fields["lease_seconds"] = lease_seconds
        return await self._ask("start", fields | extra, Record)

    async def extend(self, leases: Mapping[str, float | None], *, unleased: bool = False) -> None:
        """Let what runs under these keys run for so many seconds from now, whatever lease it had; None: for ever.

        `unleased`: only what has no lease. Raises KeeperError("TooOld") if the keeper that runs cannot do it.
        """
        await self._connected()
        await self._leasing.extend(self.hello, leases, unleased=unleased)

    async def _extend(self, leases: Mapping[str, float | None], *, unleased: bool) -> None:
        await self._ask("extend", {"leases": leases, "unleased": unleased}, dict)

    async def stop(self, key: str, grace_seconds: float, run: str | None = None) -> Record:
        """Ask it to end, then make it; when this returns, nothing of its tree is alive."""
        return await self._ask("stop", {"key": key, "grace_seconds": grace_seconds, "run": run}, Record)

    async def kill(self, key: str, run: str | None = None) -> Record:
        """End it and all its tree at once; when this returns, nothing of it is alive."""
        return await self._ask("kill", {"key": key, "run": run}, Record)

    async def signal(self, key: str, number: int, exec_name: str | None = None) -> None:
        await self._ask("signal", {"key": key, "signal": int(number), "exec": exec_name}, dict)

    async def list(self) -> list[Record]:
        return (await self._ask("list", {}, Records)).records

    async def forget(self, key: str, run: str | None = None) -> None:
        """Drop the record of one that has exited."""
        await self._ask("forget", {"key": key, "run": run}, dict)
        self._leasing.forget(key)

    async def allow(self, grace_seconds: float) -> None:
        """What a shutdown that does not say its grace shall give, for as long as this connection is open."""
        await self._ask("allow", {"grace_seconds": grace_seconds}, dict)

    async def shutdown(self, grace_seconds: float | None = None) -> None:
        """Stop everything and end the keeper; when this returns, nothing runs and the home is free for another."""
        self._is_done = True
        await self._ask("shutdown", {} if grace_seconds is None else {"grace_seconds": grace_seconds}, dict)
        await self._disconnect()

    async def is_launched(self) -> bool:
        """Whether one was started here; also one that nobody waited for, which is there only now."""
        if self._launching is not None:
            await asyncio.wait((self._launching,))
        return self._launching is not None and self._launching.result().returncode == 0

    async def exec(
        self,
        key: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        streams: tuple[int, int, int],
        tty: bool = False,
    ) -> Execution:
        """Run a command where the child is, on these descriptors, of which the caller keeps its own copies to close.

        With `tty` they are a terminal (all three the far side of `os.openpty`), which becomes the command's own.
        """
        connection = await self._connected()
        fields = {"key": key, "argv": argv, "env": env, "cwd": cwd, "tty": tty}
        started = await connection.ask("exec", fields, ExecStarted, streams)
        return Execution(self, key, started.exec, started.pid, connection.exit_of(started.exec))

    async def events(self) -> AsyncIterator[Event]:
        """A snapshot, then every start and exit; again a snapshot when the connection, or the keeper, is a new one.

        Ends when this object was closed or has shut the keeper down. One at a time: a second takes its place.
        """
        self._is_done = False
        while not self._is_done:
            connection = await self._connected()
            with contextlib.suppress(KeeperGone):
                await connection.ask("watch", {}, dict)
            while (event := await connection.events.get()) is not None:
                yield event

    async def _disconnect(self) -> None:
        self._is_done = True
        await self._leasing.end()
        if self._connection is not None:
            await self._connection.close()

    async def _ask(self, verb: str, fields: Mapping[str, Any], kind: type[T]) -> T:
        return await (await self._connected()).ask(verb, fields, kind)

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        for _ in range(_CONNECT_ATTEMPTS_MAX):
            stream = dial(self._home)
            if stream is None and not self._may_launch:
                raise KeeperError("NotRunning", f"no keeper of {self._home} runs")
            if stream is None:
                await self._launch()
                stream = dial(self._home)
            if stream is not None:
                connection = Connection(stream)
                try:
                    hello = connection.ask("hello", {"version": protocol.VERSION}, Hello)
                    self.hello = await asyncio.wait_for(hello, _ANSWER_SECONDS_MAX)
                except (KeeperGone, TimeoutError):
                    await connection.close()
                else:
                    if self.hello.version == protocol.VERSION:
                        await self._hand_listeners(connection)
                        return connection
                    await connection.close()
                    raise KeeperError(
                        "OtherVersion",
                        f"the keeper that runs (process {self.hello.pid}) speaks version {self.hello.version}, this"
                        f" Rota {protocol.VERSION}: stop it with the Rota that started it, or end that process",
                    )
            # One that is about to end, or to begin.
            await asyncio.sleep(_CONNECT_PAUSE_SECONDS)
        raise KeeperError(
            "Unreachable", f"the keeper of {self._home} does not answer; see {self._home}/keeper/keeper.log"
        )

    async def _hand_listeners(self, connection: Connection) -> None:
        open_ = [one.fileno() for one in self._listeners if one.fileno() >= 0]
        if open_:
            # The keeper may be one of an earlier release, which does not know this.
            with contextlib.suppress(KeeperError):
                await connection.ask("hold", {"count": len(open_)}, dict, open_)

    async def _launch(self) -> None:
        """Start one, and wait until it answers. That another was quicker is as good."""
        source = str(Path(rota.__file__).parent.parent)
        argv = [
            sys.executable,
            "-P",
            "-m",
            "rota.runtime.keeper",
            str(self._home),
            "--nofile",
            str(inherited()),
            *self._options,
        ]
        # On a thread: event loops differ in which descriptors of theirs a child gets, and a keeper lives long.
        starting = asyncio.to_thread(
            subprocess.run,
            argv,
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": source},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        self._launching = asyncio.ensure_future(starting)
        process = await asyncio.shield(self._launching)
        if process.returncode not in (0, protocol.EXIT_ALREADY_RUNS):
            raise KeeperError("CannotStart", process.stderr.decode().strip())


def dial(home: Path) -> socket.socket | None:
    """A socket to the keeper of a home; None when nobody listens."""
    try:
        folder = os.open(home / "keeper", os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        stream.connect(f"/proc/self/fd/{folder}/keeper.sock")
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        stream.close()
        return None
    except BaseException:
        stream.close()
        raise
    finally:
        os.close(folder)
    return stream
