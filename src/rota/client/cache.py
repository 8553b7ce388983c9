"""A copy of objects that is kept up to date: list once, then watch, for as long as the cache is open.

- Every change is reported once and in order, with the object before and after. None is missed, none repeated.
- When the server no longer has the history that the cache needs (410), it lists again and reports the differences.
- A lost connection continues where it was. Until then `error` has the reason.
- Writes of this process can be shown at once, before the watch brings them; older changes are then dropped.
- An object that cannot be read, because its server admits what its type does not, is absent, with a warning. All others
  go on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rota.api import Kind, Object
from rota.api.problems import NOT_JSON
from rota.client.answers import METADATA_DEPTH
from rota.client.client import ALL_NAMESPACES, Change, Client, ObjectList
from rota.client.requests import Sleep
from rota.client.shallow import shallow
from rota.registry import ApiError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

LIST_PAGE_ITEMS = 500
RETRY_SECONDS_FIRST = 0.05
RETRY_SECONDS_MAX = 30.0


class Key(NamedTuple):
    """The namespace and name of an object."""

    namespace: str
    name: str


class Update(NamedTuple, Generic[T]):
    """One change: `old` is None for a new object, `new` is None for a deleted one."""

    key: Key
    old: T | None
    new: T | None


class _Identity(msgspec.Struct):
    """The part of metadata that every server writes in one form."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Unreadable(msgspec.Struct):
    """An object that its type cannot decode: its metadata, and the reason."""

    metadata: _Identity
    why: str = msgspec.field(default="", name="-why")


_unreadable = msgspec.json.Decoder(_Unreadable)


class _Reader(Generic[T]):
    """Decodes the objects of a type one by one.

    An object that cannot be decoded does not fail the list or the watch that it is in.
    """

    def __init__(self, type_: type[T]) -> None:
        self._type = type_

    @property
    def api(self) -> Kind:
        return self._type.api

    def decode(self, value: bytes) -> T | _Unreadable:
        try:
            return self._type.decode(value)
        except NOT_JSON as error:
            found = _unreadable.decode(shallow(value, METADATA_DEPTH).text)
            return msgspec.structs.replace(found, why=str(error))


Indexer = Callable[[T], Iterable[Hashable]]
Listener = Callable[[Update[T]], None]


