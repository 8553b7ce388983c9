"""What each verb makes of the newest accepted state of an object. Nothing here awaits, so nothing comes in between."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from rota.api import Kind, Namespace, sizes
from rota.api import problems as p
from rota.api.egress import Policy
from rota.api.form import form
from rota.registry import (
    admission,
    apply,
    core_kinds,
    deletion,
    errors,
    patches,
    privileges,
    roles,
    scaling,
    strategic,
    versions,
)
from rota.registry.admission import Moment, Object
from rota.registry.amending import Amendment, amended
from rota.registry.casting import NOW, REVISION, Cast
from rota.registry.comparison import same
from rota.registry.metadata import new_uid
from rota.registry.options import DeleteOptions, PatchType, WriteOptions
from rota.store import Store, Write

GENERATE_NAME_TRIES_MAX = 8
JSON_PATCH_OPERATIONS_MAX = 10_000
OBJECT_BYTES_MAX = 1_572_864
"""Bytes of one object as it is stored, as much as etcd takes."""
SURELY_SMALL_BYTES = 16 * 1024
"""An object that has no more bytes does not have too many parts either."""
NAME_LENGTH_SHOWN = 253
SECRET_PLACES = ("/data/", "/stringData/")
"""Where a Secret has its values."""
PROTECTED_NAMESPACES = frozenset(("default", "rota-system", "kube-system", "kube-public"))

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

    key: str
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

    def __init__(self, store: Store, now: Callable[[], str], policy: Policy) -> None:
        self._store = store
        self._now = now
        self._policy = policy

    def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions = DEFAULT_WRITE) -> Decision:
        namespace = scope(kind, namespace)
        if kind.namespaced and not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        if not isinstance(obj, dict):
            raise errors.bad_request(f"an object of kind {kind.name} was expected")
        check_size(kind, obj, "")
        version, kind = kind, kind.storage
        obj, unknown = _received(version, obj)
        generating = isinstance(obj.get("metadata"), dict) and not obj["metadata"].get("name")
        sent = dict(obj, metadata=dict(obj["metadata"])) if generating else obj
        for attempt in range(GENERATE_NAME_TRIES_MAX):
            if attempt:
                obj = _decode(_encode(sent))
            moment = Moment(self._now(), options.uid or new_uid())
            new, warnings = admission.admit_new(
                kind, namespace, obj, options, moment, version=version, unknown_sent=unknown
            )
            self._check_namespace(kind, namespace, new["metadata"]["name"])
            if options.restricted:
                privileges.check(kind, new, None, self._policy)
                privileges.own(kind, new, None, options.user)
                roles.check(kind, new, options.held)
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
        check_size(kind, obj, name)
        version, kind = kind, kind.storage
        check_subresource(kind, subresource)
        if subresource != "scale":
            sent = admission.check_frame(version, obj)
            if sent.get("name") and sent["name"] != name:
                raise errors.other_name(sent["name"], name)
        key, revision, value, old = self._current(kind, namespace, name)
        if subresource == "scale":
            obj = scaling.changed(kind, old, obj)
        obj, unknown = _received(version, obj)
        meta = admission.check_frame(kind, obj)
        if not meta.get("name"):
            raise errors.name_missing(name)
        if not meta.get("resourceVersion") and subresource != "scale" and kind.name not in core_kinds.UNCONDITIONAL:
            raise errors.version_required(kind, name)
        at = _Place(kind, key, revision, value, old, version)
        return self._change(at, obj, options, subresource, unknown=unknown)

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
        version, kind = kind, kind.storage
        key, revision, value, old = self._current(kind, namespace, name)
        check_subresource(kind, subresource)
        base = scaling.of(kind, old) if subresource == "scale" else versions.outward(version, old)
        new = patched(version, base, patch, type_)
        if type_ == "strategic":
            # It does not say what it is a patch of.
            new = {**new, "apiVersion": base["apiVersion"], "kind": base["kind"]}
        _check_uid(kind, new.get("metadata"), old["metadata"])
        # What a patch leaves alone is shared with the old object; what is stored must not be.
        text = _encode(new)
        check_size(version, new, name, text)
        new = _decode(text)
        at = _Place(kind, key, revision, value, old, version)
        try:
            if subresource == "scale":
                new = scaling.changed(kind, old, new)
            _check_patched_frame(version, new, name)
            new, unknown = _received(version, new)
            return self._change(at, new, options, subresource, unknown=unknown)
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
        if subresource == "scale":
            config = scaling.applied(kind, config)
        _check_applied_frame(kind, config)
        check_size(kind, config, name)
        meta = admission.check_frame(kind, config)
        is_named = bool(meta.get("name"))
        if meta.setdefault("name", name) != name:
            raise errors.other_name(meta["name"], name)
        namespace = scope(kind, namespace)
        version, kind = kind, kind.storage
        config = versions.inward(version, _applied_part(version, namespace, config, subresource))
        key = kind.key(namespace, name)
        entry = self._store.head(key)
        if entry is None and subresource:
            raise errors.not_found(kind, name)
        if entry is None and not is_named:
            raise errors.name_missing(name)
        if entry is None and meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise errors.conflict(kind, name, why)
        old = _decode(entry.value) if entry else None
        if old is not None:
            _check_uid(kind, meta, old["metadata"])
        live_managed = versions.managed_inward(version, old["metadata"].get("managedFields", []) if old else [])
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
                api_version=version.api_version,
                subresource=subresource,
                force=options.force,
                now=self._now(),
            )
        except apply.ApplyConflict as conflict:
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "message": c.message,
                    "field": versions.path_outward(version, c.path),
                }
                for c in conflict.conflicts
            ]
            raise errors.apply_conflict(str(conflict), causes) from None
        except apply.InvalidApply as problem:
            # Kubernetes answers some of these with 500, as if the mistake were its own. What is in a Secret is not
            # repeated.
            said = re.sub(r", got .*", "", str(problem)) if kind.name == "Secret" else str(problem)
            raise errors.bad_request(said) from None
        # What was applied was looked at; what it makes together with what is there was not.
        text = _encode(new)
        check_size(kind, new, name, text)
        new = _decode(text)
        managed = versions.managed_outward(version, managed)
        if old is None or entry is None:
            moment = Moment(self._now(), new_uid())
            admitted, warnings = admission.admit_new(kind, namespace, new, options, moment, version=version)
            self._check_namespace(kind, namespace, name)
            if options.restricted:
                privileges.check(kind, admitted, None, self._policy)
                privileges.own(kind, admitted, None, options.user)
                roles.check(kind, admitted, options.held)
            admitted = admission.framed(kind, admitted, managed)
            return Change(kind, key, 0, None, admitted, warnings=tuple(warnings))
        at = _Place(kind, key, entry.rev, entry.value, old, version)
        return self._change(at, new, options, subresource, managed)

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

    def cast(self, kind: Kind, namespace: str, name: str, cast: Cast) -> Decision:
        """Make an object from a mould: `texts` hold the name, too."""
        self._check_namespace(kind, namespace, name)
        key = kind.key(namespace, name)
        if self._store.head(key) is not None:
            raise errors.already_exists(kind, name)
        mould, texts = cast
        texts[NOW] = self._now().encode()

        def encoded(revision: int) -> bytes:
            texts[REVISION] = b"%d" % revision
            return mould.cast(texts)

        return Amended(kind, key, name, 0, encoded)

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DEFAULT_DELETE) -> Decision:
        kind = kind.storage
        key, revision, value, old = self._current(kind, namespace, name)
        if kind is Namespace.api and name in PROTECTED_NAMESPACES:
            raise errors.forbidden(kind, name, "this namespace may not be deleted")
        if options.restricted:
            privileges.check_deletion(kind, old, options.propagation, self._policy)
        deletion.check_preconditions(kind, old, options)
        marked = deletion.marked(kind, old, options.propagation, self._now())
        if marked is old:
            return Unchanged(key, value, revision)
        if marked is None:
            return Change(kind, key, revision, old, {**old, "metadata": dict(old["metadata"])}, gone=True)
        return Change(kind, key, revision, old, marked)

    def finalized(self, namespace: str) -> Decision:
        """A namespace that has been emptied lets go of itself. Other finalizers of its spec are others' to remove."""
        kind = Namespace.api
        key, revision, value, old = self._current(kind, "", namespace)
        spec = old.get("spec") or {}
        kept = [name for name in spec.get("finalizers", ()) if name != core_kinds.NAMESPACE_FINALIZER]
        if len(kept) == len(spec.get("finalizers", ())):
            return Unchanged(key, value, revision)
        new = {**old, "metadata": dict(old["metadata"]), "spec": {"finalizers": kept} if kept else {}}
        return Change(kind, key, revision, old, new, gone=deletion.released(kind, new))

    def is_stale(self, decision: Decision) -> bool:
        """Whether what a decision rests on has changed since. Raises if its namespace takes no new objects any more."""
        entry = self._store.head(decision.key)
        expect = decision.revision if isinstance(decision, Unchanged) else decision.expect
        if (entry.rev if entry is not None else 0) != expect:
            return True
        if isinstance(decision, Change) and decision.old is None:
            meta = decision.new["metadata"]
            self._check_namespace(decision.kind, meta.get("namespace", ""), meta["name"])
        return False

    def _change(
        self,
        at: _Place,
        new: Object,
        options: WriteOptions,
        subresource: str,
        managed: list[Object] | None = None,
        unknown: Sequence[str] = (),
    ) -> Decision:
        kind, old = at.kind, at.old
        admitted, warnings = admission.admit_change(
            kind,
            old,
            new,
            options,
            Moment(self._now()),
            subresource=subresource,
            managed=managed,
            version=at.version,
            unknown_sent=unknown,
        )
        if options.restricted:
            if privileges.differs(admitted, old):
                privileges.check(kind, admitted, old, self._policy)
                privileges.own(kind, admitted, old, options.user)
                roles.check(kind, admitted, options.held)
            elif privileges.asked_for(old, self._policy):
                # Who manages which field of it is an admin's to say, too.
                return Unchanged(at.key, at.value, at.revision, tuple(warnings))
        if deletion.released(kind, admitted):
            return Change(kind, at.key, at.revision, old, admitted, gone=True, warnings=tuple(warnings))
        if admitted == old and same(admitted, old):
            return Unchanged(at.key, at.value, at.revision, tuple(warnings))
        return Change(kind, at.key, at.revision, old, admitted, warnings=tuple(warnings))

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


