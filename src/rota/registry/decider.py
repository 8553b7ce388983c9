"""Decisions of each verb on the newest accepted state of an object.

Nothing here awaits, so no write comes in between.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api import Kind, Namespace
from rota.api.egress import Policy
from rota.api.form import form
from rota.api.structure import INPUT_DEPTH_MAX, too_deep
from rota.registry import (
    admission,
    apply,
    core_kinds,
    deletion,
    errors,
    privileges,
    roles,
    scaling,
    versions,
)
from rota.registry.admission import Moment, Object
from rota.registry.amendment import Amendment, amended
from rota.registry.comparison import same
from rota.registry.decisions import Amended, Change, Decision, Unchanged
from rota.registry.metadata import new_uid
from rota.registry.moulds import NOW, REVISION, Cast
from rota.registry.options import DeleteOptions, Operation, PatchType, WriteOptions
from rota.registry.patching import check_patched_frame, check_uid, patched
from rota.store import Store

GENERATE_NAME_TRIES_MAX = 8
PROTECTED_NAMESPACES = frozenset(("default", "rota-system", "kube-system", "kube-public"))

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

DEFAULT_WRITE = WriteOptions()
DEFAULT_DELETE = DeleteOptions()


class Decider:
    """The verbs up to the commit. A refusal is raised as `ApiError`; a decision changes nothing yet."""

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
        admission.check_size(kind, obj, "")
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
                # The update was for a deleted object of this name.
                raise errors.conflict(
                    kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                )
            meta.pop("resourceVersion", None)
            return self.create(kind, namespace, obj, options)
        if not isinstance(obj, dict):
            raise errors.bad_request(f"an object of kind {kind.name} was expected")
        admission.check_size(kind, obj, name)
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
        at = _StoredState(kind, key, revision, value, old, version)
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
            # A strategic patch has no apiVersion and kind.
            new = {**new, "apiVersion": base["apiVersion"], "kind": base["kind"]}
        check_uid(kind, new.get("metadata"), old["metadata"])
        # The patched object shares values with the old one, which must not be changed.
        text = _encode(new)
        admission.check_size(version, new, name, text)
        new = _decode(text)
        at = _StoredState(kind, key, revision, value, old, version)
        try:
            if subresource == "scale":
                new = scaling.changed(kind, old, new)
            check_patched_frame(version, new, name)
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
        admission.check_size(kind, config, name)
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
            check_uid(kind, meta, old["metadata"])
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
            # Kubernetes answers some of these with 500, as if the server had failed. Messages do not repeat values of a
            # Secret.
            said = re.sub(r", got .*", "", str(problem)) if kind.name == "Secret" else str(problem)
            raise errors.bad_request(said) from None
        # The configuration was checked; the merged object was not.
        text = _encode(new)
        admission.check_size(kind, new, name, text)
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
        at = _StoredState(kind, key, entry.rev, entry.value, old, version)
        return self._change(at, new, options, subresource, managed)

    def amend(
        self, kind: Kind, namespace: str, name: str, change: Amendment, options: WriteOptions = DEFAULT_WRITE
    ) -> Decision:
        """Decide an amendment by a controller of this process."""
        key = kind.key(scope(kind, namespace), name)
        entry = self._store.head(key)
        if entry is None:
            raise errors.not_found(kind, name)
        encoded = amended(kind, name, entry, change, options, self._now())
        return Amended(kind, key, name, entry.rev, encoded)

    def cast(self, kind: Kind, namespace: str, name: str, cast: Cast) -> Decision:
        """Decide the creation of an object from a mould. The name must be among its texts."""
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
        """Decide to remove Rota's finalizer from the spec of an empty namespace. Other finalizers stay."""
        kind = Namespace.api
        key, revision, value, old = self._current(kind, "", namespace)
        spec = old.get("spec") or {}
        kept = [name for name in spec.get("finalizers", ()) if name != core_kinds.NAMESPACE_FINALIZER]
        if len(kept) == len(spec.get("finalizers", ())):
            return Unchanged(key, value, revision)
        new = {**old, "metadata": dict(old["metadata"]), "spec": {"finalizers": kept} if kept else {}}
        return Change(kind, key, revision, old, new, gone=deletion.released(kind, new))

    def is_stale(self, decision: Decision) -> bool:
        """Report whether the object has changed since a decision.

        Raises `ApiError` if its namespace takes no new objects.
        """
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
        at: _StoredState,
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
                # Only an admin may change its managed fields, too.
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
        """Raise `ApiError` unless the namespace exists and is not being deleted."""
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


