"""The scale subresource: an object's replicas in the form of `autoscaling/v1`. Pure."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.api import problems as p
from rota.registry import errors

Object = dict[str, Any]
COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def of(kind: Kind, obj: Object) -> Object:
    """The Scale of an object."""
    assert kind.scale is not None, f"{kind} has no scale"
    status: Object = {"replicas": _at(obj, kind.scale.status_replicas) or 0}
    if selector := _at(obj, kind.scale.selector):
        status["selector"] = selector
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {k: obj["metadata"][k] for k in COPIED if k in obj["metadata"]},
        "spec": {"replicas": _at(obj, kind.scale.spec_replicas) or 0},
        "status": status,
    }


def changed(kind: Kind, obj: Object, scale: Object) -> Object:
    """The object with the replicas of a Scale, for the usual update of it."""
    assert kind.scale is not None, f"{kind} has no scale"
    name = obj["metadata"]["name"]
    spec = scale.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    if type(replicas) is not int or replicas < 0:
        raise errors.invalid(kind, name, [p.invalid("spec.replicas", replicas, "must be greater than or equal to 0")])
    sent = scale.get("metadata") or {}
    keep = {k: sent[k] for k in ("resourceVersion", "uid") if sent.get(k)}
    meta = {k: v for k, v in obj["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    *path, last = kind.scale.spec_replicas.strip(".").split(".")
    new = {**obj, "metadata": {**meta, **keep}}
    part = new
    for step in path:
        part[step] = dict(part.get(step) or {})
        part = part[step]
    part[last] = replicas
    return new


def _at(obj: Object, path: str) -> Any:
    here: Any = obj
    for step in path.strip(".").split(".") if path else []:
        here = here.get(step) if isinstance(here, dict) else None
    return here if path else None
