"""Benchmark of field ownership and patches on an object of 1 KiB, in µs: `python -m bench.fields [--quick]`."""

from __future__ import annotations

import argparse
import copy
import json
import timeit
from collections.abc import Callable
from typing import Any

from rota.api.structure import SCALAR, Structure
from rota.registry import fieldset
from rota.registry.apply import apply
from rota.registry.managed import after_update
from rota.registry.patches import json_patch, merge_patch, strategic_merge

API_VERSION = "rota.test/v1"
NOW = "2024-01-01T00:00:01Z"


def _struct(**fields: Structure) -> Structure:
    return Structure("struct", fields=fields)


def _scalars(names: str) -> Structure:
    return Structure("struct", fields=dict.fromkeys(names.split(), SCALAR))


def _by(keys: str, item: Structure) -> Structure:
    return Structure("list", item=item, list_type="map", keys=tuple(keys.split()))


_LABELS = Structure("map", item=SCALAR)
_CONTAINER = Structure(
    "struct",
    fields={
        **_scalars("name image pullPolicy workingDir").fields,
        "command": Structure("list", item=SCALAR),
        "env": _by("name", _scalars("name value")),
        "ports": _by("containerPort protocol", _scalars("containerPort protocol name")),
        "resources": _struct(limits=_LABELS, requests=_LABELS),
    },
)
NODE = _struct(
    apiVersion=SCALAR,
    kind=SCALAR,
    metadata=Structure(
        "struct",
        fields={
            **_scalars("name namespace uid resourceVersion generation creationTimestamp").fields,
            "labels": _LABELS,
            "annotations": _LABELS,
        },
    ),
    spec=Structure(
        "struct",
        fields={
            **_scalars("replicas schedule suspend timeZone policy deadlineSeconds historyLimit").fields,
            "selector": Structure("struct", fields={"matchLabels": _LABELS}, atomic=True),
            "strategy": _struct(type=SCALAR, rolling=_scalars("maxSurge maxUnavailable")),
            "containers": _by("name", _CONTAINER),
        },
    ),
)
OBJECT: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Function",
    "metadata": {
        "name": "nightly-report",
        "namespace": "default",
        "uid": "0b8c5a3e-9a3d-4f0e-8a3e-2c9e6b1f7d55",
        "creationTimestamp": "2024-05-01T10:00:00Z",
        "generation": 1,
        "labels": {"app": "report", "tier": "batch", "team": "ops"},
        "annotations": {"rota.test/description": "sends the nightly report"},
    },
    "spec": {
        "replicas": 3,
        "schedule": "*/5 * * * *",
        "suspend": False,
        "timeZone": "Europe/Berlin",
        "policy": "Forbid",
        "deadlineSeconds": 100,
        "historyLimit": 3,
        "selector": {"matchLabels": {"app": "report"}},
        "strategy": {"type": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 0}},
        "containers": [
            {
                "name": "main",
                "image": "registry.example/report:1.4.2",
                "command": ["python", "-m", "report"],
                "pullPolicy": "IfNotPresent",
                "workingDir": "/srv/report",
                "env": [{"name": "MODE", "value": "nightly"}, {"name": "REGION", "value": "eu"}],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {
                    "limits": {"cpu": "500m", "memory": "128Mi"},
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                },
            },
            {
                "name": "proxy",
                "image": "registry.example/proxy:2.0",
                "pullPolicy": "Always",
                "env": [{"name": "UPSTREAM", "value": "main"}],
            },
        ],
    },
}


def _operations() -> dict[str, Callable[[], Any]]:
    # Equal values in other objects, as from the body of another request.
    same = json.loads(json.dumps(OBJECT))
    new = json.loads(json.dumps(OBJECT))
    new["spec"]["replicas"] = 4
    new["spec"]["containers"][0]["image"] = "registry.example/report:1.5.0"

    def updated(managed: list[Any], old: Any, to: Any, manager: str) -> list[Any]:
        return after_update(managed, old, to, NODE, manager=manager, api_version=API_VERSION, subresource="", now=NOW)

    created = updated([], None, OBJECT, "creator")
    config = copy.deepcopy(OBJECT)
    for name in ("uid", "creationTimestamp", "generation"):
        del config["metadata"][name]

    def applied(live: Any, managed: list[Any]) -> Any:
        return apply(
            live,
            config,
            managed,
            NODE,
            manager="applier",
            api_version=API_VERSION,
            subresource="",
            force=True,
            now=NOW,
        )

    live, managed = applied(OBJECT, created)
    image = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    ops: list[dict[str, Any]] = [
        {"op": "test", "path": "/spec/replicas", "value": 3},
        {"op": "replace", "path": "/spec/replicas", "value": 4},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "new"},
    ]
    return {
        "managed: create": lambda: updated([], None, OBJECT, "creator"),
        "managed: update of 2 fields, same manager": lambda: updated(created, OBJECT, new, "creator"),
        "managed: update of 2 fields, other manager": lambda: updated(created, OBJECT, new, "other"),
        "managed: update of nothing": lambda: updated(created, OBJECT, same, "other"),
        "fieldset: of": lambda: fieldset.of(OBJECT, NODE),
        "fieldset: compare, 2 fields differ": lambda: fieldset.compare(OBJECT, new, NODE),
        "apply: first, whole object": lambda: applied(OBJECT, created),
        "apply: again, nothing changes": lambda: applied(live, managed),
        "patch: merge, 1 field": lambda: merge_patch(OBJECT, {"spec": {"replicas": 4}}),
        "patch: json, 3 operations": lambda: json_patch(OBJECT, ops, max_ops=10),
        "patch: strategic, 1 field of a list item": lambda: strategic_merge(OBJECT, image, NODE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, noisier numbers")
    number, repeat = (200, 3) if parser.parse_args().quick else (2000, 15)
    members = len(list(fieldset.members(fieldset.claims(OBJECT, NODE))))
    size = len(json.dumps(OBJECT, separators=(",", ":")))
    print(f"object: {size} bytes, {members} paths; best of {repeat}")
    for name, operation in _operations().items():
        best = min(timeit.repeat(operation, number=number, repeat=repeat)) / number
        print(f"{name:45} {best * 1e6:8.2f} µs")


if __name__ == "__main__":
    main()
