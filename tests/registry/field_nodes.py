"""A kind with every sort of structure there is, for the tests of field management."""

from __future__ import annotations

from typing import Any

from rota.api.structure import ANY, ATOMIC_ANY, SCALAR, Structure

API_VERSION = "rota.test/v1"


def struct(**fields: Structure) -> Structure:
    return Structure("struct", fields=fields)


def map_of(item: Structure) -> Structure:
    return Structure("map", item=item)


PORTS = Structure(
    "list",
    item=struct(port=SCALAR, protocol=SCALAR, name=SCALAR),
    list_type="map",
    keys=("port", "protocol"),
    key_defaults={"protocol": "TCP"},
)
ENV = Structure("list", item=struct(name=SCALAR, value=SCALAR), list_type="map", keys=("name",))
CONTAINERS = Structure(
    "list",
    item=struct(name=SCALAR, image=SCALAR, args=Structure("list", item=SCALAR), env=ENV, ports=PORTS),
    list_type="map",
    keys=("name",),
)
META = struct(
    name=SCALAR,
    namespace=SCALAR,
    uid=SCALAR,
    resourceVersion=SCALAR,
    generation=SCALAR,
    creationTimestamp=SCALAR,
    labels=map_of(SCALAR),
    annotations=map_of(SCALAR),
    finalizers=Structure("list", item=SCALAR, list_type="set"),
    managedFields=Structure("list", item=ATOMIC_ANY),
)
SPEC = struct(
    replicas=SCALAR,
    image=SCALAR,
    strategy=struct(type=SCALAR, rolling=struct(surge=SCALAR)),
    selector=Structure("struct", fields={"app": SCALAR, "tier": SCALAR}, atomic=True),
    limits=Structure("map", item=SCALAR, atomic=True),
    args=Structure("list", item=SCALAR),
    zones=Structure("list", item=SCALAR, list_type="set"),
    containers=CONTAINERS,
    queues=map_of(struct(depth=SCALAR, owner=SCALAR)),
    free=ANY,
    sealed=ATOMIC_ANY,
)
STATUS = struct(
    phase=SCALAR,
    conditions=Structure("list", item=struct(type=SCALAR, status=SCALAR), list_type="map", keys=("type",)),
)
WIDGET = struct(apiVersion=SCALAR, kind=SCALAR, metadata=META, spec=SPEC, status=STATUS)


def widget(spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """An object of this kind, with a uid as if it were stored."""
    out = config(spec, **meta)
    out["metadata"]["uid"] = "u1"
    return out


def config(spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """An object of this kind as a user writes it."""
    out: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "d"} | meta,
    }
    if spec is not None:
        out["spec"] = spec
    return out
