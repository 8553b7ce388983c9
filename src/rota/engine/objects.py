"""The objects that controllers look at, and the news of them: straight from a store, or from caches of a server.

Reading never waits and never fails. What is read is shared: it must not be changed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar, cast

from rota.api import BY_BUCKET, Kind, Object
from rota.api.shared import DECODED_OBJECTS_MAX, decoded, decoded_anew
from rota.client import ALL_NAMESPACES, Backend, Cache, Client, Key, Update
from rota.client.requests import Sleep
from rota.engine.own_writes import OwnWrites
from rota.registry import Registry
from rota.registry.pacing import Pace
from rota.store import Event

T = TypeVar("T", bound=Object)

Found = list[Object]
Listener = Callable[[Kind, Update[Any]], None]
SELECTED_AT_ONCE = 64
"""Objects that are taken from the store at once, to be looked at one by one."""
TOLD_AT_ONCE = 256
"""Objects that are told of before others have their turn. A number, so that simulations are the same each time."""
OWNER = "owner"
"""The index of objects by the uids of their owners."""


class Objects(Protocol):
    """What controllers need to see."""

    @property
    def error(self) -> Exception | None:
        """What is wrong with the connection, if anything is."""
        ...

    async def __aenter__(self) -> Objects: ...

    async def __aexit__(self, *_: object) -> None: ...

    def sees(self, kind: Kind) -> bool:
        """Report whether objects of this kind are seen here. No others may be asked for."""
        ...

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object, if it is there."""
        ...

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether an object is there."""
        ...

    def id_of(self, kind: Kind, key: Key) -> str:
        """The node of an object, as a text that others have too, where there is one."""
        ...

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """All objects of a kind, or those of a namespace."""
        ...

    async def select(self, kind: Kind, namespace: str, is_wanted: Callable[[Any], bool]) -> Sequence[Object]:
        """Return those of a namespace that are wanted. Gives way to everybody else, however many are looked at.

        For what somebody asks: what is made, changed or removed meanwhile may be among them or not.
        """
        ...

    def owned(self, kind: Kind, owner: str) -> Sequence[Object]:
        """All objects of a kind that name this uid as their owner."""
        ...

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """Be told of everything that is there, then of every change, in order. Returns how to end that."""
        ...

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """As `listen`, but gives way to others while it tells of everything that is there."""
        ...

    def seeing(self, backend: Backend) -> Backend:
        """Return a backend of which every write is seen here when it returns."""
        ...


def get(objects: Objects, type_: type[T], name: str, namespace: str = "") -> T | None:
    """One object of a type, if it is there."""
    return cast("T | None", objects.find(type_.api, namespace, name))


class StoreObjects:
    """The objects of a registry in this process. News is told before the write that made it returns."""

    error: Exception | None = None

    def __init__(self, registry: Registry) -> None:
        self._store = registry.store
        self._registry = registry

    async def __aenter__(self) -> StoreObjects:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing of its own to end."""

    def sees(self, kind: Kind) -> bool:
        return True

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        entry = self._store.get(kind.key(namespace if kind.namespaced else "", name))
        return None if entry is None else decoded(kind, entry.value)

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        return kind.key(namespace if kind.namespaced else "", name) in self._store

    def id_of(self, kind: Kind, key: Key) -> str:
        return self._store.shared(kind.key(*key))

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        prefix = f"{kind.bucket}/{namespace}/" if namespace else f"{kind.bucket}/"
        return [*self._all(kind, prefix)]

    async def select(self, kind: Kind, namespace: str, is_wanted: Callable[[Any], bool]) -> Sequence[Object]:
        prefix = f"{kind.bucket}/{namespace}/"
        found: Found = []
        after, more = "", True
        async with Pace() as pace:
            while more:
                page = self._store.list(prefix, after=after, limit=SELECTED_AT_ONCE)
                for entry in page.entries:
                    await pace()
                    obj = decoded_anew(kind, entry.value)
                    if is_wanted(obj):
                        found.append(obj)
                more = page.more
                after = page.entries[-1].key if more else ""
        return found

    def owned(self, kind: Kind, owner: str) -> Sequence[Object]:
        entries = (self._store.get(key) for key in self._registry.owned(kind, owner))
        return [decoded(kind, entry.value) for entry in entries if entry is not None]

    def _all(self, kind: Kind, prefix: str) -> Iterator[Object]:
        """One after the other: of many, only some are in memory at once."""
        decode = self._decoder(prefix)
        for entry in self._store.scan(prefix):
            yield decode(kind, entry.value)

    def _decoder(self, prefix: str) -> Callable[[Kind, bytes], Object]:
        """Return the decoder for all of these. More than is worth keeping would push out everything else."""
        return decoded if self._store.count(prefix) <= DECODED_OBJECTS_MAX // 2 else decoded_anew

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        wanted = dict.fromkeys(kinds)
        for kind in wanted:
            for obj in self._all(kind, f"{kind.bucket}/"):
                listener(kind, _new(obj))
        return self._store.subscribe(lambda events: _tell(events, wanted, listener))

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        places = {kind: place for place, kind in enumerate(kinds)}
        reached, is_there = (0, ""), False
        late: deque[Event] = deque()
        """News of what was read already. It is told when all is read; what is not read yet is read as it is then."""

        def published(events: list[Event]) -> None:
            if is_there:
                _tell(events, places, listener)
                return
            for event in events:
                kind = BY_BUCKET.get(event.key.partition("/")[0])
                if kind in places and (places[kind], event.key) <= reached:
                    late.append(event)

        end = self._store.subscribe(published)
        try:
            for kind, place in places.items():
                prefix, is_more = f"{kind.bucket}/", True
                decode = self._decoder(prefix)
                while is_more:
                    self._store.tell()
                    page = self._store.list(prefix, after=reached[1], limit=TOLD_AT_ONCE)
                    is_more = page.more
                    reached = (place, page.entries[-1].key) if is_more else (place + 1, "")
                    for entry in page.entries:
                        listener(kind, _new(decode(kind, entry.value)))
                    if is_more:
                        await asyncio.sleep(0)
            while late:
                _tell([late.popleft() for _ in range(min(len(late), TOLD_AT_ONCE))], places, listener)
                if late:
                    await asyncio.sleep(0)
        except BaseException:
            end()
            raise
        is_there = True
        return end

    def seeing(self, backend: Backend) -> Backend:
        return backend


