"""The runtime of this machine: Instances as children of the keeper, in a sandbox wherever the host can make one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rota.api.egress import Policy
from rota.runtime import composing, sandbox
from rota.runtime.container import container_name
from rota.runtime.containers import WAY, Containers
from rota.runtime.defaults import limits_of
from rota.runtime.disk import Disk
from rota.runtime.egress.refusals import RefusalWatch
from rota.runtime.entering import Starting, find, inside, own_streams, process_of
from rota.runtime.home_archive import HomeArchive
from rota.runtime.interface import (
    BoxSpec,
    Execution,
    NotRunning,
    Order,
    Overuse,
    Owner,
    Reach,
    Refusal,
    Refused,
    Run,
    Subject,
    Wish,
)
from rota.runtime.keeper.client import (
    Keeper,
    KeeperError,
    Limits,
    LogSpec,
)
from rota.runtime.keeper.client import (
    KeeperExecution as KeptExecution,
)
from rota.runtime.keeper.kernel import start_time_of
from rota.runtime.keeper.records import SET_ASIDE
from rota.runtime.kept_runs import KeptRuns, key_of
from rota.runtime.paths import UnsafeName
from rota.runtime.places import Entry, Launch, Places
from rota.runtime.removing import waited_for
from rota.runtime.runner.box import write_note
from rota.runtime.task_logs_bounds import keep_bounded
from rota.runtime.usage import cpu_seconds
from rota.runtime.watchdog import SCRATCH_BYTES_MAX, Bound, RunningInstance, Watchdog, read_bound, write_bound

log = logging.getLogger(__name__)

NO_POLICY = Policy()
REFUSALS_SECONDS = 2.0
"""Seconds between two looks at the refusals of egress proxies."""
RUNNER = ("-P", "-m", "rota.runtime.runner")
CONTAINER_GRACE_SECONDS = 1.5
"""The grace of containers in a shutdown."""
SIGNALLED = 128
"""A signal's number plus this is the exit code that a shell reports for it."""
STRANGER_SECONDS_MAX = 5.0
"""The most seconds for which the start of a server waits for the end of a process that belongs to no instance."""
ENTER_SECONDS_MAX, ENTER_PAUSE_SECONDS = 5.0, 0.005
"""The most seconds for which a command waits until it can enter an instance, and the pause between two attempts."""
CONTAINER_SECONDS_MAX, CONTAINER_PAUSE_SECONDS = 30.0, 0.1
"""The same for containers: an engine starts and inspects them more slowly."""


