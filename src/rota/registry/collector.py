"""Garbage collection: objects are deleted with their owners, and everything in a namespace with the namespace.

The collector subscribes to the published writes of the store. It keeps the dependents of each owner and a queue of
objects to examine. An object is examined by its current state, so a superfluous examination is harmless, and all work
is found again in the store after a restart.
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
from rota.registry.errors import ApiError
from rota.registry.namespace_conditions import Remaining, conditions
from rota.registry.options import DeleteOptions, Propagation, WriteOptions

if TYPE_CHECKING:
    from rota.registry.registry import Registry
    from rota.store import Event

log = logging.getLogger(__name__)

Object = dict[str, Any]
EXAMINED_AT_ONCE = 64
"""Objects examined concurrently."""
RETRY_SECONDS = 1.0
CONDITIONS_SECONDS = 1.0
"""Seconds between two writes of the conditions of a namespace that is being deleted."""
AS_COLLECTOR = WriteOptions(manager="rota-garbage-collector")

OWNERS: dict[tuple[str, str], Kind] = {(kind.group, kind.name): kind for kind in SERVED if "create" in kind.verbs}
"""The kinds that owner references name, by group and kind, in all their versions."""

_decode = msgspec.json.Decoder().decode


class _Meta(msgspec.Struct, rename="camel"):
    """The metadata that garbage collection needs."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    finalizers: list[str] = []
    owner_references: list[Object] = []
    deletion_timestamp: str | None = None


class _WithMeta(msgspec.Struct):
    metadata: _Meta


_meta = msgspec.json.Decoder(_WithMeta).decode


def _concerns(value: bytes) -> bool:
    """Report whether an object may have owners, or is being deleted, without decoding it."""
    return b'"ownerReferences"' in value or b'"deletionTimestamp"' in value


def _no_subscription() -> None:
    """Do nothing."""


class Owners(NamedTuple):
    """The owners of an object by their state."""

    present: list[Object]
    gone: list[Object]
    waiting: list[Object]
    """Owners in foreground deletion, which wait for their dependents."""