class CachedObjects:
    """The objects of a server, through a cache of each kind."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Kind],
        *,
        namespace: str = ALL_NAMESPACES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`namespace`: the one whose objects are seen. Those that are in none are seen all the same."""
        self._caches = {
            kind: Cache(
                client,
                kind.type,
                namespace=namespace if kind.namespaced else ALL_NAMESPACES,
                indexes={OWNER: _owners},
                sleep=sleep,
            )
            for kind in kinds
        }
        self._open = AsyncExitStack()

    async def __aenter__(self) -> CachedObjects:
        async with AsyncExitStack() as opening:
            for cache in self._caches.values():
                await opening.enter_async_context(cache)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def error(self) -> Exception | None:
        return next((cache.error for cache in self._caches.values() if cache.error is not None), None)

    def sees(self, kind: Kind) -> bool:
        return kind in self._caches

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._caches[kind].get(name, namespace if kind.namespaced else "")

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        return self.find(kind, namespace, name) is not None

    def id_of(self, kind: Kind, key: Key) -> str:
        return kind.key(*key)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return self._caches[kind].list(namespace)

    async def select(self, kind: Kind, namespace: str, is_wanted: Callable[[Any], bool]) -> Sequence[Object]:
        found: Found = []
        async with Pace() as pace:
            for obj in self.list(kind, namespace):
                await pace()
                if is_wanted(obj):
                    found.append(obj)
        return found

    def owned(self, kind: Kind, owner: str) -> Sequence[Object]:
        found = self._caches[kind].by_index(OWNER, owner)
        return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        ends = [self._caches[kind].subscribe(_told(kind, listener)) for kind in kinds]

        def end() -> None:
            for one in ends:
                one()

        return end

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """Its objects are decoded already: to tell of them takes little time."""
        return self.listen(kinds, listener)

    # What was written here is seen at once, and not when the server tells of it.

    def seeing(self, backend: Backend) -> Backend:
        return OwnWrites(backend, self)

    def show(self, kind: Kind, value: bytes) -> None:
        if kind in self._caches:
            self._caches[kind].show(kind.type.decode(value))

    def show_gone(self, kind: Kind, key: Key, uid: str) -> None:
        if kind in self._caches:
            self._caches[kind].show_gone(key, uid)


def _owners(obj: Object) -> list[str]:
    return [reference.uid for reference in obj.metadata.owner_references]


def _new(obj: Object) -> Update[Any]:
    return Update(Key(obj.metadata.namespace, obj.metadata.name), None, obj)


def _tell(events: Iterable[Event], wanted: Container[Kind | None], listener: Listener) -> None:
    for event in events:
        bucket, namespace, name = event.key.split("/", 2)
        kind = BY_BUCKET.get(bucket)
        if kind in wanted:
            assert kind is not None
            old = None if event.prev is None else decoded(kind, event.prev)
            new = None if event.deleted else decoded(kind, event.value)
            listener(kind, Update(Key(namespace, name), old, new))


def _told(kind: Kind, listener: Listener) -> Callable[[Update[Any]], None]:
    return lambda update: listener(kind, update)
