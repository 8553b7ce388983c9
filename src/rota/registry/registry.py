"""The verbs.

Every write is read, decide, commit without a pause in between, on the newest accepted state; so writers in this
process never race. An answer, also a refusal, is given only when the state that it rests on is durable.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from rota.api import Kind, Namespace
from rota.api import problems as p
from rota.api.form import form
from rota.registry import admission, apply, core_kinds, deletion, errors, patches, reading, scaling, strategic
from rota.registry.admission import Moment, Object
from rota.registry.collector import Collector
from rota.registry.metadata import new_uid
from rota.registry.options import Answer, DeleteOptions, Listing, ListOptions, WatchEvent, WatchOptions, WriteOptions
from rota.store import Conflict, Store, StoreBusy, StoreStopped, Write

GENERATE_NAME_TRIES_MAX = 8
JSON_PATCH_OPERATIONS_MAX = 10_000
BATCH_OBJECTS_MAX = 1_000
"""Objects of one atomic batch at most."""

PatchType = Literal["merge", "json", "strategic"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

DEFAULT_WRITE = WriteOptions()
DEFAULT_DELETE = DeleteOptions()


@dataclass(slots=True)
class Change:
    """One decided write: what the object was and what it becomes."""

    kind: Kind
    key: str
    expect: int
    old: Object | None
    new: Object
    gone: bool = False
    warnings: tuple[str, ...] = ()

    def write(self) -> Write:
        return Write(self.key, self.expect, self._encoded, self.gone)

    def _encoded(self, revision: int) -> bytes:
        version = str(revision)
        self.new["metadata"]["resourceVersion"] = version
        if self.gone and self.old is not None:
            # What is told of a deletion is the last state that there was, at the version of the deletion.
            return _encode({**self.old, "metadata": {**self.old["metadata"], "resourceVersion": version}})
        return _encode(self.new)


class Unchanged(msgspec.Struct):
    """A decided write that changes nothing: the object as it is."""

    value: bytes
    revision: int
    warnings: tuple[str, ...] = ()


Decision = Change | Unchanged

# `Registry.list` hides the builtin from annotations in its class.
Batches = AsyncIterator[list[WatchEvent]]
Decisions = list[Decision]
Answers = list[Answer]
ManagedFields = list[Object]


class Registry:
    """All verbs on all kinds, over one store. `start` it before use, `stop` it after; the store is the caller's."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self._clock = clock
        self._second = 0
        self._second_text = ""
        self._collector = Collector(self)

    async def start(self) -> None:
        """Make what must always be there, and take up unfinished deletions."""
        await self.ensure_namespace("default")
        self._collector.start()

    async def stop(self) -> None:
        await self._collector.stop()

    def now(self) -> str:
        """The time, as objects record it."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
        return self._second_text

    # Reading.

    def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        """One object as it is stored."""
        entry = self.store.get(kind.key(_scope(kind, namespace), name))
        if entry is None:
            raise errors.not_found(kind, name)
        return Answer(entry.value, entry.rev)

    async def list(self, kind: Kind, namespace: str = "", options: ListOptions | None = None) -> Listing:
        """A page of objects of one namespace, or of all (an empty one)."""
        return await reading.listing(self.store, kind, _scope(kind, namespace), options or ListOptions())

    def watch(self, kind: Kind, namespace: str = "", options: WatchOptions | None = None) -> Batches:
        """Changes as they become durable, in batches.

        Raises `ApiError` 410 when the place to begin is no longer kept.
        """
        return reading.watching(self.store, kind, _scope(kind, namespace), options or WatchOptions())

    # Writing.

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Answer:
        """Make an object. `obj` is the callee's from here on."""
        return await self._do(lambda: self.decide_create(kind, namespace, obj, options), options.dry_run)

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Answer:
        """Replace an object, or its status. `obj` is the callee's from here on."""
        return await self._do(
            lambda: self.decide_update(kind, namespace, name, obj, options, subresource=subresource), options.dry_run
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        type_: PatchType = "merge",
        subresource: str = "",
    ) -> Answer:
        """Change an object, its status or its scale by a patch."""
        return await self._do(
            lambda: self.decide_patch(kind, namespace, name, patch, options, type_=type_, subresource=subresource),
            options.dry_run,
        )

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Answer:
        """Declare the fields that the manager wants an object to have; it is made if it is not there."""
        return await self._do(
            lambda: self.decide_apply(kind, namespace, name, config, options, subresource=subresource), options.dry_run
        )

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Answer:
        """Delete an object, or mark it for deletion while finalizers hold it."""
        return await self._do(lambda: self.decide_delete(kind, namespace, name, options), options.dry_run)

    async def delete_collection(
        self,
        kind: Kind,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE,
        select: ListOptions | None = None,
    ) -> Listing:
        """Delete every object of a list; each on its own, those that are gone meanwhile are passed over."""
        found = await self.list(kind, namespace, select)
        for value in found.items:
            meta = _decode(value)["metadata"]
            try:
                await self.delete(kind, meta.get("namespace", ""), meta["name"], options)
            except errors.ApiError as error:
                if error.code != 404:
                    raise
        return found

    async def batch(self, decide: Sequence[Callable[[], Decision]]) -> Answers:
        """Several writes in one atomic commit. Each object at most once."""
        if len(decide) > BATCH_OBJECTS_MAX:
            raise errors.bad_request(f"a batch has at most {BATCH_OBJECTS_MAX} objects, not {len(decide)}")
        return await self._do_all(lambda: [one() for one in decide], dry_run=False)

    # Scale.

    def get_scale(self, kind: Kind, namespace: str, name: str) -> Answer:
        """The scale subresource of an object."""
        _check_subresource(kind, "scale")
        answer = self.get(kind, namespace, name)
        return Answer(_encode(scaling.of(kind, _decode(answer.value))), answer.revision)

    # Deciding: what each verb makes of the newest accepted state. Nothing awaits from here to the commit.

    def decide_create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Decision:
        namespace = _scope(kind, namespace)
        if kind.namespaced and not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        generating = isinstance(obj.get("metadata"), dict) and not obj["metadata"].get("name")
        sent = dict(obj, metadata=dict(obj["metadata"])) if generating else obj
        for attempt in range(GENERATE_NAME_TRIES_MAX):
            if attempt:
                obj = _decode(_encode(sent))
            new, warnings = admission.admit_new(kind, namespace, obj, options, Moment(self.now(), new_uid()))
            self._check_namespace(kind, namespace, new["metadata"]["name"])
            key = kind.key(namespace, new["metadata"]["name"])
            if self.store.head(key) is None:
                return Change(kind, key, 0, None, new, warnings=tuple(warnings))
            if not generating:
                raise errors.already_exists(kind, new["metadata"]["name"])
        raise errors.generated_name_exists(kind, new["metadata"]["name"])

    def decide_update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Decision:
        if kind.name in core_kinds.CREATED_BY_UPDATE and self.store.head(kind.key(namespace, name)) is None:
            if admission.check_frame(kind, obj).setdefault("name", name) != name:
                raise errors.bad_request("the name of the object does not match the name on the URL")
            return self.decide_create(kind, namespace, obj, options)
        key, revision, value, old = self._current(kind, namespace, name)
        _check_subresource(kind, subresource)
        if subresource == "scale":
            obj = scaling.changed(kind, old, obj)
        meta = admission.check_frame(kind, obj)
        if not meta.get("name"):
            raise errors.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        if not meta.get("resourceVersion") and subresource != "scale" and kind.name not in core_kinds.UNCONDITIONAL:
            raise errors.version_required(kind, name)
        return self._decide_change(kind, key, revision, value, old, obj, options, subresource)

    def decide_patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        type_: PatchType = "merge",
        subresource: str = "",
    ) -> Decision:
        key, revision, value, old = self._current(kind, namespace, name)
        _check_subresource(kind, subresource)
        base = scaling.of(kind, old) if subresource == "scale" else old
        new = patched(kind, base, patch, type_)
        _check_uid(kind, new.get("metadata"), old["metadata"])
        # What a patch leaves alone is shared with the old object; what is stored must not be.
        new = _decode(_encode(new))
        if subresource == "scale":
            new = scaling.changed(kind, old, new)
        try:
            return self._decide_change(kind, key, revision, value, old, new, options, subresource)
        except errors.Malformed as malformed:
            raise malformed.made_by_patch(name) from None

    def decide_apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Decision:
        _check_subresource(kind, subresource)
        meta = admission.check_frame(kind, config)
        if meta.setdefault("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        namespace = _scope(kind, namespace)
        config = _applied_part(kind, namespace, config, subresource)
        key = kind.key(namespace, name)
        entry = self.store.head(key)
        if entry is None and subresource:
            raise errors.not_found(kind, name)
        if entry is None and meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise errors.conflict(kind, name, why)
        old = _decode(entry.value) if entry else None
        if old is not None:
            _check_uid(kind, meta, old["metadata"])
        live_managed = old["metadata"].get("managedFields", []) if old else []
        if old is None:
            metadata_sent = {k: v for k, v in config["metadata"].items() if k != "resourceVersion"}
            config = {**config, "metadata": metadata_sent}
        try:
            new, managed = apply.apply(
                old,
                config,
                live_managed,
                form(kind).node,
                manager=options.manager,
                api_version=kind.api_version,
                subresource=subresource,
                force=options.force,
                now=self.now(),
            )
        except apply.ApplyConflict as conflict:
            causes = [
                {"reason": "FieldManagerConflict", "message": c.message, "field": c.path} for c in conflict.conflicts
            ]
            raise errors.apply_conflict(str(conflict), causes) from None
        except apply.InvalidApply as problem:
            raise _invalid_apply(problem) from None
        new = _decode(_encode(new))
        if old is None or entry is None:
            admitted, warnings = admission.admit_new(kind, namespace, new, options, Moment(self.now(), new_uid()))
            self._check_namespace(kind, namespace, name)
            admitted = admission.framed(kind, admitted, managed)
            return Change(kind, key, 0, None, admitted, warnings=tuple(warnings))
        return self._decide_change(kind, key, entry.rev, entry.value, old, new, options, subresource, managed)

    def decide_delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Decision:
        key, revision, value, old = self._current(kind, namespace, name)
        deletion.check_preconditions(kind, old, options)
        marked = deletion.marked(kind, old, options.propagation, self.now())
        if marked is old:
            return Unchanged(value, revision)
        if marked is None:
            return Change(kind, key, revision, old, {**old, "metadata": dict(old["metadata"])}, gone=True)
        return Change(kind, key, revision, old, marked)

    def decide_finalized(self, namespace: str) -> Decision:
        """A namespace that has been emptied lets go of itself."""
        kind = Namespace.api
        key, revision, _, old = self._current(kind, "", namespace)
        new = {**old, "metadata": dict(old["metadata"]), "spec": {}}
        return Change(kind, key, revision, old, new, gone=deletion.released(kind, new))

    def _decide_change(
        self,
        kind: Kind,
        key: str,
        revision: int,
        value: bytes,
        old: Object,
        new: Object,
        options: WriteOptions,
        subresource: str,
        managed: ManagedFields | None = None,
    ) -> Decision:
        at = Moment(self.now())
        admitted, warnings = admission.admit_change(
            kind, old, new, options, at, subresource=subresource, managed=managed
        )
        if deletion.released(kind, admitted):
            return Change(kind, key, revision, old, admitted, gone=True, warnings=tuple(warnings))
        if admitted == old:
            return Unchanged(value, revision, tuple(warnings))
        return Change(kind, key, revision, old, admitted, warnings=tuple(warnings))

    def _current(self, kind: Kind, namespace: str, name: str) -> tuple[str, int, bytes, Object]:
        key = kind.key(_scope(kind, namespace), name)
        entry = self.store.head(key)
        if entry is None:
            raise errors.not_found(kind, name)
        return key, entry.rev, entry.value, _decode(entry.value)

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """New objects need a namespace that is there and stays."""
        if not kind.namespaced:
            return
        entry = self.store.head(Namespace.api.key("", namespace))
        if entry is None:
            raise errors.not_found(Namespace.api, namespace)
        if b'"Terminating"' in entry.value and "deletionTimestamp" in _decode(entry.value)["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise errors.forbidden(kind, name, why, causes=[cause])

    # Committing.

    async def _do(self, decide: Callable[[], Decision], dry_run: bool) -> Answer:
        return (await self._do_all(lambda: [decide()], dry_run))[0]

    async def _do_all(self, decide: Callable[[], Decisions], dry_run: bool) -> Answers:
        while True:
            try:
                decisions = decide()
                changes = [d for d in decisions if isinstance(d, Change)]
                if len(changes) > 1 and len({c.key for c in changes}) < len(changes):
                    raise errors.bad_request("a batch may change each object only once")
                if dry_run:
                    await self.store.durable(self.store.accepted)
                    return [_foretold(d) for d in decisions]
                seen = self.store.accepted
                entries = iter(await self.store.commit([c.write() for c in changes]) if changes else ())
                if len(changes) < len(decisions):
                    await self.store.durable(seen)
            except errors.ApiError:
                # The refusal rests on accepted state: it must not be heard before that state is safe.
                await self._settled()
                raise
            except StoreBusy:
                await self.store.room()
                continue
            except StoreStopped as stopped:
                raise errors.unavailable(str(stopped)) from None
            except Conflict as lost:
                change = next(c for c in changes if c.key == lost.key)
                raise errors.conflict(change.kind, change.new["metadata"]["name"]) from None
            return [
                self._answer(d, next(entries)) if isinstance(d, Change) else Answer(d.value, d.revision, d.warnings)
                for d in decisions
            ]

    async def _settled(self) -> None:
        try:
            await self.store.durable(self.store.accepted)
        except StoreStopped as stopped:
            raise errors.unavailable(str(stopped)) from None

    @staticmethod
    def _answer(change: Change, entry: Any) -> Answer:
        value = _encode(change.new) if change.gone else entry.value
        return Answer(value, entry.rev, change.warnings, created=change.old is None, gone=change.gone)

    async def ensure_namespace(self, name: str) -> None:
        """Make a namespace unless it is there."""
        if self.store.head(Namespace.api.key("", name)) is None:
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.create(Namespace.api, "", obj, WriteOptions(manager="rota"))


def patched(kind: Kind, base: Object, patch: Any, type_: PatchType) -> Object:
    """The object after a patch."""
    if type_ == "strategic" and kind.custom:
        raise errors.unsupported_patch()
    if type_ == "json" and not (isinstance(patch, list) and all(isinstance(operation, dict) for operation in patch)):
        raise errors.bad_request("error decoding patch: a JSON patch is a list of operations")
    try:
        if type_ == "json":
            new = patches.json_patch(base, patch, max_ops=JSON_PATCH_OPERATIONS_MAX)
        elif type_ == "strategic":
            new = strategic.strategic_merge(base, patch, form(kind).node)
        elif isinstance(patch, dict):
            new = patches.merge_patch(base, patch)
        else:
            raise errors.bad_request("a merge patch must be an object")
    except patches.JSONPatchTestFailed as failed:
        raise errors.unprocessable(str(failed)) from None
    except patches.JSONPatchError as wrong:
        raise errors.unprocessable(str(wrong)) from None
    except (patches.TooManyOperations, strategic.StrategicPatchError) as wrong:
        raise errors.bad_request(str(wrong)) from None
    if not isinstance(new, dict):
        raise errors.bad_request("the patch does not leave an object")
    return new


def _check_uid(kind: Kind, meta: Any, old_meta: Object) -> None:
    """A patch cannot give an object another identity."""
    uid = meta.get("uid") if isinstance(meta, dict) else None
    if uid and uid != old_meta["uid"]:
        raise errors.invalid(kind, old_meta["name"], [p.invalid("metadata.uid", uid, "field is immutable")])


def _applied_part(kind: Kind, namespace: str, config: Object, subresource: str) -> Object:
    """The part of a configuration that this request can set."""
    meta = dict(config["metadata"])
    if kind.namespaced:
        if meta.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        meta.pop("namespace", None)
    out = {**config, "metadata": meta}
    if subresource == "status":
        return {k: v for k, v in out.items() if k in ("apiVersion", "kind", "metadata", "status")}
    if kind.has_status and kind.custom:
        out.pop("status", None)
    return out


def _invalid_apply(problem: apply.InvalidApply) -> errors.ApiError:
    if problem.is_bad_request:
        return errors.bad_request(str(problem))
    return errors.ApiError(500, "InternalError", str(problem))


def _foretold(decision: Decision) -> Answer:
    """What a dry run answers: the object as it would be, at the version it has now."""
    if isinstance(decision, Unchanged):
        return Answer(decision.value, decision.revision, decision.warnings)
    new = decision.new
    if decision.old is not None:
        new["metadata"]["resourceVersion"] = decision.old["metadata"]["resourceVersion"]
    return Answer(_encode(new), decision.expect, decision.warnings, created=decision.old is None, gone=decision.gone)


def _scope(kind: Kind, namespace: str) -> str:
    return namespace if kind.namespaced else ""


def _check_subresource(kind: Kind, subresource: str) -> None:
    has = {"": True, "status": kind.has_status, "scale": kind.scale is not None}
    if not has.get(subresource, False):
        raise errors.ApiError(404, "NotFound", f"{kind.bucket} has no subresource {subresource}")
