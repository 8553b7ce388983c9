"""The server's side of the keeper: a connection that reconnects, typed requests, and events."""

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
from rota.runtime.keeper.leases import Leases
from rota.runtime.keeper.messages import (
    Event,
    ExecStarted,
    Exited,
    ExitRecord,
    Hello,
    KeeperError,
    KeeperGone,
    Limits,
    LogSpec,
    Record,
    RecordList,
    Snapshot,
    Started,
)

__all__ = [
    "Event",
    "ExitRecord",
    "Exited",
    "Hello",
    "Keeper",
    "KeeperError",
    "KeeperExecution",
    "KeeperGone",
    "Limits",
    "LogSpec",
    "Record",
    "Snapshot",
    "Started",
]

_CONNECT_ATTEMPTS_MAX = 50
_CONNECT_PAUSE_SECONDS = 0.02
_ANSWER_SECONDS_MAX = 30.0

T = TypeVar("T")


class KeeperExecution:
    """A command that runs beside a child."""

    def __init__(self, keeper: Keeper, key: str, name: str, pid: int, ended: asyncio.Future[ExitRecord]) -> None:
        self._keeper = keeper
        self._key = key
        self._name = name
        self.pid = pid
        self._ended = ended

    async def wait(self) -> ExitRecord:
        return await asyncio.shield(self._ended)

    async def signal(self, number: int) -> None:
        await self._keeper.signal(self._key, number, exec_name=self._name)


class Keeper:
    """A client of the keeper of a home, which it starts if none runs.

    Each call is carried out at most once. `events` misses nothing: it begins with a snapshot on each new connection.
    Closing the client does not end the keeper; `shutdown` does.
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
        self._leases = Leases(lambda leases, unleased: self._extend(leases, unleased=unleased))
        self._listeners: list[socket.socket] = []

    def hold_listeners(self, listeners: Sequence[socket.socket]) -> None:
        """Set the sockets that every connected keeper holds for the server. `ports` explains the purpose."""
        self._listeners = list(listeners)

    @classmethod
    def connect(cls, home: Path, options: Sequence[str] = ()) -> Self:
        """Return a client to enter with `async with`. The options are those of `python -m rota.runtime.keeper`."""
        return cls(home, options)

    @classmethod
    def existing(cls, home: Path) -> Self:
        """Return a client that never starts a keeper: if none runs, its calls raise KeeperError("NotRunning")."""
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
        log: LogSpec,
        limits: Limits | None = None,
        unmet: Sequence[str] = (),
        uid: int | None = None,
        gid: int | None = None,
        pid_namespace: bool = False,
        wrappers: int = 0,
        host_pids: bool = False,
        lease_seconds: float | None = None,
        closed: Sequence[str] = (),
    ) -> Record:
        """Start a program. If this run was started before, return its record instead.

        `wrappers`: the number of processes between the one that is started and the program, which alone gets SIGTERM.
        `unmet`: limits that the caller could not set; the record lists them with those that the keeper could not.
        `host_pids`: use no PID namespace, even if that is how this host holds trees together. `closed`: address ranges
        that the program must not reach. The record says whether the kernel blocks them. `lease_seconds`: the keeper
        ends the program after this time unless `extend` is called, even while no server runs.

        Raises KeeperError("TooOld") if the running keeper does not support leases.
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
            "closed": list(closed),
        }
        extra = {"uid": uid, "gid": gid, "pid_namespace": pid_namespace, "wrappers": wrappers, "host_pids": host_pids}
        if lease_seconds is not None:
            await self._connected()
            Leases.check(self.hello)
            fields["lease_seconds"] = lease_seconds
        return await self._ask("start", fields | extra, Record)

    async def extend(self, leases: Mapping[str, float | None], *, unleased: bool = False) -> None:
        """Set the leases of these keys, in seconds from now. None lifts a lease.

        `unleased`: leave keys alone that have a lease. Raises KeeperError("TooOld") if the running keeper cannot do it.
        """
        await self._connected()
        await self._leases.extend(self.hello, leases, unleased=unleased)

    async def _extend(self, leases: Mapping[str, float | None], *, unleased: bool) -> None:
        await self._ask("extend", {"leases": leases, "unleased": unleased}, dict)

    async def stop(self, key: str, grace_seconds: float, run: str | None = None) -> Record:
        """Send SIGTERM, and SIGKILL after the grace. When this returns, no process of the tree is alive."""
        return await self._ask("stop", {"key": key, "grace_seconds": grace_seconds, "run": run}, Record)

    async def kill(self, key: str, run: str | None = None) -> Record:
        """Kill the process tree of a key. When this returns, none of its processes is alive."""
        return await self._ask("kill", {"key": key, "run": run}, Record)

    async def signal(self, key: str, number: int, exec_name: str | None = None) -> None:
        await self._ask("signal", {"key": key, "signal": int(number), "exec": exec_name}, dict)

    async def list(self) -> list[Record]:
        return (await self._ask("list", {}, RecordList)).records

    async def forget(self, key: str, run: str | None = None) -> None:
        """Drop the record of a key that has exited."""
        await self._ask("forget", {"key": key, "run": run}, dict)
        self._leases.forget(key)

    async def set_shutdown_grace(self, grace_seconds: float) -> None:
        """Set the default grace of a shutdown. It applies as long as this connection is open."""
        await self._ask("allow", {"grace_seconds": grace_seconds}, dict)

    async def shutdown(self, grace_seconds: float | None = None) -> None:
        """Stop everything and end the keeper. When this returns, nothing runs and another keeper may take the home."""
        self._is_done = True
        await self._ask("shutdown", {} if grace_seconds is None else {"grace_seconds": grace_seconds}, dict)
        await self._disconnect()

    async def was_launched(self) -> bool:
        """Report whether this client started a keeper. Waits for a start whose caller was cancelled."""
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
    ) -> KeeperExecution:
        """Run a command beside a child, on these descriptors; the caller closes its own copies.

        `tty`: all three are the far side of `os.openpty`, which becomes the command's controlling terminal.
        """
        connection = await self._connected()
        fields = {"key": key, "argv": argv, "env": env, "cwd": cwd, "tty": tty}
        started = await connection.ask("exec", fields, ExecStarted, streams)
        return KeeperExecution(self, key, started.exec, started.pid, connection.exit_of(started.exec))

    async def events(self) -> AsyncIterator[Event]:
        """Yield a snapshot, then every start and exit; another snapshot follows each new connection.

        Ends when this client is closed or has shut the keeper down. A second iterator takes the place of the first.
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
        await self._leases.close()
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
            # A keeper that is about to end, or to begin.
            await asyncio.sleep(_CONNECT_PAUSE_SECONDS)
        raise KeeperError(
            "Unreachable", f"the keeper of {self._home} does not answer; see {self._home}/keeper/keeper.log"
        )

    async def _hand_listeners(self, connection: Connection) -> None:
        open_ = [one.fileno() for one in self._listeners if one.fileno() >= 0]
        if open_:
            # A keeper of an earlier release does not know this verb.
            with contextlib.suppress(KeeperError):
                await connection.ask("hold", {"count": len(open_)}, dict, open_)

    async def _launch(self) -> None:
        """Start a keeper and wait until it accepts connections. A keeper that another process started will do."""
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
        # On a thread: event loops differ in the descriptors that a child inherits, and a keeper lives long.
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
    """Connect to the keeper of a home. Returns None if none listens."""
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
