"""Admission: the object to store, made from the one that a client sent. Pure.

Nothing here reads the store or the clock. An object that is passed in belongs to the callee and may be changed in
place; `old` never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.api import Kind, ObjectMeta, sizes
from rota.api import problems as p
from rota.api.form import form
from rota.api.problems import Problem
from rota.registry import core_kinds, errors, metadata, versions
from rota.registry.comparison import same
from rota.registry.managed import after_update, requested
from rota.registry.options import WriteOptions

Object = dict[str, Any]

OBJECT_BYTES_MAX = 1_572_864
"""Bound on the bytes of one stored object, the same as etcd's."""
SURELY_SMALL_BYTES = 16 * 1024
"""Objects up to this size cannot have too many values."""
NAME_LENGTH_SHOWN = 253
WARNINGS_MAX = 20
"""Bound on the warnings of one answer."""
UNSEARCHED = frozenset(("apiVersion", "kind", "metadata", "status"))
IDENTITY = frozenset(("name", "namespace", "uid", "resourceVersion"))
"""The fields of metadata that only identify an object."""


_encode = msgspec.json.Encoder().encode


class Moment(msgspec.Struct, frozen=True):
    """The time of a write, and the uid of an object that it creates."""

    now: str
    uid: str = ""


def check_frame(kind: Kind, obj: Any) -> Object:
    """Check that a value is an object of a kind, with metadata. Return its metadata."""
    if not isinstance(obj, dict):
        raise errors.bad_request(f"an object of kind {kind.name} was expected, not {type(obj).__name__}")
    if not kind.custom:
        obj.update(
            {name: obj.get(name) or want for name, want in (("apiVersion", kind.api_version), ("kind", kind.name))}
        )
    if not obj.get("kind"):
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind.name}): Object 'Kind' is missing"
        )
    version = obj.get("apiVersion") or ""
    if version != kind.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    meta = obj["metadata"]
    if not isinstance(meta, dict):
        raise errors.Malformed(kind, "metadata must be an object")
    if obj["kind"] != kind.name:
        raise errors.wrong_kind(kind, str(meta.get("name", "")), obj["kind"])
    return meta


def check_metadata_types(kind: Kind, meta: Object) -> None:
    try:
        msgspec.convert(meta, ObjectMeta)
    except msgspec.ValidationError as error:
        raise errors.Malformed(kind, f"metadata: {error}".replace("`$.", "`metadata.")) from None


def admit_new(
    kind: Kind,
    namespace: str,
    obj: Object,
    options: WriteOptions,
    at: Moment,
    *,
    version: Kind | None = None,
    unknown_sent: Sequence[str] = (),
) -> tuple[Object, list[str]]:
    """Return a new object as it will be stored, without its revision, and warnings.

    `version` is the version that it was sent in, if not that of the kind; `unknown_sent` are the fields that were
    unknown there.
    """
    meta = check_frame(kind, obj)
    unknown = list(unknown_sent)
    metadata.tidy(meta, unknown)
    check_metadata_types(kind, meta)
    warnings = metadata.deduplicate_owners(meta, created=True)
    _place(kind, namespace, meta)
    if meta.get("resourceVersion"):
        raise errors.bad_request("resourceVersion should not be set on objects to be created")
    sent_managed = meta.pop("managedFields", None) or None
    for name in metadata.NOT_FOR_CREATORS & meta.keys():
        del meta[name]
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = metadata.generated_name(meta["generateName"])
    shape = form(kind)
    if not kind.custom:
        unknown += shape.prune({"spec": obj.get("spec"), "status": obj.get("status")}) if kind.has_status else []
        core_kinds.prepare_new(kind, obj)
    elif "status" in obj and not options.with_status:
        unknown += shape.prune({"status": obj.pop("status")})

    more_unknown, found = shape.conform(obj)
    problems: list[Problem] = []
    metadata.check_new(kind, meta, problems)
    if not kind.custom:
        core_kinds.check(kind, obj, None, problems, version)
    refuse_malformed(kind, [*problems, *found])
    _refuse_unknown(kind, [*unknown, *more_unknown], options)
    problems = shape.break_rules(obj, None, [*problems, *found])
    warnings += _warnings([*unknown, *more_unknown], options)
    if problems:
        raise errors.invalid(kind, meta.get("name", ""), problems, warnings)

    meta["uid"] = at.uid
    meta["creationTimestamp"] = at.now
    if kind.custom:
        meta["generation"] = 1
    warnings += metadata.finalizer_warnings(kind, meta, {})
    managed = after_update(
        versions.managed_inward(version or kind, requested(sent_managed, [], subresource="")),
        core_kinds.BLANK.get(kind.name),
        core_kinds.sent(kind, obj),
        shape.node,
        manager=options.manager,
        api_version=(version or kind).api_version,
        subresource="",
        now=at.now,
    )
    return framed(kind, obj, versions.managed_outward(version or kind, managed)), warnings


