"""The scale subresource: an object's replicas in the form of `autoscaling/v1`. Pure."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.api.kind import AGE, Column
from rota.api.served import Foreign
from rota.registry import errors

Object = dict[str, Any]
API_VERSION = "autoscaling/v1"
SCALE = Kind(
    name="Scale",
    plural="scales",
    type=Foreign,
    group="autoscaling",
    version="v1",
    columns=(Column("Desired", ".spec.replicas", "integer"), Column("Available", ".status.replicas", "integer"), AGE),
    custom=False,
)
INT32 = 2**31
COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def of(kind: Kind, obj: Object) -> Object:
    """Return the Scale of an object."""
    assert kind.scale is not None, f"{kind} has no scale"
    replicas = _at(obj, kind.scale.spec_replicas)
    status: Object = {"replicas": _at(obj, kind.scale.status_replicas) or 0}
    if selector := _at(obj, kind.scale.selector):
        status["selector"] = selector
    return {
        "apiVersion": API_VERSION,
        "kind": "Scale",
        "metadata": {k: obj["metadata"][k] for k in COPIED if k in obj["metadata"]},
        # As in Kubernetes, 0 is left out.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def changed(kind: Kind, obj: Object, scale: Object) -> Object:
    """Return the object with the replicas of a Scale, to be updated as usual."""
    assert kind.scale is not None, f"{kind} has no scale"
    _check_form(scale)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
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


def applied(kind: Kind, scale: Any) -> Object:
    """Return the configuration of the object for an applied Scale, which has its replicas only."""
    assert kind.scale is not None, f"{kind} has no scale"
    sent = (scale.get("apiVersion"), scale.get("kind")) if isinstance(scale, dict) else ("", "")
    if sent != (API_VERSION, SCALE.name):
        raise errors.bad_request(f"a Scale of {API_VERSION} was expected")
    _check_form(scale)
    meta, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    if meta.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    keep = {k: meta[k] for k in ("name", "namespace", "resourceVersion", "uid") if meta.get(k)}
    config: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": keep}
    if "replicas" in spec:
        *path, last = kind.scale.spec_replicas.strip(".").split(".")
        part = config
        for step in path:
            part = part.setdefault(step, {})
        part[last] = spec["replicas"]
    return config


def _check_form(scale: Object) -> None:
    """Refuse a malformed Scale. The bounds of its replicas are checked with the object."""
    for part in ("metadata", "spec", "status"):
        value = scale.get(part)
        if not isinstance(value, dict | None):
            raise errors.Malformed(SCALE, f"{part}: an object was expected")
        replicas = value.get("replicas") if part != "metadata" and value else None
        if replicas is not None and (type(replicas) is not int or not -INT32 <= replicas < INT32):
            raise errors.Malformed(SCALE, f"{part}.replicas: a whole number of 32 bits was expected")


def _at(obj: Object, path: str) -> Any:
    here: Any = obj
    for step in path.strip(".").split(".") if path else []:
        here = here.get(step) if isinstance(here, dict) else None
    return here if path else None
