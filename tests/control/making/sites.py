"""Places in which makers are tested: all that a test needs beside the interface, so that another maker can be added."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from rota.api import Instance, ObjectMeta
from rota.api.egress import Policy
from rota.api.instance import Container, InstanceSpec
from rota.api.parts import EnvVar
from rota.client import Client, Key
from rota.control.instances.names import subject_of
from rota.control.making.interface import InstanceMaker
from rota.control.making.local import LocalMaker
from rota.engine import StoreObjects, VirtualClock
from rota.registry import Registry
from rota.runtime.interface import Order, Owner, Run, Subject
from rota.runtime.keeper.client import Keeper
from rota.runtime.local import LocalRuntime
from rota.store import MemoryStore
from tests.control.running.fake import FakeRuntime
from tests.until import until_async

PATIENCE_SECONDS = 20.0
MARK = "MARK"
STUBBORN = "stubborn"


class Site(Protocol):
    """A place where instances are made."""

    objects: StoreObjects
    client: Client

    def maker(self) -> InstanceMaker:
        """Another maker on what is there, as after a restart of the server."""
        ...

    def command(self, uid: str, container: str, *, stubborn: bool) -> list[str]:
        """A command that runs until `exit` or its end. A stubborn one takes no notice of a request to end."""
        ...

    async def exit(self, obj: Instance, code: int, container: str = "main") -> None:
        """Have what runs exit by itself."""
        ...

    async def until_up(self, obj: Instance) -> None:
        """Return when what runs has begun to wait for its end."""
        ...

    async def is_alive(self, obj: Instance) -> bool:
        """Report whether anything of an instance runs, found without asking a maker."""
        ...

    async def environment(self, obj: Instance) -> dict[str, str]:
        """The variables of what runs, found without asking a maker."""
        ...

    def set_policy(self, policy: Policy) -> None:
        """The server gives this network, from now on."""
        ...


def an_instance(site: Site, name: str = "one", containers: Sequence[str] = ("main",), **more: Any) -> Instance:
    """An instance of these containers. `more` is of its spec, but for `stubborn`, `marks` and `container`."""
    uid, stubborn = str(uuid4()), more.pop(STUBBORN, False)
    marks, fields = more.pop("marks", {}), more.pop("container", {})
    env = [EnvVar(name=MARK, value=uid), *fields.pop("env", ())]
    made = [
        Container(name=each, command=site.command(uid, each, stubborn=stubborn), env=env, **fields)
        for each in containers
    ]
    return Instance(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid, annotations=marks),
        spec=InstanceSpec(
            **{
                "containers": made,
                "template_hash": "h",
                "ordinal": 0,
                "isolation": "none",
                "termination_grace_period_seconds": 600,
                **more,
            }
        ),
    )


class News:
    """The instances for which a maker has called `wake`."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._changed = asyncio.Event()

    def wake(self, key: Key) -> None:
        self.keys.append(key)
        self._changed.set()

    async def until(self, is_so: Callable[[], bool | Awaitable[bool]]) -> None:
        """Return when something is so. It is looked at when there is news, and at no other time."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self._changed.clear()
                found = is_so()
                if found if isinstance(found, bool) else await found:
                    return
                await self._changed.wait()


class StoringRuntime(FakeRuntime):
    """Knows which storage there is, and waits for the end of what does not end when it is asked to."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.stored: dict[tuple[str, Owner], set[str]] = {}
        self.ends: dict[Subject, asyncio.Event] = {}

    async def start(self, order: Order) -> Run:
        if order.storage_owner is not None:
            self.stored.setdefault((order.subject.namespace, order.storage_owner), set()).add(order.storage_name)
        if order.argv[0] == STUBBORN:
            self.ends[order.subject] = asyncio.Event()
        return await super().start(order)

    def storages(self) -> list[tuple[str, Owner]]:
        return [one for one, names in self.stored.items() if names]

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        names = self.stored.get((namespace, owner), set())
        names -= {name} if name else {*names}

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        if subject in self.ends and grace_seconds:
            await self.ends[subject].wait()
        await super().stop(subject, grace_seconds)