class _Place(NamedTuple):
    """An object that is to be changed, as it is stored; and the version in which the change was sent."""

    kind: Kind
    key: str
    revision: int
    value: bytes
    old: Object
    version: Kind


def _received(version: Kind, obj: Object) -> tuple[Object, list[str]]:
    """An object in the form that is stored, and the paths of unknown fields as they were sent."""
    if version.stored is None:
        return obj, []
    meta = admission.check_frame(version, obj)
    unknown, found = form(version).conform(obj)
    admission.refuse_malformed(version, found)
    if found:
        raise errors.invalid(version.storage, str(meta.get("name", "")), found)
    return versions.inward(version, obj), unknown


def patched(kind: Kind, base: Object, patch: Any, type_: PatchType) -> Object:
    """The object after a patch."""
    if type_ == "strategic" and kind.custom:
        raise errors.unsupported_patch()
    if type_ == "json" and not (isinstance(patch, list) and all(isinstance(operation, dict) for operation in patch)):
        raise errors.bad_request("error decoding patch: json: a JSON patch is a list of operations")
    try:
        if type_ == "json":
            if kind.name == "Secret":
                _check_stays_inside(patch)
            new = patches.json_patch(base, patch, max_ops=JSON_PATCH_OPERATIONS_MAX)
        elif type_ == "strategic" and isinstance(patch, dict):
            new = strategic.strategic_merge(base, patch, form(kind).node)
        elif type_ == "merge" and isinstance(patch, dict):
            new = patches.merge_patch(base, patch)
        else:
            raise errors.bad_request(f"error decoding patch: json: a {type_} patch is an object")
    except patches.JSONPatchTestFailed as failed:
        raise errors.unprocessable(str(failed)) from None
    except patches.JSONPatchError as wrong:
        raise errors.unprocessable(str(wrong)) from None
    except (patches.TooManyOperations, strategic.StrategicPatchError) as wrong:
        raise errors.bad_request(str(wrong)) from None
    if not isinstance(new, dict):
        raise errors.bad_request("the patch does not leave an object")
    return new


