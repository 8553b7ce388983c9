"""Checks that bound the size of the copies of a template, of which the store has one for each instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rota.api.model import Check, Rule, Wrong

Json = dict[str, Any]

COPIES_BYTES_MAX = 64 << 20
"""Bound on the size of all instances of one object together."""
INSTANCE_BYTES = 4096
"""Size of an instance beside its template: names, status, managed fields."""
REPLICAS_MAX = 1000
"""Bound on the instances of a placement in one city."""
INSTANCES_MAX = COPIES_BYTES_MAX // INSTANCE_BYTES
"""Bound on the instances of one object, with the smallest template."""
_NOT_COPIED = ("source", "requirements", "scale", "regions")
"""Fields of a function that its instances do not copy.

Instances have the digest of the code and the hash of the packages instead.
"""


def _too_much(field: str, template: Any, instances: int, others: int = 0) -> Iterator[Wrong]:
    """Yield a problem if the copies of a template, in instances and other objects, exceed `COPIES_BYTES_MAX`."""
    size = len(msgspec.json.encode(template))
    if instances * (size + INSTANCE_BYTES) + others * size <= COPIES_BYTES_MAX:
        return
    why = (
        f"up to {instances} instances have a copy of it, and with {INSTANCE_BYTES} bytes more for each that must be at "
        f"most {COPIES_BYTES_MAX >> 20} MiB in all: have fewer, or put long values into a ConfigMap, a Secret or a "
        "Workspace, which they refer to"
    )
    yield Wrong(field, f"{size} bytes", why)


def _of_pool(spec: Json) -> Iterator[Wrong]:
    field = "worker" if "worker" in spec else "template"
    scale = spec.get("scale")
    yield from _too_much(field, spec.get(field), scale["max"] if scale is not None else spec.get("replicas", 1))


def _of_function(spec: Json) -> Iterator[Wrong]:
    copied = {name: one for name, one in spec.items() if name not in _NOT_COPIED}
    # While a version takes the place of another one, there are instances of both.
    yield from _too_much("env", copied, 2 * spec.get("scale", {}).get("max", 1))


def _of_workload(spec: Json) -> Iterator[Wrong]:
    cities = [(len(one["cityCodes"]), one.get("scale", {})) for one in spec["placements"]]
    # Values out of their bounds are reported by the schema.
    most = [min(max(scale.get("max") or scale.get("min", 1), 0), REPLICAS_MAX) for _, scale in cities]
    instances = sum(number * count for (number, _), count in zip(cities, most, strict=True))
    others = sum(number for number, _ in cities) + spec.get("revisionHistoryLimit", 0)
    yield from _too_much("template", spec["template"], instances, others)


POOL_COPIES = Check(_of_pool, ("worker", "template", "replicas", "scale"))
FUNCTION_COPIES = Check(_of_function, ("env", "command", "egress", "scale"))
WORKLOAD_COPIES = Check(
    _of_workload,
    ("template", "placements", "revisionHistoryLimit"),
    rules=(
        Rule(
            # A number that is out of its bounds would make the sum overflow.
            "self.placements.map(one, size(one.cityCodes) * (has(one.scale.max) ?"
            f" (one.scale.max < 0 ? 0 : one.scale.max > {REPLICAS_MAX} ? {REPLICAS_MAX} : one.scale.max) :"
            f" (one.scale.min < 0 ? 0 : one.scale.min > {REPLICAS_MAX} ? {REPLICAS_MAX} : one.scale.min))).sum()"
            f" <= {INSTANCES_MAX}",
            f"placements must not have more than {INSTANCES_MAX} instances in all",
            "template",
        ),
    ),
)