class MemorySite:
    """Runs in memory, and the local maker."""

    def __init__(self, objects: StoreObjects, client: Client) -> None:
        self.objects, self.client = objects, client
        self._runtime = StoringRuntime(VirtualClock(1_700_000_000.0))

    def maker(self) -> InstanceMaker:
        return LocalMaker(self._runtime)

    def command(self, uid: str, container: str, *, stubborn: bool) -> list[str]:
        return [STUBBORN if stubborn else "serve"]

    async def exit(self, obj: Instance, code: int, container: str = "main") -> None:
        subject = subject_of(obj)
        if subject in self._runtime.ends:
            self._runtime.ends[subject].set()
        else:
            self._runtime.die(obj.metadata.name, code, container=container)

    async def until_up(self, obj: Instance) -> None:
        """It is."""

    async def is_alive(self, obj: Instance) -> bool:
        return any(run.exit is None for run in self._runtime.runs(subject_of(obj)).values())

    async def environment(self, obj: Instance) -> dict[str, str]:
        return dict([one for one in self._runtime.orders if one.subject == subject_of(obj)][-1].env)

    def set_policy(self, policy: Policy) -> None:
        self._runtime.policy = policy


class ProcessSite:
    """Real processes, and the local maker."""

    def __init__(self, objects: StoreObjects, client: Client, runtime: LocalRuntime, folder: Path) -> None:
        self.objects, self.client = objects, client
        self._runtime = runtime
        self._folder = folder
        self._open: dict[Path, int] = {}
        """Ends for writing: what waits at the other end would exit if they were closed."""

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def maker(self) -> InstanceMaker:
        return LocalMaker(self._runtime)

    def command(self, uid: str, container: str, *, stubborn: bool) -> list[str]:
        fifo = self._fifo(uid, container)
        os.mkfifo(fifo)
        ignore = "trap '' TERM; " if stubborn else ""
        return ["sh", "-c", f"{ignore}read code < {fifo}; exit $code"]

    async def exit(self, obj: Instance, code: int, container: str = "main") -> None:
        os.write(await self._opened(obj, container), f"{code}\n".encode())
        os.close(self._open.pop(self._fifo(obj.metadata.uid, container)))

    async def until_up(self, obj: Instance) -> None:
        await self._opened(obj, "main")

    def _fifo(self, uid: str, container: str) -> Path:
        return self._folder / f"{uid}-{container}"

    async def _opened(self, obj: Instance, container: str) -> int:
        fifo = self._fifo(obj.metadata.uid, container)

        def is_open() -> bool:
            if fifo not in self._open:
                try:
                    self._open[fifo] = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
            return fifo in self._open

        await until_async(is_open, f"nobody reads {fifo.name}", seconds=PATIENCE_SECONDS)
        return self._open[fifo]

    async def is_alive(self, obj: Instance) -> bool:
        return any(True for _ in _environments(obj))

    async def environment(self, obj: Instance) -> dict[str, str]:
        # One that is just being executed has no environment to be found by.
        found: dict[str, str] | None = None

        def is_found() -> bool:
            nonlocal found
            found = next(_environments(obj), None)
            return found is not None

        await until_async(is_found, "no process of it is found", seconds=PATIENCE_SECONDS)
        assert found is not None
        return found

    def set_policy(self, policy: Policy) -> None:
        self._runtime.policy = policy


def _environments(obj: Instance) -> Iterator[dict[str, str]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace").split("\0")
            variables = dict(line.split("=", 1) for line in lines if "=" in line)
            if variables.get(MARK) == obj.metadata.uid:
                yield variables


@contextlib.asynccontextmanager
async def site_of(kind: str, folder: Path) -> AsyncIterator[Site]:
    registry = Registry(MemoryStore())
    await registry.start()
    objects, client = StoreObjects(registry), Client.local(registry, manager="test", namespace="default")
    try:
        if kind == "memory":
            yield MemorySite(objects, client)
            return
        home = folder / "home"
        home.mkdir(mode=0o700)
        keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
        async with LocalRuntime(home, keeper=keeper) as runtime:
            site = ProcessSite(objects, client, runtime, folder)
            try:
                yield site
            finally:
                site.close()
                await runtime.shutdown()
    finally:
        await registry.stop()
