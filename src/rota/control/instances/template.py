"""The hash of an instance template, which decides on a rollout, and the size that a quota counts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from rota.api import InstanceType
from rota.api.instance import FunctionTemplate, InstanceTemplate, Storage
from rota.api.parts import Amounts, Limits, Resources
from rota.api.quantity import parse_quantity

HASH_BYTES = 8
SETTLE_SECONDS = 0.5
"""Time for which a process must have been up before a rollout goes on to the next."""
RESTARTED = "rota.dev/restarted-at"
TEMPLATE_RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a restart in a template, where people must not set annotations of Rota's domain."""
RESTARTS = (RESTARTED, TEMPLATE_RESTARTED)
"""Annotations that only have the effect of a restart."""
UNIT_NANOS = 1_000_000_000
CPU_NANOS_MIN = 10_000_000
"""The smallest share of a container, since the kernel enforces no smaller limit."""
_QUANTITIES: dict[type[Any], tuple[str, ...]] = {
    Amounts: ("cpu", "memory"),
    Limits: ("cpu", "memory"),
    Storage: ("size",),
}
_TEMPLATE_FIELDS = frozenset(FunctionTemplate.__struct_fields__)


def template_hash(
    template: InstanceTemplate, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> str:
    """Return the hash of a template, equal for all spellings of the same template.

    An instance's spec has the hash of the template that it was made from: fields that Rota adds do not count.
    """
    made_from = {
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "spec": _canonical(template, only=_TEMPLATE_FIELDS),
    }
    content = msgspec.json.encode({key: value for key, value in made_from.items() if value}, order="deterministic")
    return blake2b(content, digest_size=HASH_BYTES).hexdigest()


def settle_seconds(template: InstanceTemplate) -> float:
    """Return the time for which a new instance must have been up before a rollout goes on.

    It is 0 for a worker, and if all containers have a readiness probe: those report themselves when they can be used.
    """
    probed = all(container.readiness_probe is not None for container in template.containers)
    return 0.0 if probed or template.worker is not None else SETTLE_SECONDS


def restart_stamps(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the restart annotations of an owner. They count as part of a template that has no annotations."""
    return {key: annotations[key] for key in RESTARTS if key in annotations}


def _canonical(value: Any, *, only: frozenset[str] | None = None) -> Any:
    """Return a value without defaults, so that neither spelling one out nor a new field changes the hash."""
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    quantities = _QUANTITIES.get(type(value), ())
    canonical = {}
    for field in _fields(type(value)):
        if only is not None and field.name not in only:
            continue
        own = getattr(value, field.name)
        if own == field.default or own is None:
            continue
        form = str(nanos(own)) if field.name in quantities else _canonical(own)
        # An empty `resources` means the same as an absent one.
        if form not in ({}, []):
            canonical[field.encode_name] = form
    return canonical


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(type_)


def nanos(quantity: int | str) -> int:
    """Return a quantity in billionths."""
    return parse_quantity(str(quantity)).nanos


class Size(NamedTuple):
    """The CPU, memory and storage of an instance in a budget. None: not counted."""

    cpu_nanos: int | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None

    def hash(self) -> str:
        """Return the name of this size in a quota's ledger."""
        return blake2b("/".join(map(str, self)).encode(), digest_size=HASH_BYTES).hexdigest()


UNSAID = Size()
DEFAULT = Size(UNIT_NANOS, 1 << 30)
"""The share and limit in a budget of a container without resources: 1 CPU and 1 GiB."""


class UnknownInstanceTypeError(LookupError):
    """The instance type that decides an instance's size does not exist."""


def size(template: InstanceTemplate, types: Mapping[str, InstanceType], default: Size = UNSAID) -> Size:
    """Return the size of an instance: the sum of its containers' `shares`; None where one has no share."""
    storage = None if template.storage is None else _bytes(template.storage.size)
    every = shares(template, types, default)
    return Size(_sum([one.cpu_nanos for one in every]), _sum([one.memory_bytes for one in every]), storage)


def shares(template: InstanceTemplate, types: Mapping[str, InstanceType], default: Size = UNSAID) -> list[Size]:
    """Return the share of CPU and memory of each container: its limit, else its request, else a part of the instance's.

    The requests of the instance, or of its type, minus the shares of containers with resources, are divided evenly
    among the containers without. Without such requests, or if nothing is left, a share is the default.
    """
    said = zip(*(_shared(template, types, name) for name in ("cpu", "memory")), strict=True)
    return [Size(cpu or default.cpu_nanos, memory or default.memory_bytes) for cpu, memory in said]


def _shared(template: InstanceTemplate, types: Mapping[str, InstanceType], name: str) -> list[int | None]:
    own = [_own(container.resources, name) for container in template.containers]
    unsaid = own.count(None)
    if not unsaid or (whole := _whole(template, types, name)) is None:
        return own
    left = whole - sum(one or 0 for one in own)
    each, more = divmod(max(left, 0), unsaid)
    parts = iter([each + (at < more) or None for at in range(unsaid)])
    return [next(parts) if one is None else one for one in own]


def _own(resources: Resources | None, name: str) -> int | None:
    """Return a container's own share: its limit, else its request."""
    for amounts in (resources.limits, resources.requests) if resources is not None else ():
        if amounts is not None and getattr(amounts, name) is not None:
            return _amount(getattr(amounts, name), name)
    return None


def _whole(template: InstanceTemplate, types: Mapping[str, InstanceType], name: str) -> int | None:
    """Return the requests of an instance as a whole. A resource that it does not request is that of its type."""
    asked = getattr(template.requests, name) if template.requests is not None else None
    if asked is not None or template.instance_type is None:
        return None if asked is None else _amount(asked, name)
    type_ = types.get(template.instance_type)
    if type_ is None:
        raise UnknownInstanceTypeError(f'instance type "{template.instance_type}" not found')
    return _amount(getattr(type_.spec, name), name)


def _amount(quantity: int | str, name: str) -> int | None:
    """Return an amount; None for 0, which counts as unset."""
    if name == "memory":
        return _bytes(quantity) or None
    return max(nanos(quantity), CPU_NANOS_MIN) if nanos(quantity) else None


def _sum(parts: list[int | None]) -> int | None:
    return None if None in parts else sum(one or 0 for one in parts)


def _bytes(quantity: int | str) -> int:
    # A part of a byte counts as one.
    return -(-nanos(quantity) // UNIT_NANOS)