class Collector:
    """Deletes objects without owners and the content of deleted namespaces. The registry starts and stops it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._dependents: dict[str, set[str]] = {}
        self._queue: dict[str, None] = {}
        self._terminating: set[str] = set()
        self._conditions_written: dict[str, float] = {}  # by namespace, when its conditions were last written
        self._wake = asyncio.Event()
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = _no_subscription

    def start(self) -> None:
        """Queue the unfinished deletions of the store, and start working."""
        for kind in KINDS.values():
            for entry in self._store.scan(f"{kind.bucket}/"):
                if _concerns(entry.value):
                    self._note(kind, entry.key, None, _meta(entry.value).metadata)
        self._unsubscribe = self._store.subscribe(self._published)
        self._task = asyncio.create_task(self._run(), name="garbage collector")

    async def stop(self) -> None:
        self._unsubscribe()
        self._unsubscribe = _no_subscription
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def dependents(self, uid: str) -> Collection[str]:
        """Return the keys of the objects that refer to an owner, as of the last published commit."""
        return self._dependents.get(uid, ())

    # Events of the store.

    def _published(self, events: list[Event]) -> None:
        """Note changes of owners and deletions. Most objects are skipped by their bytes, without decoding."""
        for event in events:
            prev = event.prev
            if event.deleted or _concerns(event.value) or (prev is not None and _concerns(prev)):
                kind = BY_BUCKET[event.key.partition("/")[0]]
                old = _meta(prev).metadata if prev is not None else None
                self._note(kind, event.key, old, None if event.deleted else _meta(event.value).metadata)

    def _note(self, kind: Kind, key: str, old: _Meta | None, new: _Meta | None) -> None:
        """Note the change of an object from `old` to `new`; `new` is None for a deletion."""
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
            self._enqueue(key)

    def _note_gone(self, kind: Kind, key: str, meta: _Meta) -> None:
        for dependent in self._dependents.get(meta.uid, ()):
            self._enqueue(dependent)
        for ref in meta.owner_references:
            owner = self._owner_key(ref, meta.namespace)
            if owner is not None:
                self._enqueue(owner)
        if meta.namespace in self._terminating:
            self._enqueue(Namespace.api.key("", meta.namespace))
        elif kind is Namespace.api:
            self._terminating.discard(meta.name)
            self._conditions_written.pop(meta.name, None)

    def _note_deleting(self, kind: Kind, key: str, meta: _Meta) -> None:
        if kind is Namespace.api:
            self._terminating.add(meta.name)
            self._enqueue(key)
        if not {FOREGROUND, ORPHAN}.isdisjoint(meta.finalizers):
            self._enqueue(key)

    def _enqueue(self, key: str) -> None:
        self._queue[key] = None
        self._wake.set()

    # Work.

    async def _run(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            batch = list(self._queue)[:EXAMINED_AT_ONCE]
            for key in batch:
                del self._queue[key]
            await asyncio.gather(*(self._attempt(key) for key in batch))

    async def _attempt(self, key: str) -> None:
        """Examine one object. A failure is retried after `RETRY_SECONDS`, without delaying others."""
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
        self._retry(key)

    def _retry(self, key: str) -> None:
        """Queue an object after `RETRY_SECONDS`."""
        if key not in self._retries:
            self._retries[key] = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry_now, key)

    def _retry_now(self, key: str) -> None:
        del self._retries[key]
        self._enqueue(key)

    async def _examine(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        known = _meta(entry.value).metadata
        if known.deletion_timestamp is None:
            owners = self._owners(known.namespace, known.owner_references)
            if not owners.gone and not owners.waiting:
                return  # The common case.
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
        """Remove the owner reference from every dependent, then release the owner."""
        for key in list(self._dependents.get(meta["uid"], ())):
            await self._remove_owners(key, {meta["uid"]})
        await self._remove_finalizer(kind, meta, ORPHAN)

    async def _wait_for_dependents(self, kind: Kind, meta: Object) -> None:
        """Delete every dependent. Release the owner when no dependent blocks it any more."""
        blocked, own_key = False, kind.key(meta.get("namespace", ""), meta["name"])
        for key in self._dependents.get(meta["uid"], ()):
            entry = self._store.get(key)
            if entry is None or key == own_key:
                continue
            dependent = _decode(entry.value)["metadata"]
            # A uid alone makes no dependent: an object in another namespace does not block the owner.
            blocked |= any(
                ref["uid"] == meta["uid"]
                and ref.get("blockOwnerDeletion") is True
                and self._owner_key(ref, dependent.get("namespace", "")) == own_key
                for ref in dependent["ownerReferences"]
            )
            if "deletionTimestamp" not in dependent:
                self._enqueue(key)
        if not blocked:
            await self._remove_finalizer(kind, meta, FOREGROUND)

    async def _follow_owners(self, kind: Kind, key: str, meta: Object) -> None:
        owners = self._owners(meta.get("namespace", ""), meta["ownerReferences"])
        if owners.present:
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
                # The kind of the owner is not served here, or a cluster-scoped object names a namespaced owner: whether
                # the owner is gone is unknown.
                owners.present.append(ref)
                continue
            entry = self._store.get(key)
            owner = _meta(entry.value).metadata if entry else _Meta()
            if owner.uid != ref["uid"]:
                owners.gone.append(ref)
            elif owner.deletion_timestamp is not None and FOREGROUND in owner.finalizers:
                owners.waiting.append(ref)
            else:
                owners.present.append(ref)
        return owners

    def _policy(self, meta: Object, owners: Owners) -> Propagation:
        finalizers = meta.get("finalizers", ())
        if ORPHAN in finalizers:
            return "Orphan"
        if FOREGROUND in finalizers:
            return "Foreground"
        own = self._dependents.get(meta["uid"], ())
        # Foreground for all dependents, too, unless one of them is being deleted already: then the owners may form a
        # cycle, which would wait for itself.
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
        """Delete the content of a namespace; release the namespace when it is empty.

        Called again whenever an object in it has been deleted.
        """
        failures: list[str] = []
        for kind in KINDS.values():
            if not kind.namespaced:
                continue
            entries = self._store.list(f"{kind.bucket}/{namespace}/").entries
            doomed = [e.key for e in entries if b'"deletionTimestamp"' not in e.value or not self._is_deleting(e.key)]
            for start in range(0, len(doomed), EXAMINED_AT_ONCE):
                part = doomed[start : start + EXAMINED_AT_ONCE]
                outcomes = (self._delete_quietly(kind, namespace, key.rpartition("/")[2]) for key in part)
                failures += filter(None, await asyncio.gather(*outcomes))
        left = self._remaining(namespace, failures)
        if left.kinds:
            # An object with finalizers queues the namespace again when it goes. A failed deletion needs a retry.
            await self._update_conditions(namespace, left)
            if failures:
                self._retry(Namespace.api.key("", namespace))
            return
        await self._registry.batch([lambda: self._registry.decide.finalized(namespace)])

    def _remaining(self, namespace: str, failures: list[str]) -> Remaining:
        kinds: Counter[Kind] = Counter()
        finalizers: Counter[str] = Counter()
        for kind in KINDS.values():
            for entry in self._store.list(f"{kind.bucket}/{namespace}/").entries if kind.namespaced else ():
                kinds[kind] += 1
                finalizers.update(_meta(entry.value).metadata.finalizers)
        return Remaining(kinds, finalizers, failures)

    async def _update_conditions(self, namespace: str, left: Remaining) -> None:
        """Update the conditions of a namespace, at most once in `CONDITIONS_SECONDS`."""
        key = Namespace.api.key("", namespace)
        loop = asyncio.get_running_loop()
        if loop.time() - self._conditions_written.get(namespace, -CONDITIONS_SECONDS) < CONDITIONS_SECONDS:
            self._retry(key)
            return
        entry = self._store.head(key)
        if entry is None:
            return
        self._conditions_written[namespace] = loop.time()
        obj = _decode(entry.value)
        status = obj.get("status") or {}
        was = status.get("conditions", [])
        now = conditions(left, was, self._registry.now())
        if now != was:
            patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {**status, "conditions": now}}
            await self._registry.patch(Namespace.api, "", namespace, patch, AS_COLLECTOR, subresource="status")

    async def _delete_quietly(self, kind: Kind, namespace: str, name: str) -> str:
        """Delete an object. Return the error if it failed; empty if the object is deleted or being deleted."""
        try:
            await self._registry.delete(kind, namespace, name, DeleteOptions(propagation="Background"))
        except ApiError as error:
            if error.code == 404:
                return ""
            log.warning("deletion of %s with its namespace: %s", kind.key(namespace, name), error)
            return str(error)
        return ""
