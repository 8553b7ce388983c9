"""What each verb makes of the newest accepted state of an object. Nothing here awaits, so nothing comes in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from rota.api import Kind, Namespace
from rota.api import problems as p
from rota.api.form import form
from rota.registry import admission, apply, core_kinds, deletion, errors, patches, privileges, scaling, strategic
from rota.registry.admission import Moment, Object
from rota.registry.amending import Amendment, amended
from rota.registry.comparison import same
from rota.registry.metadata import new_uid
from rota.registry.options import DeleteOptions, WriteOptions
from rota.store import Store, Write

GENERATE_NAME_TRIES_MAX = 8
JSON_PATCH_OPERATIONS_MAX = 10_000
OBJECT_BYTES_MAX = 1_572_864
"""Bytes of one object as it is stored, as much as etcd takes."""
PROTECTED_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))

PatchType = Literal["merge", "json", "strategic"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_REVISION = 9_000_000_000_000_000_000
"""Which no write ever gets."""

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
        value = _encode(self.new)
        if len(value) > OBJECT_BYTES_MAX:
            raise errors.too_large(self.kind, self.new["metadata"]["name"], len(value), OBJECT_BYTES_MAX)
        return value


@dataclass(slots=True)
class Amended:
    """One decided write of a few fields."""

    kind: Kind
    key: str
    name: str
    expect: int
    encoded: Callable[[int], bytes]

    def write(self) -> Write:
        return Write(self.key, self.expect, self.encoded)


class Unchanged(msgspec.Struct):
    """A decided write that changes nothing: the object as it is."""

    value: bytes
    revision: int
    warnings: tuple[str, ...] = ()


Decision = Change | Amended | Unchanged


def encoded(decision: Decision) -> Decision:
    """The same, with its bytes made already, all but the version: little to keep, and little left to do."""
    if isinstance(decision, Unchanged) or (isinstance(decision, Change) and decision.gone):
        return decision
    name = decision.name if isinstance(decision, Amended) else decision.new["metadata"]["name"]
    mark = b'"resourceVersion":"%d"' % _NO_REVISION
    head, found, tail = decision.write().value(_NO_REVISION).partition(mark)
    if not found or mark in tail:
        return decision
    return Amended(
        decision.kind,
        decision.key,
        name,
        decision.expect,
        lambda revision: b'%b"resourceVersion":"%d"%b' % (head, revision, tail),
    )


class Decider:
    """The verbs up to the commit. A refusal is an `ApiError`; a decision changes nothing yet."""

    def __init__(self, store: Store, now: Callable[[], str]) -> None:
        self._store = store
        self._now = now

    def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Decision:
        namespace = scope(kind, namespace)
        if kind.namespaced and not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        if not isinstance(obj, dict):
            raise errors.bad_request(f"an object of kind {kind.name} was expected")
        generating = isinstance(obj.get("metadata"), dict) and not obj["metadata"].get("name")
        sent = dict(obj, metadata=dict(obj["metadata"])) if generating else obj
        for attempt in range(GENERATE_NAME_TRIES_MAX):
            if attempt:
                obj = _decode(_encode(sent))
            moment = Moment(self._now(), options.uid or new_uid())
            new, warnings = admission.admit_new(kind, namespace, obj, options, moment)
            self._check_namespace(kind, namespace, new["metadata"]["name"])
            if options.restricted:
                privileges.check(kind, new, None)
                privileges.own(kind, new, None, options.user)
            key = kind.key(namespace, new["metadata"]["name"])
            if self._store.head(key) is None:
                return Change(kind, key, 0, None, new, warnings=tuple(warnings))
            if not generating:
                raise errors.already_exists(kind, new["metadata"]["name"])
        raise errors.generated_name_exists(kind, new["metadata"]["name"])

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Decision:
        if kind.name in core_kinds.CREATED_BY_UPDATE and self._store.head(kind.key(namespace, name)) is None:
            meta = admission.check_frame(kind, obj)
            if meta.setdefault("name", name) != name:
                raise errors.bad_request("the name of the object does not match the name on the URL")
            if uid := meta.get("uid"):
                # It was meant for the object that is gone.
                raise errors.conflict(
                    kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                )
            meta.pop("resourceVersion", None)
            return self.create(kind, namespace, obj, options)
        if not isinstance(obj, dict):
            raise errors.bad_request(f"an object of kind {kind.name} was expected")
        key, revision, value, old = self._current(kind, namespace, name)
        check_subresource(kind, subresource)
        if subresource == "scale":
            obj = scaling.changed(kind, old, obj)
        meta = admission.check_frame(kind, obj)
        if not meta.get("name"):
            raise errors.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        if not meta.get("resourceVersion") and subresource != "scale" and kind.name not in core_kinds.UNCONDITIONAL:
            raise errors.version_required(kind, name)
        return self._change(kind, key, revision, value, old, obj, options, subresource)

    def patch(
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
        check_subresource(kind, subresource)
        base = scaling.of(kind, old) if subresource == "scale" else old
        new = patched(kind, base, patch, type_)
        _check_uid(kind, new.get("metadata"), old["metadata"])
        # What a patch leaves alone is shared with the old object; what is stored must not be.
        new = _decode(_encode(new))
        if subresource == "scale":
            new = scaling.changed(kind, old, new)
        try:
            return self._change(kind, key, revision, value, old, new, options, subresource)
        except errors.Malformed as malformed:
            raise malformed.made_by_patch(name) from None

    def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Object,
        options: WriteOptions = DEFAULT_WRITE,
        *,
        subresource: str = "",
    ) -> Decision:
        check_subresource(kind, subresource)
        if not options.manager:
            raise errors.unprocessable("fieldManager: Required value: is required for apply patch")
        meta = admission.check_frame(kind, config)
        if meta.setdefault("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        namespace = scope(kind, namespace)
        config = _applied_part(kind, namespace, config, subresource)
        key = kind.key(namespace, name)
        entry = self._store.head(key)
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
                now=self._now(),
            )
        except apply.ApplyConflict as conflict:
            causes = [
                {"reason": "FieldManagerConflict", "message": c.message, "field": c.path} for c in conflict.conflicts
            ]
            raise errors.apply_conflict(str(conflict), causes) from None
        except apply.InvalidApply as problem:
            # Kubernetes answers some of these with 500, as if the mistake were its own. What is in a Secret is not
            # repeated.
            said = re.sub(r", got .*", "", str(problem)) if kind.name == "Secret" else str(problem)
            raise errors.bad_request(said) from None
        new = _decode(_encode(new))
        if old is None or entry is None:
            admitted, warnings = admission.admit_new(kind, namespace, new, options, Moment(self._now(), new_uid()))
            self._check_namespace(kind, namespace, name)
            if options.restricted:
                privileges.check(kind, admitted, None)
                privileges.own(kind, admitted, None, options.user)
            admitted = admission.framed(kind, admitted, managed)
            return Change(kind, key, 0, None, admitted, warnings=tuple(warnings))
        return self._change(kind, key, entry.rev, entry.value, old, new, options, subresource, managed)

    def amend(
        self, kind: Kind, namespace: str, name: str, change: Amendment, options: WriteOptions = DEFAULT_WRITE
    ) -> Decision:
        """A change of a few fields, by a controller of this process."""
        key = kind.key(scope(kind, namespace), name)
        entry = self._store.head(key)
        if entry is None:
            raise errors.not_found(kind, name)
        encoded = amended(kind, name, entry, change, options, self._now())
        return Amended(kind, key, name, entry.rev, encoded)

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Decision:
        key, revision, value, old = self._current(kind, namespace, name)
        if kind is Namespace.api and name in PROTECTED_NAMESPACES:
            raise errors.forbidden(kind, name, "this namespace may not be deleted")
        deletion.check_preconditions(kind, old, options)
        marked = deletion.marked(kind, old, options.propagation, self._now())
        if marked is old:
            return Unchanged(value, revision)
        if marked is None:
            return Change(kind, key, revision, old, {**old, "metadata": dict(old["metadata"])}, gone=True)
        return Change(kind, key, revision, old, marked)

    def finalized(self, namespace: str) -> Decision:
        """A namespace that has been emptied lets go of itself."""
        kind = Namespace.api
        key, revision, _, old = self._current(kind, "", namespace)
        new = {**old, "metadata": dict(old["metadata"]), "spec": {}}
        return Change(kind, key, revision, old, new, gone=deletion.released(kind, new))

    def _change(
        self,
        kind: Kind,
        key: str,
        revision: int,
        value: bytes,
        old: Object,
        new: Object,
        options: WriteOptions,
        subresource: str,
        managed: list[Object] | None = None,
    ) -> Decision:
        at = Moment(self._now())
        admitted, warnings = admission.admit_change(
            kind, old, new, options, at, subresource=subresource, managed=managed
        )
        if options.restricted:
            privileges.check(kind, admitted, old)
            privileges.own(kind, admitted, old, options.user)
        if deletion.released(kind, admitted):
            return Change(kind, key, revision, old, admitted, gone=True, warnings=tuple(warnings))
        if admitted == old and same(admitted, old):
            return Unchanged(value, revision, tuple(warnings))
        return Change(kind, key, revision, old, admitted, warnings=tuple(warnings))

    def _current(self, kind: Kind, namespace: str, name: str) -> tuple[str, int, bytes, Object]:
        key = kind.key(scope(kind, namespace), name)
        entry = self._store.head(key)
        if entry is None:
            raise errors.not_found(kind, name)
        return key, entry.rev, entry.value, _decode(entry.value)

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """New objects need a namespace that is there and stays."""
        if not kind.namespaced:
            return
        entry = self._store.head(Namespace.api.key("", namespace))
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
        elif type_ == "merge" and isinstance(patch, dict):
            new = patches.merge_patch(base, patch)
        else:
            raise errors.bad_request(f"a {type_} patch of this form is not known")
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


def scope(kind: Kind, namespace: str) -> str:
    return namespace if kind.namespaced else ""


def check_subresource(kind: Kind, subresource: str) -> None:
    has = {"": True, "status": kind.has_status, "scale": kind.scale is not None}
    if not has.get(subresource, False):
        raise errors.ApiError(404, "NotFound", f"{kind.bucket} has no subresource {subresource}")
