"""The objects that controllers read, and their events: from a store in this process, or from caches of a server.

Reading never waits and never fails. Objects are shared: they must not be changed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar, cast

from rota.api import BY_BUCKET, Kind, Object
from rota.api.decoding import DECODED_OBJECTS_MAX, decoded, decoded_anew
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
"""Size of the pages in which `select` reads the store."""
REPORTED_AT_ONCE = 256
"""Objects that are reported before other work runs. A count, not a time, so that simulations are repeatable."""
OWNER = "owner"
"""Name of the index by the uids of owners."""


class Objects(Protocol):
    """The objects that controllers read."""

    @property
    def error(self) -> Exception | None:
        """The error of the connection; None while it works."""
        ...

    async def __aenter__(self) -> Objects: ...

    async def __aexit__(self, *_: object) -> None: ...

    def sees(self, kind: Kind) -> bool:
        """Report whether objects of a kind can be read here."""
        ...

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return one object; None if it does not exist."""
        ...

    def has(self, kind: Kind, namespace: str, name: str) -> bool:
        """Report whether an object exists."""
        ...

    def id_of(self, kind: Kind, key: Key) -> str:
        """Return the node id of an object, as a string shared with the store if possible."""
        ...

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return all objects of a kind, or those of a namespace."""
        ...

    async def select(self, kind: Kind, namespace: str, is_wanted: Callable[[Any], bool]) -> Sequence[Object]:
        """Return the objects of a namespace that are wanted. Yields to other work in between.

        For requests of users: objects that change meanwhile may be included or not.
        """
        ...

    def owned(self, kind: Kind, owner: str) -> Sequence[Object]:
        """Return the objects of a kind that refer to an owner's uid."""
        ...

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """Call `listener` for every object, then for every change, in order. Return the function that ends it."""
        ...

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """Do as `listen`, and yield to other work while existing objects are reported."""
        ...

    def seeing(self, backend: Backend) -> Backend:
        """Return a backend whose writes are visible here when they return."""
        ...


def get(objects: Objects, type_: type[T], name: str, namespace: str = "") -> T | None:
    """Return one object of a type; None if it does not exist."""
    return cast("T | None", objects.find(type_.api, namespace, name))


class StoreObjects:
    """The objects of a registry in this process. Listeners are called before a write returns."""

    error: Exception | None = None

    def __init__(self, registry: Registry) -> None:
        self._store = registry.store
        self._registry = registry

    async def __aenter__(self) -> StoreObjects:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: the registry is the caller's."""

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
        """Yield objects one by one, so that not all are in memory at once."""
        decode = self._decoder(prefix)
        for entry in self._store.scan(prefix):
            yield decode(kind, entry.value)

    def _decoder(self, prefix: str) -> Callable[[Kind, bytes], Object]:
        """Return the decoder for a prefix: without the cache if its objects would displace most others."""
        return decoded if self._store.count(prefix) <= DECODED_OBJECTS_MAX // 2 else decoded_anew

    def listen(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        wanted = dict.fromkeys(kinds)
        for kind in wanted:
            for obj in self._all(kind, f"{kind.bucket}/"):
                listener(kind, _new(obj))
        return self._store.subscribe(lambda events: _report(events, wanted, listener))

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        places = {kind: place for place, kind in enumerate(kinds)}
        reached, is_there = (0, ""), False
        late: deque[Event] = deque()
        """Events of objects that were read already. They are reported after all objects."""

        def published(events: list[Event]) -> None:
            if is_there:
                _report(events, places, listener)
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
                    self._store.deliver()
                    page = self._store.list(prefix, after=reached[1], limit=REPORTED_AT_ONCE)
                    is_more = page.more
                    reached = (place, page.entries[-1].key) if is_more else (place + 1, "")
                    for entry in page.entries:
                        listener(kind, _new(decode(kind, entry.value)))
                    if is_more:
                        await asyncio.sleep(0)
            while late:
                _report([late.popleft() for _ in range(min(len(late), REPORTED_AT_ONCE))], places, listener)
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
    """The objects of a server, from a cache for each kind."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Kind],
        *,
        namespace: str = ALL_NAMESPACES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`namespace`: the one whose objects are read. Cluster-scoped objects are read in any case."""
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
        ends = [self._caches[kind].subscribe(_for_kind(kind, listener)) for kind in kinds]

        def end() -> None:
            for one in ends:
                one()

        return end

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """Listen at once: reporting decoded objects takes little time."""
        return self.listen(kinds, listener)

    # Own writes are visible at once, before the watch delivers them.

    def seeing(self, backend: Backend) -> Backend:
        return OwnWrites(backend, self)

    def show(self, kind: Kind, value: bytes) -> None:
        if kind in self._caches:
            self._caches[kind].show_written(value)

    def show_gone(self, kind: Kind, key: Key, uid: str) -> None:
        if kind in self._caches:
            self._caches[kind].show_gone(key, uid)


def _owners(obj: Object) -> list[str]:
    return [reference.uid for reference in obj.metadata.owner_references]


def _new(obj: Object) -> Update[Any]:
    return Update(Key(obj.metadata.namespace, obj.metadata.name), None, obj)


def _report(events: Iterable[Event], wanted: Container[Kind | None], listener: Listener) -> None:
    for event in events:
        bucket, namespace, name = event.key.split("/", 2)
        kind = BY_BUCKET.get(bucket)
        if kind in wanted:
            assert kind is not None
            old = None if event.prev is None else decoded(kind, event.prev)
            new = None if event.deleted else decoded(kind, event.value)
            listener(kind, Update(Key(namespace, name), old, new))


def _for_kind(kind: Kind, listener: Listener) -> Callable[[Update[Any]], None]:
    return lambda update: listener(kind, update)
