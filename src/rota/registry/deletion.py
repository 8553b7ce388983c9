"""Deletion of an object: at once, or marked until its finalizers are removed. Pure."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.registry import errors
from rota.registry.options import DeleteOptions, Propagation

Object = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
POLICY_FINALIZER: dict[Propagation, str] = {"Orphan": ORPHAN, "Foreground": FOREGROUND}


def check_preconditions(kind: Kind, obj: Object, options: DeleteOptions) -> None:
    """Raise a Conflict unless the object has the expected uid and resourceVersion."""
    meta = obj["metadata"]
    for what, wanted, actual, since in (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "modified"),
    ):
        if wanted is not None and wanted != actual:
            raise errors.precondition_failed(kind, meta["name"], what, wanted, actual, since)


def marked(kind: Kind, old: Object, propagation: Propagation, now: str) -> Object | None:
    """Return the object marked for deletion; None if it has no finalizers and is deleted at once.

    Returns `old` itself if it is marked already and nothing changes.
    """
    meta = old["metadata"]
    finalizers = _finalizers(meta.get("finalizers", []), propagation)
    if not finalizers and not held(kind, old):
        return None
    if "deletionTimestamp" in meta and finalizers == meta.get("finalizers", []):
        return old
    new_meta = {**meta, "finalizers": finalizers}
    if not finalizers:
        del new_meta["finalizers"]
    if "deletionTimestamp" not in meta:
        new_meta["deletionTimestamp"] = now
        new_meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            new_meta["generation"] = meta["generation"] + 1
    new = {**old, "metadata": new_meta}
    if kind.name == "Namespace":
        new["status"] = {**old.get("status", {}), "phase": "Terminating"}
    return new


def held(kind: Kind, obj: Object) -> bool:
    """Report whether something besides metadata.finalizers delays the deletion: a namespace is emptied first."""
    return kind.name == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def released(kind: Kind, obj: Object) -> bool:
    """Report whether an object is marked for deletion and nothing delays it any more."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not held(kind, obj)


def _finalizers(current: list[str], propagation: Propagation) -> list[str]:
    """Return the finalizers after a deletion with a policy. Without one they stay as they are."""
    if not propagation:
        return current
    kept = [f for f in current if f not in (ORPHAN, FOREGROUND)]
    wanted = POLICY_FINALIZER.get(propagation)
    return [*kept, wanted] if wanted else kept
