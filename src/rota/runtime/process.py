"""Instances as OS processes of this machine, owned by the keeper; in a sandbox wherever the host can make one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

from rota.runtime import sandbox
from rota.runtime.interface import Exit, Order, Refused, Run, Subject
from rota.runtime.keeper.client import Exited, Keeper, KeeperError, Limits, Log, Record, Snapshot, Started

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are looked for, unless the environment says otherwise."""
TAIL_BYTES_MAX = 2_048
TAIL_LINES_MAX = 10
"""Of the output of what has ended, for people."""
HOME_INSIDE = "/workspace"
"""Where an instance without storage has its folder, in a sandbox."""

Wish = Literal["none", "sandbox"] | None


class ProcessRuntime:
    """The processes of one home. Use it in an `async with`; what runs goes on when it is left.

    A home in which nothing ever ran has no keeper: one is started when something is to run.
    """

    name = "process"

    def __init__(self, home: Path, *, keeper: Keeper | None = None) -> None:
        self._home = home.absolute()
        self._keeper = keeper or Keeper.connect(self._home)
        self._runs: dict[Subject, dict[str, Run]] = {}
        self._listeners: list[Callable[[Subject], None]] = []
        self._ended: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._following: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> ProcessRuntime:
        if (self._home / "keeper").exists():
            await self._connected()
        return self

    async def _connected(self) -> None:
        """Returns when everything that runs is known."""
        async with self._connecting:
            if self._following is None:
                await self._keeper.__aenter__()
                self._following = asyncio.create_task(self._follow(), name="keeper")
            await self._known.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._keeper.__aexit__(kind, error, trace)

    async def shutdown(self) -> None:
        """End everything, and the keeper."""
        if self._following is not None:
            await self._keeper.shutdown()

    # What is there.

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        return self._runs.get(subject, {})

    def known(self, namespace: str, name: str) -> list[Subject]:
        return [one for one in self._runs if (one.namespace, one.name) == (namespace, name)]

    def isolates(self, wanted: Wish) -> tuple[bool, str]:
        if wanted == "none":
            return False, "it was asked for without"
        found = sandbox.available()
        return found.ok, found.why_not

    def log_file(self, subject: Subject, container: str) -> Path:
        return Path(f"{self._log(subject, container)}.log")

    def _log(self, subject: Subject, container: str) -> Path:
        return self._folder(subject) / "logs" / container

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        self._listeners.append(heard)
        for subject in list(self._runs):
            heard(subject)
        return lambda: self._listeners.remove(heard)

    async def _follow(self) -> None:
        async for event in self._keeper.events():
            if isinstance(event, Snapshot):
                before, self._runs = self._runs, {}
                for record in event.records:
                    self._take(record)
                changed = {one for one in (*before, *self._runs) if before.get(one) != self._runs.get(one)}
                self._known.set()
            else:
                assert isinstance(event, Started | Exited)
                changed = {self._take(event.record)}
            for subject in changed:
                for heard in tuple(self._listeners):
                    heard(subject)

    def _take(self, record: Record) -> Subject:
        subject, container = _parsed(record.key)
        run = _run(record)
        known = self._runs.setdefault(subject, {}).get(container)
        # The answer to a start may come after the news of its end.
        if known is None or (known.number, known.exit is not None) <= (run.number, run.exit is not None):
            self._runs[subject][container] = run
        if record.exit is not None:
            waiting = self._ended.pop((record.key, record.run), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        return subject

    # Starting and ending.

    async def start(self, order: Order) -> Run:
        await self._connected()
        # Found out once, which takes a moment.
        await asyncio.to_thread(sandbox.available)
        if not order.argv:
            raise Refused("ConfigurationError", f"container {order.container} has no command, and a process needs one")
        if order.isolation == "sandbox" and not sandbox.available().ok:
            raise Refused("NotIsolated", f"a sandbox was asked for: {sandbox.available().why_not}")
        isolated, _ = self.isolates(order.isolation)
        command, cwd = self._in_sandbox(order) if isolated else self._plain(order)
        key, log = _key(order.subject, order.container), self._log(order.subject, order.container)
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        limits = Limits(memory=order.memory_bytes, cpu=order.cpus)
        try:
            record = await self._keeper.start(
                key, str(order.number), command.argv, env=command.env, cwd=cwd, log=Log(str(log)), limits=limits
            )
        except KeeperError as error:
            if error.reason == "StartFailed":
                raise Refused("ConfigurationError", str(error)) from None
            raise
        self._take(record)
        return self._runs[order.subject][order.container]

    def _in_sandbox(self, order: Order) -> tuple[sandbox.Command, str]:
        folder, inside = self._storage(order)
        uid = None
        if os.getuid() == 0:
            uid = sandbox.uid_of(f"{order.subject.namespace}/{order.storage_name or order.subject.name}")
            sandbox.own(folder, uid)
        scratch = self._folder(order.subject) / f"sandbox-{order.container}"
        scratch.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            made = sandbox.command(
                order.argv,
                scratch=scratch,
                storage=sandbox.Bind(folder, inside),
                files=dict(order.files),
                env=dict(order.env),
                cwd=order.working_dir or inside,
                network=order.network,
                uid=uid,
                hostname=order.subject.name,
                hide=[self._home],
            )
        except ValueError as error:
            raise Refused("ConfigurationError", str(error)) from None
        return made, "/"

    def _plain(self, order: Order) -> tuple[sandbox.Command, str]:
        if order.files:
            raise Refused("ConfigurationError", "volumes need a sandbox: another process has no places of its own")
        folder, _ = self._storage(order)
        env = {"PATH": PATH, "HOME": str(folder), **order.env}
        program = shutil.which(order.argv[0], path=env["PATH"])
        if program is None:
            raise Refused("ConfigurationError", f"there is no program {order.argv[0]} in {env['PATH']}")
        return sandbox.Command([program, *order.argv[1:]], env), order.working_dir or str(folder)

    def _storage(self, order: Order) -> tuple[Path, str]:
        """The folder of an instance, and the place it has inside."""
        if order.storage_name:
            folder = self._home / "storage" / order.subject.namespace / order.storage_name
        else:
            folder = self._folder(order.subject) / "work"
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        return folder, order.storage_path or HOME_INSIDE

    def _folder(self, subject: Subject) -> Path:
        return self._home / "instances" / subject.namespace / f"{subject.name}-{subject.uid}"

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        runs = dict(self._runs.get(subject, {}))
        await asyncio.gather(*(self._stop(subject, container, run, grace_seconds) for container, run in runs.items()))
        self._runs.pop(subject, None)
        await asyncio.to_thread(shutil.rmtree, self._folder(subject), ignore_errors=True)

    async def _stop(self, subject: Subject, container: str, run: Run, grace_seconds: float) -> None:
        key, name = _key(subject, container), str(run.number)
        if run.exit is None:
            with contextlib.suppress(_Gone):
                await self._end_gently(key, name, run, grace_seconds)
        with contextlib.suppress(KeeperError):
            await self._keeper.forget(key, run=name)

    async def _end_gently(self, key: str, name: str, run: Run, grace_seconds: float) -> None:
        ended = self._ended.setdefault((key, name), asyncio.get_running_loop().create_future())
        pid = int(run.id.partition("@")[0])
        try:
            # A signal to a sandbox itself ends it at once: what runs in it has to be asked.
            if grace_seconds and await asyncio.to_thread(sandbox.deliver, pid, signal.SIGTERM):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(ended), grace_seconds)
                grace_seconds = 0
            await self._keeper.stop(key, grace_seconds, run=name)
        except KeeperError as error:
            if error.reason not in ("NotFound", "OtherRun"):
                raise
            raise _Gone from None
        finally:
            self._ended.pop((key, name), None)


class _Gone(Exception):  # noqa: N818
    """It is not there any more."""


def _key(subject: Subject, container: str) -> str:
    return "/".join((*subject, container))


def _parsed(key: str) -> tuple[Subject, str]:
    namespace, name, uid, container = key.split("/")
    return Subject(namespace, name, uid), container


def _run(record: Record) -> Run:
    ended = None
    if record.exit is not None:
        found = record.exit
        reason = "OutOfMemory" if found.oom else found.reason or ""
        ended = Exit(found.time, found.code, found.signal, reason, _tail(Path(f"{record.log.path_prefix}.log")))
    return Run(int(record.run), f"{record.pid}@{record.pid_start}", record.started, ended)


def _tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-TAIL_LINES_MAX:])