class _StoredState(NamedTuple):
    """A stored object to change, and the version that the change was sent in."""

    kind: Kind
    key: str
    revision: int
    value: bytes
    old: Object
    version: Kind


def _received(version: Kind, obj: Object) -> tuple[Object, list[str]]:
    """Return an object in its stored form, and the paths of unknown fields."""
    if version.stored is None:
        return obj, []
    meta = admission.check_frame(version, obj)
    unknown, found = form(version).conform(obj)
    admission.refuse_malformed(version, found)
    if found:
        raise errors.invalid(version.storage, str(meta.get("name", "")), found)
    return versions.inward(version, obj), unknown


def _check_applied_frame(kind: Kind, config: Any) -> None:
    """Refuse a configuration without, or of another, apiVersion and kind, also for core kinds."""
    sent = (config.get("apiVersion"), config.get("kind")) if isinstance(config, dict) else ("", "")
    if isinstance(config, dict) and sent != (kind.api_version, kind.name):
        version = sent[0] or "/"
        raise errors.bad_request(
            f"invalid object type: {version if '/' in str(version) else f'/{version}'}, Kind={sent[1] or ''}"
        )


def _applied_part(kind: Kind, namespace: str, config: Object, subresource: str) -> Object:
    """Return the part of a configuration that this request can set."""
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
    is_namespace = kind is Namespace.api
    has = {"": True, "status": kind.has_status, "scale": kind.scale is not None, "finalize": is_namespace}
    if not has.get(subresource, False):
        raise errors.ApiError(404, "NotFound", f"{kind.bucket} has no subresource {subresource}")


def decided(decide: Decider, o: Operation) -> Decision:
    """Decide an operation on the newest accepted state. Its body is copied, not changed."""
    verb, kind, namespace, name = o.verb, o.kind, o.namespace, o.name
    if verb == "amend":
        return decide.amend(kind, namespace, name, o.body, o.options)
    if verb == "cast":
        return decide.cast(kind, namespace, name, o.body)
    if verb == "update":
        return decide.update(kind, namespace, name, _own(o.body), o.options, subresource=o.subresource)
    if verb == "patch":
        patch, how = _own(o.body), o.patch_type
        return decide.patch(kind, namespace, name, patch, o.options, type_=how, subresource=o.subresource)
    if verb == "create":
        return decide.create(kind, namespace, _own(o.body), o.options)
    if verb == "delete":
        return decide.delete(kind, namespace, name, o.delete)
    if verb == "apply":
        return decide.apply(kind, namespace, name, _own(o.body), o.options, subresource=o.subresource)
    if verb == "decided":
        return typing.cast(Decision, o.body)
    raise errors.bad_request(f"{verb} is written alone")


def _own(value: Any) -> Any:
    """Return a copy that the registry may keep.

    It is made through JSON, so that it equals what a server would receive.
    """
    try:
        text = _encode(value)
        own = _decode(text)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise errors.bad_request(f"this cannot be sent as JSON: {error}") from None
    if text.count(b"{") + text.count(b"[") > INPUT_DEPTH_MAX and too_deep(own, INPUT_DEPTH_MAX):
        raise errors.bad_request(f"this is nested more than {INPUT_DEPTH_MAX} levels deep")
    return own