class LocalRuntime:
    """The runtime of one home. Use it in an `async with`; instances run on when the block is left.

    A keeper is started with the first run of a home.
    """

    name = "local"

    def __init__(
        self,
        home: Path,
        *,
        keeper: Keeper | None = None,
        introduce: Callable[[Subject], Mapping[str, str]] = lambda subject: {},
        disk: Disk | None = None,
        policy: Policy = NO_POLICY,
        listeners: Sequence[socket.socket] = (),
    ) -> None:
        """`introduce` returns the variables by which a runner finds its gateway and authenticates there.

        `disk`: the disk of the home; None: its use by instances is not measured. `listeners`: the server's own sockets,
        which the keeper holds while no server runs.
        """
        self._places = Places(home)
        self._home = self._places.home
        self._keeper = keeper or Keeper.connect(self._home)
        self._keeper.hold_listeners(listeners)
        self._introduce = introduce
        self.policy = policy
        self._containers = Containers(self._places, pulls=policy.network == "host")
        self._runs = KeptRuns(self._places)
        self._following: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self.archive = HomeArchive(self._places)
        self._watchdog = Watchdog(disk, self._watched, self._runs.notify) if disk is not None else None
        self._entries: dict[Subject, int] = {}
        self._numbers = itertools.count(1)
        self._refused = RefusalWatch(self._places.refused_egress)
        self._watching_egress: asyncio.Task[None] | None = None
        self._disk = disk
        self._watching: asyncio.Task[None] | None = None
        self._bounding: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LocalRuntime:
        if (self._home / "keeper").exists():
            try:
                await self._connected()
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                raise
        if self._watchdog is not None and self._disk is not None:
            self._watching = asyncio.create_task(self._watchdog.run(), name="watchdog")
            self._bounding = asyncio.create_task(keep_bounded(self._places.tasks, self._disk), name="logs of tasks")
        return self

    async def answers(self, seconds_max: float) -> bool:
        """Report whether the keeper answers in time. Also True if no keeper runs."""
        try:
            async with asyncio.timeout(seconds_max), Keeper.existing(self._home) as keeper:
                await keeper.list()
        except KeeperError as error:
            return error.reason == "NotRunning"
        except TimeoutError:
            return False
        return True

    async def _connected(self) -> None:
        """Connect to the keeper, and return once all runs are known."""
        async with self._connecting:
            if self._following is None:
                await self._keeper.__aenter__()
                self._warn_of_damage()
                self._following = asyncio.create_task(self._runs.follow(self._keeper), name="keeper")
                await self._runs.until_complete(self._following)
                await self._sweep()
                for subject in self._runs:
                    if self._places.refused_egress(subject):
                        self._watch_egress(subject)
            await self._runs.until_complete(self._following)

    def _warn_of_damage(self) -> None:
        hello = self._keeper.hello
        for name in hello.set_aside if hello is not None else ():
            log.warning("a damaged record of the keeper was set aside: %s", self._home / "keeper" / SET_ASIDE / name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = (self._following, self._watching, self._bounding, self._watching_egress)
        tasks = [task for task in started if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.archive.close()
        await self._containers.close()
        await self._keeper.__aexit__(kind, error, trace)

    async def _sweep(self) -> None:
        """Remove containers that survived a killed keeper, and folders that a killed server left."""
        alive = [container_name(subject, name) for subject in self._runs for name in self._runs.going(subject)]
        await self._containers.sweep(but=alive)
        await self._end_strangers()
        left = await asyncio.to_thread(self._places.strays, list(self._runs))
        # In the background: the folders may be large.
        self._places.discard_all(left)

    async def _end_strangers(self) -> None:
        """End processes whose key belongs to no instance."""
        for key in self._runs.strange:
            log.warning("the record %r of the keeper belongs to no instance: it is ended and forgotten", key)
            try:
                async with asyncio.timeout(STRANGER_SECONDS_MAX):
                    await self._keeper.kill(key)
                    await self._keeper.forget(key)
            except (KeeperError, TimeoutError) as error:
                log.warning("%r was not ended: %s", key, error or "it takes too long")
        self._runs.strange.clear()

    async def shutdown(self) -> None:
        """End everything, and the keeper."""
        hurrying = asyncio.create_task(self._hurry_containers())
        try:
            if self._following is not None or await self._keeper.was_launched():
                await self._keeper.shutdown()
        finally:
            hurrying.cancel()
            await asyncio.gather(hurrying, return_exceptions=True)
        await self._containers.sweep()

    async def _hurry_containers(self) -> None:
        """Remove containers before the keeper's grace is over, because their removal takes a while."""
        await asyncio.sleep(CONTAINER_GRACE_SECONDS)
        await self._containers.sweep()

    # Runs.

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        return self._runs.of(subject)

    def known(self, namespace: str, name: str) -> list[Subject]:
        return [one for one in self._runs if (one.namespace, one.name) == (namespace, name)]

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        return self._runs.listen(listener)

    def isolates(self, wanted: Wish, runtime: str | None = None) -> tuple[bool, str]:
        if runtime == WAY:
            # Without gVisor an order that demands it is refused.
            return True, "GVisor" if wanted == "gvisor" else "Contained"
        if wanted == "gvisor":
            return False, composing.NO_GVISOR
        if wanted == "none":
            return False, "it was asked for without"
        found = sandbox.available()
        return (True, "Sandboxed") if found.ok else (False, found.why_not)

    def overuse(self, subject: Subject) -> Overuse | None:
        return self._watchdog.over(subject) if self._watchdog is not None else None

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        pids = {}
        for subject in subjects:
            going = self._runs.going(subject)
            found = [await self._pid(subject, name, run) for name, run in going.items()]
            if None not in found:
                pids[subject] = [pid for pid in found if pid is not None]
        return await asyncio.to_thread(cpu_seconds, pids) if pids else {}

    async def _pid(self, subject: Subject, container: str, run: Run) -> int | None:
        """Return the pid of a run. For a container, this is its first process, not the engine's client."""
        entry = self._places.enter(subject, container)
        if entry is not None and entry.way == WAY:
            return await self._containers.pid(run, entry)
        return int(run.id.partition("@")[0])

    async def _watched(self) -> dict[Subject, RunningInstance]:
        """Return the running instances with their bounds, for the watchdog."""
        found, containers = await asyncio.to_thread(self._bounds)
        for subject, run, entry in containers:
            pid = await self._container_pid(run, entry)
            if pid is not None:
                found[subject] = found[subject]._replace(pids=(*found[subject].pids, pid))
        return found

    def _bounds(self) -> tuple[dict[Subject, RunningInstance], list[tuple[Subject, Run, Entry]]]:
        """Return the running instances with their bounds, and which runs are containers. Called in a thread."""
        found: dict[Subject, RunningInstance] = {}
        containers = []
        for subject in self._runs:
            going = self._runs.going(subject)
            bound = read_bound(self._places.bound(subject)) if going else None
            if bound is not None:
                found[subject] = RunningInstance(bound, tuple(process_of(run.id)[0] for run in going.values()))
                entries = ((run, self._places.enter(subject, name)) for name, run in going.items())
                containers += [(subject, run, one) for run, one in entries if one is not None and one.way == WAY]
        return found, containers

    async def _container_pid(self, run: Run, entry: Entry) -> int | None:
        """Return the pid of a container's first process, which the keeper did not start; None if it is unknown."""
        try:
            pid = await self._containers.pid(run, entry)
        except Exception as error:
            log.warning("%s: its processes are not known, and are not measured: %s", entry.name, error)
            return None
        # An engine may run on another machine, whose pids are not ours.
        began = start_time_of(pid) if pid is not None else None
        return pid if began is not None and began >= process_of(run.id)[1] else None

    # Refusals of egress.

    def refused(self, subject: Subject) -> list[Refusal]:
        return self._refused.taken(subject)

    def _watch_egress(self, subject: Subject) -> None:
        self._refused.add(subject)
        if self._watching_egress is None:
            self._watching_egress = asyncio.create_task(self._look_for_refusals(), name="refused egress")

    async def _look_for_refusals(self) -> None:
        while True:
            await asyncio.sleep(REFUSALS_SECONDS)
            for subject in await asyncio.to_thread(self._refused.look):
                self._runs.notify(subject)

    # Starting and ending.

    async def start(self, order: Order) -> Run:
        await self._connected()
        known = self.runs(order.subject).get(order.container)
        if known is not None and known.number == order.number:
            return known
        try:
            log_path = self._places.log(order.subject, order.container)
        except UnsafeName as error:
            raise Refused("ConfigurationError", f"it cannot be kept on disk: {error}") from None
        if order.network == "egress":
            self._watch_egress(order.subject)
        log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bound(self._places.bound(order.subject), self._bound(order))
        if order.runtime == WAY:
            made = await self._containers.command(order, lambda: self._runs.notify(order.subject))
        else:
            made = await asyncio.to_thread(self._composed, order)
        key = key_of(order.subject, order.container)
        # The engine holds the limits of a container: here they would be those of its client.
        limits = Limits() if order.runtime == WAY else limits_of(order)
        try:
            record = await self._keeper.start(
                key,
                str(order.number),
                made.argv,
                env=made.env,
                cwd=made.cwd,
                log=LogSpec(str(log_path)),
                limits=limits,
                unmet=made.unmet,
                wrappers=made.wrappers,
                # A runner needs the host's /proc to look after its box, which has a PID namespace of its own.
                host_pids=order.runtime == WAY or order.has_runner,
                lease_seconds=order.lease_seconds,
                closed=() if order.runtime == WAY else composing.closed(order),
            )
        except KeeperError as error:
            if error.reason in ("StartFailed", "BadRequest"):
                raise Refused("ConfigurationError", str(error)) from None
            if error.reason == "TooOld":
                raise Refused("KeeperTooOld", str(error)) from None
            raise
        taken = self._runs.take(record)
        assert taken == order.subject
        return self._runs.of(order.subject)[order.container]

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        keys = {
            key_of(subject, container): seconds
            for subject, seconds in leases.items()
            for container in self._runs.going(subject)
        }
        if keys:
            await self._keeper.extend(keys, unleased=unleased)

    def _bound(self, order: Order) -> Bound:
        bytes_max = order.storage_bytes
        is_promised = bytes_max is not None
        return Bound(str(self._places.work(order)), SCRATCH_BYTES_MAX if bytes_max is None else bytes_max, is_promised)

    def _composed(self, order: Order) -> Launch:
        folder = self._places.folder(order.subject)
        if not order.has_runner:
            return composing.command(self._places, order)
        # Checked now, not when its runner asks for the box.
        composing.is_sandboxed(order)
        # An empty note keeps commands from joining the runner itself while it has no box.
        write_note(self._places.box(order.subject), None)
        env = {"PATH": os.environ.get("PATH", composing.PATH), "ROTA_RUN": str(order.number)}
        variables = {**env, "ROTA_HOME": str(self._home), "ROTA_BOX": str(self._places.box(order.subject))}
        return Launch([sys.executable, *RUNNER], {**variables, **self._introduce(order.subject)}, str(folder))

    async def update(self, order: Order) -> None:
        if order.runtime == WAY:
            await asyncio.to_thread(self._containers.write_volumes, order)
        else:
            await asyncio.to_thread(composing.write_volumes, self._places, order)

    async def box(self, order: Order, digest: str) -> BoxSpec:
        return await asyncio.to_thread(composing.box, self._places, order, digest)

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        runs = dict(self._runs.of(subject))
        await asyncio.gather(*(self._stop(subject, container, run, grace_seconds) for container, run in runs.items()))
        self._runs.forget(subject)
        self._entries.pop(subject, None)
        self._refused.forget(subject)
        await self._containers.remove(subject)
        await waited_for(await asyncio.to_thread(self._places.remove, subject))

    async def _stop(self, subject: Subject, container: str, run: Run, grace_seconds: float) -> None:
        await self._end(subject, container, run, grace_seconds)
        with contextlib.suppress(KeeperError):
            await self._keeper.forget(key_of(subject, container), run=str(run.number))

    async def _end(self, subject: Subject, container: str, run: Run, grace_seconds: float) -> None:
        if run.exit is None:
            if grace_seconds:
                await self._containers.ask_to_end(self._places.enter(subject, container))
            try:
                await self._keeper.stop(key_of(subject, container), grace_seconds, run=str(run.number))
            except KeeperError as error:
                # It may have been forgotten, or replaced by a later run.
                if error.reason not in ("NotFound", "OtherRun"):
                    raise

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        run = self.runs(subject).get(container)
        if run is not None:
            await self._end(subject, container, run, grace_seconds)

    # Commands beside runs.

    def exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        tty: bool,
    ) -> Coroutine[Any, Any, Execution]:
        # Counted at the call, not in the coroutine: a hold may end before its first step, and count as untouched.
        if subject in self._runs:
            self._entries[subject] = next(self._numbers)
        return self._exec(subject, container, argv, env, streams, tty=tty)

    async def _exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        tty: bool,
    ) -> Execution:
        run = self.runs(subject).get(container)
        entry = self._places.enter(subject, container)
        if run is None or run.exit is not None or entry is None:
            raise NotRunning(f"{subject.name} is not running")
        made = await self._inside(subject, container, run, entry, argv, env, tty=tty)
        own_streams(streams, entry.uid)
        started = await self._keeper.exec(
            key_of(subject, container), made.argv, env=made.env, cwd=made.cwd, streams=streams, tty=tty
        )
        return _LocalExecution(started)

    def entries(self, subject: Subject) -> int:
        return self._entries.get(subject, 0)

    async def _inside(
        self,
        subject: Subject,
        container: str,
        run: Run,
        entry: Entry,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        tty: bool,
    ) -> Launch:
        """Return the command that enters a run. Waits for a run that is just being started."""
        is_contained = entry.way == WAY
        deadline = asyncio.get_running_loop().time() + (CONTAINER_SECONDS_MAX if is_contained else ENTER_SECONDS_MAX)
        while True:
            try:
                if is_contained:
                    return await self._containers.inside(run, entry, argv, env, tty=tty)
                found = await asyncio.to_thread(find, self._places, subject, run, entry)
                return await asyncio.to_thread(inside, found, entry, argv, env)
            except Starting:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(CONTAINER_PAUSE_SECONDS if is_contained else ENTER_PAUSE_SECONDS)
            known = self.runs(subject).get(container)
            if known is None or known.id != run.id or known.exit is not None:
                raise NotRunning(f"{subject.name} has just ended")

    def reach(self, subject: Subject, container: str) -> Reach:
        run = self.runs(subject).get(container)
        entry = self._places.enter(subject, container)
        if run is None or run.exit is not None or entry is None:
            raise NotRunning(f"{subject.name} is not running")
        if entry.way == WAY:
            return Reach("")
        if entry.way == "sandbox":
            return Reach(sys.executable, start=entry.cwd)
        # The home of a worker is one of the folders of its storage.
        has_box = self._places.box(subject).exists()
        return Reach(sys.executable, str(Path(entry.home).parent) if has_box else entry.home, entry.cwd)

    # Storages.

    def storages(self) -> Iterable[tuple[str, Owner]]:
        return {(namespace, owner) for namespace, _, owner in self._places.storages()}

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        names = [one for at, one, whose in self._places.storages() if (at, whose) == (namespace, owner)]
        # A storage in use is left: its removal is requested by name when the instance has ended.
        removals = [
            await asyncio.to_thread(self._places.drop, namespace, one, owner)
            for one in names
            if one == name or not (name or self.known(namespace, one))
        ]
        await waited_for(*removals)


class _LocalExecution:
    """A command that runs in the keeper, with exit codes as the interface defines them."""

    def __init__(self, kept: KeptExecution) -> None:
        self._kept = kept

    async def wait(self) -> int:
        ended = await self._kept.wait()
        return ended.code if ended.code is not None else SIGNALLED + (ended.signal or 0)

    async def signal(self, number: int) -> None:
        await self._kept.signal(number)
