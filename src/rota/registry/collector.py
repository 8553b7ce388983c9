"""Garbage collection: objects go with their owners, and a deleted namespace with everything in it.

The store tells the collector of every published write, also of those whose caller has gone away meanwhile; it keeps who
belongs to whom and a queue of what to look at. Each look is taken at the current state, so one too many does no harm,
and all of it is found again from the store after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rota.api import BY_BUCKET, KINDS, Kind, Namespace
from rota.api.served import SERVED
from rota.registry.deletion import FOREGROUND, ORPHAN
from rota.registry.emptying import Left, conditions
from rota.registry.errors import ApiError
from rota.registry.options import DeleteOptions, Propagation, WriteOptions

if TYPE_CHECKING:
    from rota.registry.registry import Registry
    from rota.store import Event

log = logging.getLogger(__name__)

Object = dict[str, Any]
LOOKS_AT_ONCE = 64
"""Objects looked at at the same time."""
RETRY_SECONDS = 1.0
TELL_SECONDS = 1.0
"""Between two changes of what a namespace that is being deleted says of its content."""
AS_COLLECTOR = WriteOptions(manager="rota-garbage-collector")

OWNERS: dict[tuple[str, str], Kind] = {(kind.group, kind.name): kind for kind in SERVED if "create" in kind.verbs}
"""The kinds that references to owners name, by group and kind: every version of what is stored."""

_decode = msgspec.json.Decoder().decode


class _Meta(msgspec.Struct, rename="camel"):
    """What of an object's metadata matters here."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    finalizers: list[str] = []
    owner_references: list[Object] = []
    deletion_timestamp: str | None = None


class _Framed(msgspec.Struct):
    metadata: _Meta


_meta = msgspec.json.Decoder(_Framed).decode


def _concerns(value: bytes) -> bool:
    """Whether an object may belong to another, or be on its way out."""
    return b'"ownerReferences"' in value or b'"deletionTimestamp"' in value


def _nothing() -> None:
    """Where there is nothing to undo."""


class Owners(NamedTuple):
    """What has become of the owners that an object names."""

    solid: list[Object]
    gone: list[Object]
    waiting: list[Object]
    """Owners that are being deleted, and wait for what they own to go first."""