class Cache(Generic[T]):
    """The objects of one kind, in one namespace or all, by label. Use it in an `async with`."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        *,
        namespace: str = ALL_NAMESPACES,
        labels: str = "",
        fields: str = "",
        indexes: dict[str, Indexer[T]] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._sleep = sleep
        self._type = kind
        self._reader = _Reader(kind)
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._indexers = indexes or {}
        self._indexes: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._indexers}
        self._objects: dict[Key, T] = {}
        self._listeners: list[Listener[T]] = []
        self._ahead: dict[Key, int] = {}
        """The versions of shown objects that the watch has not brought yet."""
        self._gone: set[str] = set()
        """The uids of objects that were shown as deleted, and whose deletion the watch has not brought yet."""
        self._unread: set[Key] = set()
        """The objects that the server has and that cannot be read."""
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.resource_version = ""
        """The resource version up to which this copy is complete."""
        self.relists = 0
        """The number of times that the history was lost and everything was listed again."""
        self.error: Exception | None = None
        """The last error of the connection; None while it works."""

    @property
    def kind(self) -> Kind:
        return self._type.api

    async def __aenter__(self) -> Cache[T]:
        self._task = asyncio.create_task(self._run(), name=f"cache of {self.kind.plural}")
        waiting = asyncio.create_task(self._synced.wait())
        # The copy is complete, or the attempt has ended with an error that no retry mends.
        done, _ = await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            self._task.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # Reading.

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object, or None. It is shared: do not change it."""
        return self._objects.get(Key(namespace, name))

    def list(self, namespace: str = ALL_NAMESPACES) -> list[T]:
        """Return all objects, or those of a namespace."""
        if not namespace:
            return [*self._objects.values()]
        return [obj for key, obj in self._objects.items() if key.namespace == namespace]

    def by_index(self, index: str, value: Hashable) -> Sequence[T]:
        """Return the objects that an index has under a value."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, listener: Listener[T]) -> Callable[[], None]:
        """Call a listener for every object that exists, and for every change from now on. Returns a function that ends
        this.

        Listeners are called in order, before anyone else sees the change; they must not block.
        """
        for key, obj in self._objects.items():
            listener(Update(key, None, obj))
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Showing.

    def show_written(self, value: bytes) -> None:
        """Show an object as a server returned it, in JSON. One that cannot be read is left to the watch."""
        obj = self._reader.decode(value)
        if not isinstance(obj, _Unreadable):
            self.show(obj)

    def show(self, obj: T) -> None:
        """Show an object as a server returned it, unless the watch has a newer version already."""
        meta, key = obj.metadata, _key(obj)
        if meta.deletion_timestamp is not None and not meta.finalizers and not meta.deletion_grace_period_seconds:
            self.show_gone(key, meta.uid)  # The last finalizer has been removed.
            return
        version = self._version_ahead(key, meta.resource_version)
        known = self._objects.get(key)
        if version is None or meta.uid in self._gone or version <= self._ahead.get(key, 0):
            return
        self._ahead[key] = version
        if known is not None and known.metadata.uid != meta.uid:
            self._gone.add(known.metadata.uid)
            self._change(key, None)
        self._change(key, obj)

    def show_gone(self, key: Key, uid: str) -> None:
        """Remove an object that a server reported as deleted."""
        known = self._objects.get(key)
        if known is not None and known.metadata.uid == uid and self.resource_version:
            self._ahead.pop(key, None)
            self._gone.add(uid)
            self._change(key, None)

    def _version_ahead(self, key: Key, version: str) -> int | None:
        """Return the number of a version that the watch has not reached; None if it has, or if that is unknown."""
        is_all = not self._labels and not self._fields
        if not is_all or (self._namespace and key.namespace != self._namespace):
            return None
        if not (version.isdecimal() and self.resource_version.isdecimal()):
            return None
        return int(version) if int(version) > int(self.resource_version) else None

    def _is_shown(self, change: Change[T | _Unreadable], obj: T | _Unreadable) -> bool:
        """Report whether a change is not newer than what was shown of its object."""
        key, uid = _key(obj), obj.metadata.uid
        if uid in self._gone:
            if change.type == "DELETED":
                self._gone.discard(uid)
            return True
        ahead = self._ahead.get(key)
        if ahead is None or not change.resource_version.isdecimal():
            return False
        if int(change.resource_version) >= ahead:
            del self._ahead[key]
        return int(change.resource_version) <= ahead

    # Keeping up.

    async def _run(self) -> None:
        delay = RETRY_SECONDS_FIRST
        while True:
            try:
                if not self.resource_version:
                    await self._relist()
                    self.error = None
                    delay = RETRY_SECONDS_FIRST
                    self._synced.set()
                if await self._follow():
                    delay = RETRY_SECONDS_FIRST
            except ApiError as error:
                if error.code == 410:
                    self.resource_version = ""
                    self.relists += 1
                    continue
                if error.code in (400, 401, 403, 404, 422) and not self._synced.is_set():
                    raise
                self.error = error
            except OSError as error:
                self.error = error
            log.debug("the watch of %s ended: %s; again in %.2f s", self.kind.plural, self.error, delay)
            await self._sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, RETRY_SECONDS_MAX)

    async def _relist(self) -> None:
        listed: dict[Key, T] = {}
        self._unread.clear()
        continue_ = ""
        while True:
            page: ObjectList[T | _Unreadable] = await self._client.list(
                self._reader,
                namespace=self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=LIST_PAGE_ITEMS,
                continue_=continue_,
            )
            for obj in page.items:
                if (readable := self._readable(obj)) is not None:
                    listed[_key(obj)] = readable
            continue_ = page.continue_
            if not continue_:
                break
        # The list includes everything that was shown before.
        self._ahead.clear()
        self._gone.clear()
        for key in [key for key in self._objects if key not in listed]:
            self._change(key, None)
        for key, new in listed.items():
            known = self._objects.get(key)
            if known is not None and known.metadata.uid != new.metadata.uid:
                # A new object of the same name: the known one was deleted.
                self._change(key, None)
                known = None
            if known is None or known.metadata.resource_version != new.metadata.resource_version:
                self._change(key, new)
        self.resource_version = page.resource_version

    async def _follow(self) -> bool:
        """Watch until the watch ends. Returns whether it brought anything."""
        received = False
        changes = self._client.watch(
            self._reader,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=self.resource_version,
            bookmarks=True,
        )
        try:
            async for change in changes:
                received, self.error = True, None
                obj = change.object
                if obj is not None and not self._is_shown(change, obj):
                    new = self._readable(obj)
                    if change.type == "DELETED":
                        new = None
                        self._unread.discard(_key(obj))
                    self._change(_key(obj), new)
                self.resource_version = change.resource_version
        finally:
            await changes.aclose()  # type: ignore[attr-defined]
        return received

    def _readable(self, obj: T | _Unreadable) -> T | None:
        """Return an object, or None if it cannot be read. The first failure of each object is logged."""
        key = _key(obj)
        if not isinstance(obj, _Unreadable):
            self._unread.discard(key)
            return obj
        if key not in self._unread:
            self._unread.add(key)
            log.warning("%s cannot be read, and counts as absent: %s", self.kind.key(*key), obj.why)
        return None

    def _change(self, key: Key, new: T | None) -> None:
        old = self._objects.get(key)
        if old is None and new is None:
            return
        self._index(key, old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        update = Update(key, old, new)
        for listener in tuple(self._listeners):
            try:
                listener(update)
            except Exception:
                log.exception("a listener of the cache of %s failed on %s", self.kind.plural, key)

    def _index(self, key: Key, old: T | None, new: T | None) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            before = set(indexer(old)) if old is not None else set()
            after = set(indexer(new)) if new is not None else set()
            for value in before - after:
                del index[value][key]
                if not index[value]:
                    del index[value]
            for value in after - before:
                index.setdefault(value, {})[key] = None


def _key(obj: Any) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)