def _check_stays_inside(patch: list[Object]) -> None:
    """Refuse to put values of a Secret elsewhere: what is said about any other field may repeat what is in it."""
    for operation in patch:
        if operation.get("op") not in ("copy", "move"):
            continue
        source, target = str(operation.get("from")), str(operation.get("path"))
        # An annotation may have what was applied.
        is_plain = source.startswith("/metadata/") and not source.startswith("/metadata/annotations")
        if not is_plain and not (source.startswith(SECRET_PLACES) and target.startswith(SECRET_PLACES)):
            why = "in a Secret, values are copied and moved within /data and /stringData alone"
            raise errors.unprocessable(f"{operation['op']} operation does not apply: {why}: use add and remove")


def _check_uid(kind: Kind, meta: Any, old_meta: Object) -> None:
    """A patch cannot give an object another identity."""
    uid = meta.get("uid") if isinstance(meta, dict) else None
    if uid and uid != old_meta["uid"]:
        raise errors.invalid(kind, old_meta["name"], [p.invalid("metadata.uid", uid, "field is immutable")])


def _check_patched_frame(kind: Kind, new: Object, name: str) -> None:
    """Refuse what a patch has made an object of another kind or version, or of no name."""
    if not kind.custom and (new.get("apiVersion"), new.get("kind")) != (kind.api_version, kind.name):
        for field, value in (("apiVersion", kind.api_version), ("kind", kind.name)):
            if new.get(field) not in (None, "", value):
                raise errors.Malformed(kind, f"{field} cannot be changed")
    if kind.custom and not new.get("kind"):
        raise errors.Malformed(kind, "Object 'Kind' is missing")
    if kind.custom and new.get("apiVersion") != kind.api_version:
        raise errors.wrong_version(kind, name, new.get("apiVersion"))
    meta = new.get("metadata")
    if isinstance(meta, dict | None) and not (meta or {}).get("name"):
        raise errors.name_missing(name)