def _place(kind: Kind, namespace: str, meta: Object) -> None:
    """Set the namespace of the request. Raises `ApiError` if the object has another."""
    if not kind.namespaced:
        if meta.pop("namespace", "") and namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return
    sent = meta.get("namespace")
    if sent and sent != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = namespace


def framed(kind: Kind, obj: Object, managed: list[Object]) -> Object:
    """Return an object with its top-level fields in the usual order, and its managed fields in metadata."""
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    if managed:
        meta["managedFields"] = managed
    out: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    for name, value in obj.items():
        if name not in out:
            out[name] = value
    return out


def admit_change(
    kind: Kind,
    old: Object,
    new: Object,
    options: WriteOptions,
    at: Moment,
    *,
    subresource: str = "",
    managed: list[Object] | None = None,
    version: Kind | None = None,
    unknown_sent: Sequence[str] = (),
) -> tuple[Object, list[str]]:
    """Return a changed object as it will be stored, without its revision, and warnings.

    `managed` are the managed fields after a server-side apply; without them, the writer owns what it changed.
    `version` and `unknown_sent` as for `admit_new`.
    """
    meta = check_frame(kind, new)
    unknown = list(unknown_sent)
    warnings = _check_sent_metadata(kind, meta, unknown)
    old_meta = old["metadata"]
    _check_identity(kind, meta, old_meta)
    sent_managed = meta.pop("managedFields", None) or None
    shape = form(kind)
    problems: list[Problem] = []
    if subresource == "status":
        # Ignored parts are still searched for unknown fields, unless they are unchanged.
        other = {name: value for name, value in new.items() if name not in UNSEARCHED and value != old.get(name)}
        unknown += shape.prune(other) if other else []
        new = {**old, "metadata": dict(old_meta), "status": new.get("status")}
        more_unknown, found = shape.conform_status(new)
        meta = new["metadata"]
    else:
        if not kind.custom:
            unknown += shape.prune({"spec": new.get("spec"), "status": new.get("status")}) if kind.has_status else []
            core_kinds.prepare_change(kind, old, new, subresource)
        elif new.get("status") != old.get("status"):
            unknown += shape.prune({"status": new.pop("status", None)})
            _keep_status(old, new)
        more_unknown, found = shape.conform(new)
        metadata.check_not_marked(meta, old_meta, problems)
        for name in (*metadata.SERVER_FIELDS, "resourceVersion"):
            meta.pop(name, None)
            if name in old_meta:
                meta[name] = old_meta[name]
        metadata.check_change(meta, old_meta, problems)
        warnings += metadata.finalizer_warnings(kind, meta, old_meta)
    if not kind.custom:
        core_kinds.check(kind, new, old, problems, version)
    unknown += more_unknown
    problems += found
    refuse_malformed(kind, problems)
    _refuse_unknown(kind, unknown, options)
    problems = shape.break_rules(new, old, problems)
    if unknown or options.duplicates:
        warnings += _warnings(unknown, options)
    if problems:
        raise errors.invalid(kind, old_meta["name"], problems, warnings)

    if kind.custom and subresource != "status" and _desired_changed(old, new):
        meta["generation"] = old_meta.get("generation", 0) + 1
    if managed is None:
        tracked = requested(sent_managed, old_meta.get("managedFields", []), subresource=subresource)
        managed = after_update(
            versions.managed_inward(version or kind, tracked),
            old,
            new,
            shape.node,
            manager=options.manager,
            api_version=(version or kind).api_version,
            subresource=subresource,
            now=at.now,
            is_tracked=bool(tracked),
        )
        managed = versions.managed_outward(version or kind, managed)
    return framed(kind, new, managed), warnings


