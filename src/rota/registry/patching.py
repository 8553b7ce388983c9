"""The patch verb: an object after a patch of any type, and the checks of the result."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.api import problems as p
from rota.api.form import form
from rota.registry import errors, patches, strategic
from rota.registry.admission import Object
from rota.registry.options import PatchType

JSON_PATCH_OPERATIONS_MAX = 10_000
SECRET_PLACES = ("/data/", "/stringData/")
"""Paths of the values of a Secret."""


def patched(kind: Kind, base: Object, patch: Any, type_: PatchType) -> Object:
    """Return the object after a patch."""
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
    """Refuse to move values of a Secret to other fields, whose values messages may repeat."""
    for operation in patch:
        if operation.get("op") not in ("copy", "move"):
            continue
        source, target = str(operation.get("from")), str(operation.get("path"))
        # An annotation may have a configuration with the values.
        is_plain = source.startswith("/metadata/") and not source.startswith("/metadata/annotations")
        if not is_plain and not (source.startswith(SECRET_PLACES) and target.startswith(SECRET_PLACES)):
            why = "in a Secret, values are copied and moved within /data and /stringData alone"
            raise errors.unprocessable(f"{operation['op']} operation does not apply: {why}: use add and remove")


def check_uid(kind: Kind, meta: Any, old_meta: Object) -> None:
    """Refuse a change of the uid."""
    uid = meta.get("uid") if isinstance(meta, dict) else None
    if uid and uid != old_meta["uid"]:
        raise errors.invalid(kind, old_meta["name"], [p.invalid("metadata.uid", uid, "field is immutable")])


def check_patched_frame(kind: Kind, new: Object, name: str) -> None:
    """Refuse a patched object of another kind or version, or without a name."""
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