def _check_applied_frame(kind: Kind, config: Any) -> None:
    """Refuse a configuration of another kind. Of those of Kubernetes' own groups, too, it has to say the kind."""
    sent = (config.get("apiVersion"), config.get("kind")) if isinstance(config, dict) else ("", "")
    if isinstance(config, dict) and sent != (kind.api_version, kind.name):
        version = sent[0] or "/"
        raise errors.bad_request(
            f"invalid object type: {version if '/' in str(version) else f'/{version}'}, Kind={sent[1] or ''}"
        )


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


def check_size(kind: Kind, obj: Any, name: str, text: bytes = b"") -> None:
    """Refuse what is too large, or has far too much of something, before anything else is looked at."""
    if not isinstance(obj, dict):
        return  # That is said later.
    meta = obj.get("metadata")
    wrong = sizes.of_metadata(meta) if isinstance(meta, dict) else None
    found = [] if wrong is None else [wrong]
    if wrong is None:
        try:
            text = text or _encode(obj)
        except (OverflowError, ValueError):
            text = b""  # It has a number that no field takes, which is said later.
        if 0 < len(text) <= SURELY_SMALL_BYTES:
            return
        if len(text) > OBJECT_BYTES_MAX:
            raise errors.too_large(kind, _shown(name, meta), len(text), OBJECT_BYTES_MAX)
        if sizes.has_too_many_values(text):
            raise errors.too_many_values(kind, _shown(name, meta), sizes.VALUES_MAX)
        wrong = sizes.of_object(form(kind).schema, obj)
        found = [] if wrong is None else [wrong]
        if found and not form(kind).rules.empty:
            found.append(p.invalid(p.NO_FIELD, None, p.NOT_CHECKED))
    if found:
        raise errors.invalid(kind, _shown(name, meta), found)


def _shown(name: str, meta: Any) -> str:
    return name or (str(meta.get("name", ""))[:NAME_LENGTH_SHOWN] if isinstance(meta, dict) else "")


def scope(kind: Kind, namespace: str) -> str:
    return namespace if kind.namespaced else ""


def check_subresource(kind: Kind, subresource: str) -> None:
    is_namespace = kind is Namespace.api
    has = {"": True, "status": kind.has_status, "scale": kind.scale is not None, "finalize": is_namespace}
    if not has.get(subresource, False):
        raise errors.ApiError(404, "NotFound", f"{kind.bucket} has no subresource {subresource}")