class Collector:
    """Deletes what has lost its owners. Owned by its registry, which starts and stops it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._dependents: dict[str, set[str]] = {}
        self._queue: dict[str, None] = {}
        self._terminating: set[str] = set()
        self._told: dict[str, float] = {}  # when the conditions of each of these were last written
        self._wake = asyncio.Event()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        """Find what was left unfinished, and go to work."""
        for kind in KINDS.values():
            for entry in self._store.scan(f"{kind.bucket}/"):
                if _concerns(entry.value):
                    self._note(kind, entry.key, None, _meta(entry.value).metadata)
        self._unsubscribe = self._store.subscribe(self._published)
        self._task = asyncio.create_task(self._run(), name="garbage collector")

    async def stop(self) -> None:
        self._unsubscribe()
        self._unsubscribe = _nothing
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def dependents(self, uid: str) -> Collection[str]:
        """Keys of the objects that name this owner, as of the last commit that was published."""
        return self._dependents.get(uid, ())

    # What the store tells.

    def _published(self, events: list[Event]) -> None:
        """Most objects own nothing and belong to nothing: their bytes tell, and they are not decoded."""
        for event in events:
            prev = event.prev
            if event.deleted or _concerns(event.value) or (prev is not None and _concerns(prev)):
                kind = BY_BUCKET[event.key.partition("/")[0]]
                old = _meta(prev).metadata if prev is not None else None
                self._note(kind, event.key, old, None if event.deleted else _meta(event.value).metadata)

    def _note(self, kind: Kind, key: str, old: _Meta | None, new: _Meta | None) -> None:
        """An object was made, changed or is gone (`new` is None)."""
        was = old.owner_references if old is not None else []
        now = new.owner_references if new is not None else []
        if was != now:
            self._note_owners(key, was, now)
        if new is not None and new.deletion_timestamp is not None:
            self._note_deleting(kind, key, new)
        elif new is None and old is not None:
            self._note_gone(kind, key, old)

    def _note_owners(self, key: str, was: list[Object], now: list[Object]) -> None:
        for ref in was:
            mates = self._dependents.get(ref["uid"])
            if mates is not None:
                mates.discard(key)
                if not mates:
                    del self._dependents[ref["uid"]]
        for ref in now:
            self._dependents.setdefault(ref["uid"], set()).add(key)
        if now:
            self._look_at(key)

    def _note_gone(self, kind: Kind, key: str, meta: _Meta) -> None:
        for dependent in self._dependents.get(meta.uid, ()):
            self._look_at(dependent)
        for ref in meta.owner_references:
            owner = self._owner_key(ref, meta.namespace)
            if owner is not None:
                self._look_at(owner)
        if meta.namespace in self._terminating:
            self._look_at(Namespace.api.key("", meta.namespace))
        elif kind is Namespace.api:
            self._terminating.discard(meta.name)
            self._told.pop(meta.name, None)

    def _note_deleting(self, kind: Kind, key: str, meta: _Meta) -> None:
        if kind is Namespace.api:
            self._terminating.add(meta.name)
            self._look_at(key)
        if not {FOREGROUND, ORPHAN}.isdisjoint(meta.finalizers):
            self._look_at(key)

    def _look_at(self, key: str) -> None:
        self._queue[key] = None
        self._wake.set()

    # The work.

    async def _run(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._queue)[:LOOKS_AT_ONCE]
            for key in batch:
                del self._queue[key]
            await asyncio.gather(*(self._attempt(key) for key in batch))

    async def _attempt(self, key: str) -> None:
        """Look at one object. One that fails is looked at again in a while; the others do not wait for it."""
        try:
            await self._examine(key)
        except ApiError as error:
            if error.code == 404:
                return
            if error.code != 409:
                log.warning("garbage collection of %s: %s", key, error)
        except Exception:
            log.exception("garbage collection of %s", key)
        else:
            return
        self._look_again(key)

    def _look_again(self, key: str) -> None:
        """Look at an object in a while."""
        if key not in self._later:
            self._later[key] = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again, key)

    def _again(self, key: str) -> None:
        del self._later[key]
        self._look_at(key)

    async def _examine(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        known = _meta(entry.value).metadata
        if known.deletion_timestamp is None:
            owners = self._owners(known.namespace, known.owner_references)
            if not owners.gone and not owners.waiting:
                return  # So it is with nearly every object that is made.
        kind = BY_BUCKET[key.partition("/")[0]]
        meta = _decode(entry.value)["metadata"]
        deleting = "deletionTimestamp" in meta
        finalizers = meta.get("finalizers", ())
        if deleting and ORPHAN in finalizers:
            await self._orphan(kind, meta)
        elif deleting and FOREGROUND in finalizers:
            await self._wait_for_dependents(kind, meta)
        if deleting and kind is Namespace.api:
            await self._empty(meta["name"])
        if not deleting and meta.get("ownerReferences"):
            await self._follow_owners(kind, key, meta)

    async def _orphan(self, kind: Kind, meta: Object) -> None:
        """Let every dependent go its own way, then the owner."""
        for key in list(self._dependents.get(meta["uid"], ())):
            await self._remove_owners(key, {meta["uid"]})
        await self._remove_finalizer(kind, meta, ORPHAN)

    async def _wait_for_dependents(self, kind: Kind, meta: Object) -> None:
        """Send every dependent off; the owner goes when none that blocks it is left."""
        blocked, own_key = False, kind.key(meta.get("namespace", ""), meta["name"])
        for key in self._dependents.get(meta["uid"], ()):
            entry = self._store.get(key)
            if entry is None or key == own_key:
                continue
            dependent = _decode(entry.value)["metadata"]
            # A uid alone makes no dependent: what is in another namespace holds up nobody here.
            blocked |= any(
                ref["uid"] == meta["uid"]
                and ref.get("blockOwnerDeletion") is True
                and self._owner_key(ref, dependent.get("namespace", "")) == own_key
                for ref in dependent["ownerReferences"]
            )
            if "deletionTimestamp" not in dependent:
                self._look_at(key)
        if not blocked:
            await self._remove_finalizer(kind, meta, FOREGROUND)

    async def _follow_owners(self, kind: Kind, key: str, meta: Object) -> None:
        owners = self._owners(meta.get("namespace", ""), meta["ownerReferences"])
        if owners.solid:
            lost = {ref["uid"] for ref in (*owners.gone, *owners.waiting)}
            if lost:
                await self._remove_owners(key, lost)
            return
        options = DeleteOptions(propagation=self._policy(meta, owners), uid=meta["uid"])
        await self._registry.delete(kind, meta.get("namespace", ""), meta["name"], options)

    def _owners(self, namespace: str, references: Iterable[Object]) -> Owners:
        owners = Owners([], [], [])
        for ref in references:
            key = self._owner_key(ref, namespace)
            if key is None:
                # Of a kind that is not served here, or out of reach of a cluster-wide object: nobody can tell that it
                # is gone.
                owners.solid.append(ref)
                continue
            entry = self._store.get(key)
            owner = _meta(entry.value).metadata if entry else _Meta()
            if owner.uid != ref["uid"]:
                owners.gone.append(ref)
            elif owner.deletion_timestamp is not None and FOREGROUND in owner.finalizers:
                owners.waiting.append(ref)
            else:
                owners.solid.append(ref)
        return owners

    def _policy(self, meta: Object, owners: Owners) -> Propagation:
        finalizers = meta.get("finalizers", ())
        if ORPHAN in finalizers:
            return "Orphan"
        if FOREGROUND in finalizers:
            return "Foreground"
        own = self._dependents.get(meta["uid"], ())
        # Foreground all the way down, unless something below is on its way out already: that may be a ring of owners,
        # which would otherwise wait for itself.
        if owners.waiting and own and not any(self._is_deleting(key) for key in own):
            return "Foreground"
        return "Background"

    def _is_deleting(self, key: str) -> bool:
        entry = self._store.get(key)
        return entry is not None and "deletionTimestamp" in _decode(entry.value)["metadata"]

    @staticmethod
    def _owner_key(ref: Object, namespace: str) -> str | None:
        group = ref["apiVersion"].rpartition("/")[0]
        kind = OWNERS.get((group, ref["kind"]))
        if kind is None:
            return None
        if kind.namespaced and not namespace:
            return None
        return kind.key(namespace if kind.namespaced else "", ref["name"])

    async def _remove_owners(self, key: str, uids: set[str]) -> None:
        entry = self._store.head(key)
        if entry is None:
            return
        meta = _decode(entry.value)["metadata"]
        kept = [ref for ref in meta.get("ownerReferences", ()) if ref["uid"] not in uids]
        await self._patch(BY_BUCKET[key.partition("/")[0]], meta, {"ownerReferences": kept or None})

    async def _remove_finalizer(self, kind: Kind, meta: Object, finalizer: str) -> None:
        entry = self._store.head(kind.key(meta.get("namespace", ""), meta["name"]))
        if entry is None:
            return
        newest = _decode(entry.value)["metadata"]
        if newest["uid"] == meta["uid"]:
            kept = [f for f in newest.get("finalizers", ()) if f != finalizer]
            await self._patch(kind, newest, {"finalizers": kept or None})

    async def _patch(self, kind: Kind, meta: Object, change: Object) -> None:
        patch = {"metadata": {"uid": meta["uid"], **change}}
        await self._registry.patch(kind, meta.get("namespace", ""), meta["name"], patch, AS_COLLECTOR)

    async def _empty(self, namespace: str) -> None:
        """Delete what a namespace holds; let the namespace go when nothing is left.

        Looked at again whenever something in it is gone.
        """
        failures: list[str] = []
        for kind in KINDS.values():
            if not kind.namespaced:
                continue
            entries = self._store.list(f"{kind.bucket}/{namespace}/").entries
            doomed = [e.key for e in entries if b'"deletionTimestamp"' not in e.value or not self._is_deleting(e.key)]
            for start in range(0, len(doomed), LOOKS_AT_ONCE):
                part = doomed[start : start + LOOKS_AT_ONCE]
                outcomes = (self._delete_quietly(kind, namespace, key.rpartition("/")[2]) for key in part)
                failures += filter(None, await asyncio.gather(*outcomes))
        left = self._left(namespace, failures)
        if left.kinds:
            # What has finalizers queues the namespace again when it goes; what could not be deleted does not.
            await self._tell_what_is_left(namespace, left)
            if failures:
                self._look_again(Namespace.api.key("", namespace))
            return
        await self._registry.batch([lambda: self._registry.decide.finalized(namespace)])

    def _left(self, namespace: str, failures: list[str]) -> Left:
        kinds: Counter[Kind] = Counter()
        finalizers: Counter[str] = Counter()
        for kind in KINDS.values():
            for entry in self._store.list(f"{kind.bucket}/{namespace}/").entries if kind.namespaced else ():
                kinds[kind] += 1
                finalizers.update(_meta(entry.value).metadata.finalizers)
        return Left(kinds, finalizers, failures)

    async def _tell_what_is_left(self, namespace: str, left: Left) -> None:
        """Keep the conditions of a namespace current, and not more often than a person can read them."""
        key = Namespace.api.key("", namespace)
        loop = asyncio.get_running_loop()
        if loop.time() - self._told.get(namespace, -TELL_SECONDS) < TELL_SECONDS:
            self._look_again(key)
            return
        entry = self._store.head(key)
        if entry is None:
            return
        self._told[namespace] = loop.time()
        obj = _decode(entry.value)
        status = obj.get("status") or {}
        was = status.get("conditions", [])
        now = conditions(left, was, self._registry.now())
        if now != was:
            patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {**status, "conditions": now}}
            await self._registry.patch(Namespace.api, "", namespace, patch, AS_COLLECTOR, subresource="status")

    async def _delete_quietly(self, kind: Kind, namespace: str, name: str) -> str:
        """Returns why it could not be deleted; empty if it could, or is gone."""
        try:
            await self._registry.delete(kind, namespace, name, DeleteOptions(propagation="Background"))
        except ApiError as error:
            if error.code == 404:
                return ""
            log.warning("deletion of %s with its namespace: %s", kind.key(namespace, name), error)
            return str(error)
        return ""