def _check_sent_metadata(kind: Kind, meta: Object, unknown: list[str]) -> list[str]:
    """Normalize the metadata that was sent, and refuse malformed metadata. Return warnings."""
    if IDENTITY.issuperset(meta) and all(type(value) is str for value in meta.values()):
        return []
    metadata.tidy(meta, unknown)
    check_metadata_types(kind, meta)
    return metadata.deduplicate_owners(meta, created=False)


def _keep_status(old: Object, new: Object) -> None:
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def _desired_changed(old: Object, new: Object) -> bool:
    """Report whether anything but metadata and status differs."""
    names = (old.keys() | new.keys()) - {"metadata", "status"}
    return any(old.get(name) != new.get(name) or not same(old.get(name), new.get(name)) for name in names)


def _check_identity(kind: Kind, meta: Object, old_meta: Object) -> None:
    name = old_meta["name"]
    if not meta.get("name"):
        meta["name"] = name
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = old_meta["namespace"]
    if meta["name"] != name:
        raise errors.other_name(meta["name"], name)
    if kind.namespaced and meta["namespace"] != old_meta["namespace"]:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    uid = meta.get("uid")
    if uid and uid != old_meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old_meta['uid']}"
        raise errors.conflict(kind, name, why)
    version = meta.get("resourceVersion")
    if version and version != old_meta["resourceVersion"]:
        raise errors.conflict(kind, name)


def refuse_malformed(kind: Kind, found: list[Problem]) -> None:
    """Raise Malformed for a wrong type in a core kind. Kubernetes decodes those into Go types before it validates."""
    wrong = [problem for problem in found if problem.reason == "FieldValueTypeInvalid"]
    if wrong and not kind.custom:
        raise errors.Malformed(kind, str(wrong[0]))


def _refuse_unknown(kind: Kind, unknown: list[str], options: WriteOptions) -> None:
    if options.field_validation == "Strict" and (unknown or options.duplicates):
        raise errors.Malformed(kind, f"strict decoding error: {', '.join(_decoding_problems(unknown, options))}")


def _warnings(unknown: list[str], options: WriteOptions) -> list[str]:
    if options.field_validation != "Warn":
        return []
    return _decoding_problems(unknown, options)[:WARNINGS_MAX]


def _decoding_problems(unknown: list[str], options: WriteOptions) -> list[str]:
    twice = [f'duplicate field "{path}"' for path in options.duplicates]
    return [*twice, *(f'unknown field "{path}"' for path in _in_order(unknown))]


def _in_order(paths: list[str]) -> list[str]:
    """Sort paths, those of metadata first."""
    return sorted(paths, key=lambda path: (not path.startswith("metadata."), path))


def check_size(kind: Kind, obj: Any, name: str, text: bytes = b"") -> None:
    """Refuse an object that exceeds a bound, before anything else of it is checked."""
    if not isinstance(obj, dict):
        return  # Reported later.
    meta = obj.get("metadata")
    wrong = sizes.of_metadata(meta) if isinstance(meta, dict) else None
    found = [] if wrong is None else [wrong]
    if wrong is None:
        try:
            text = text or _encode(obj)
        except (OverflowError, ValueError):
            text = b""  # A number that no field takes, reported later.
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
