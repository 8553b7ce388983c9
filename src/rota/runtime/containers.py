"""The containers of a home: their commands, their images, and their removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from rota.runtime.composing import NO_RUNNER, write_volumes
from rota.runtime.container import Engine, available, container_name
from rota.runtime.container.availability import REMEMBERED
from rota.runtime.entering import Starting
from rota.runtime.interface import Order, Refused, Run, Subject
from rota.runtime.keeper.protocol import hash_of
from rota.runtime.places import Entry, Launch, Places
from rota.runtime.sandbox import Bind

WAY = "container"
REMOVED_AT_ONCE_MAX = 8
NO_EGRESS = (
    "network egress is for what runs as a process, in a sandbox: a container has no proxy. "
    "Choose network none or host, or leave out runtime container"
)
FETCH_NOTICE_SECONDS = 1.0
"""Seconds that an order waits for its image, before it is refused as Provisioning."""
FETCH_KEPT_SECONDS = 60.0


class Containers:
    """Makes the commands of orders for containers. The engine is looked for at the first one."""

    def __init__(self, places: Places, *, pulls: bool = True) -> None:
        """`pulls`: whether missing images are pulled."""
        self._places = places
        self._pulls = pulls
        self._label = hash_of(str(places.home.resolve()))
        self._fetches: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Pulls by tenant and image. Kept for a while after their end: refused orders come again for the result."""
        self._up: dict[str, str] = {}
        """The run of each container that is known to be up, by its name."""
        self._pids: dict[str, tuple[str, int]] = {}
        """The run of each container and its pid, by its name."""

    async def command(self, order: Order, fetched: Callable[[], None]) -> Launch:
        """Return the command of an order. Raises `Refused`. `fetched` is called at the end of a pull."""
        if order.has_runner:
            raise Refused("ConfigurationError", NO_RUNNER)
        if order.network == "egress":
            raise Refused("ConfigurationError", NO_EGRESS)
        engine = await self._engine()
        if not order.image:
            raise Refused("ConfigurationError", f"container {order.container} has no image, and a container needs one")
        await self._fetch(engine, order, fetched)
        name = container_name(order.subject, order.container)
        # A killed client may have left a container of this name.
        await engine.remove(name)
        shown = await asyncio.to_thread(self.write_volumes, order)
        storage = await asyncio.to_thread(self._places.storage, order) if order.storage_name else None
        made = engine.command(order, name=name, home_label=self._label, storage=storage, volumes=shown)
        entry = Entry(WAY, order.working_dir, "", {}, None, name)
        self._places.write_entry(order.subject, order.container, entry)
        # An engine's monitor writes files to its working directory.
        return Launch(made.argv, made.env, str(self._places.folder(order.subject)), unmet=engine.unmet(order))

    def write_volumes(self, order: Order) -> list[Bind]:
        # For all users: the mode of the home keeps others out.
        return write_volumes(self._places, order, for_all=True)

    async def inside(self, run: Run, entry: Entry, argv: Sequence[str], env: Mapping[str, str], *, tty: bool) -> Launch:
        """Return the command that runs `argv` in a container. Raises `Starting` until the container is up."""
        engine = await self._engine()
        if self._up.get(entry.name) != run.id:
            if not await engine.is_running(entry.name):
                raise Starting("the container is just being started")
            self._up[entry.name] = run.id
        made = engine.exec_command(entry.name, argv, tty=tty, env=env, cwd=entry.cwd)
        return Launch(made.argv, made.env)

    async def pid(self, run: Run, entry: Entry) -> int | None:
        """Return the pid of a container's first process, or None until it is up."""
        known = self._pids.get(entry.name)
        if known is None or known[0] != run.id:
            found = await (await self._engine()).pid(entry.name)
            if found is None:
                return None
            known = self._pids[entry.name] = (run.id, found)
        return known[1]

    async def ask_to_end(self, entry: Entry | None) -> None:
        """Send a container its stop signal by the engine. Its client, if just started, may lose a signal."""
        if entry is not None and entry.way == WAY:
            await (await self._engine()).ask_to_end(entry.name)

    async def remove(self, subject: Subject) -> None:
        """Remove the containers of an instance completely."""
        for entry in self._places.entries(subject):
            if entry.way == WAY:
                self._up.pop(entry.name, None)
                self._pids.pop(entry.name, None)
                await (await self._engine()).remove(entry.name)

    async def sweep(self, but: Collection[str] = ()) -> None:
        """Remove all containers of this home except those named in `but`."""
        if not (self._places.home / REMEMBERED).exists():
            return
        engine = (await available(self._places.home)).engine
        if engine is not None:
            names = [name for name in await engine.listed(self._label) if name not in but]
            at_once = asyncio.Semaphore(REMOVED_AT_ONCE_MAX)

            async def remove(name: str) -> None:
                async with at_once:
                    await engine.remove(name)

            await asyncio.gather(*map(remove, names))

    async def close(self) -> None:
        for fetch in self._fetches.values():
            fetch.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)

    async def _engine(self) -> Engine:
        engine, why_not = await available(self._places.home)
        if engine is None:
            raise Refused("ConfigurationError", f"runtime container was asked for: {why_not}")
        return engine

    async def _fetch(self, engine: Engine, order: Order, fetched: Callable[[], None]) -> None:
        """Return once an image is there. Raises `Refused` while it is being pulled, or if it cannot be pulled."""
        tenant, image = key = order.subject.namespace, order.image
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = self._fetches[key] = asyncio.create_task(
                engine.ensure_image(image, pulls=self._pulls, tenant=tenant), name=f"image {image}"
            )
            fetch.add_done_callback(lambda over: self._forget_later(key, over))
            await asyncio.wait((fetch,), timeout=FETCH_NOTICE_SECONDS)
        if not fetch.done():
            fetch.add_done_callback(lambda _: fetched())
            raise Refused("Provisioning", f"the image {image} is being fetched")
        # The next order looks again: the image may be removed or loaded meanwhile.
        self._fetches.pop(key, None)
        fetch.result()

    def _forget_later(self, key: tuple[str, str], fetch: asyncio.Task[None]) -> None:
        """Forget an ended pull after FETCH_KEPT_SECONDS."""

        def forget() -> None:
            if self._fetches.get(key) is fetch:
                del self._fetches[key]

        if not fetch.cancelled():
            fetch.exception()
        asyncio.get_running_loop().call_later(FETCH_KEPT_SECONDS, forget)
