"""What a request to delete an object means for it: gone at once, or marked until its finalizers are gone. Pure."""

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
    """Refuse if the object is not the one that was meant."""
    meta = obj["metadata"]
    for what, wanted, actual, since in (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "modified"),
    ):
        if wanted is not None and wanted != actual:
            raise errors.not_the_one(kind, meta["name"], what, wanted, actual, since)


def marked(kind: Kind, old: Object, propagation: Propagation, now: str) -> Object | None:
    """The object marked for deletion, or None when nothing holds it and it can go at once.

    Returns `old` itself when it is marked already and nothing changes.
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
    """Whether something other than metadata's finalizers keeps the object: a namespace is emptied first."""
    return kind.name == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def released(kind: Kind, obj: Object) -> bool:
    """Whether an object that is marked for deletion has nothing left to wait for."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not held(kind, obj)


def _finalizers(current: list[str], propagation: Propagation) -> list[str]:
    """The finalizers that a deletion with this policy leaves. Without a policy, those that are there decide."""
    if not propagation:
        return current
    kept = [f for f in current if f not in (ORPHAN, FOREGROUND)]
    wanted = POLICY_FINALIZER.get(propagation)
    return [*kept, wanted] if wanted else kept
