"""What a template is worth: its hash, by which instances are told to be of it or not, and its size."""

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
"""For how long a process must have been up before it counts, in a rollout, as one that stays up."""
RESTARTED = "rota.dev/restarted-at"
TEMPLATE_RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""The same in a template, where Rota's own names are not for people to set."""
RESTARTS = (RESTARTED, TEMPLATE_RESTARTED)
"""Annotations that mean nothing but: run it anew."""
UNIT_NANOS = 1_000_000_000
CPU_NANOS_MIN = 10_000_000
"""The least that a container counts for, and is held to: the kernel holds it to no less."""
_QUANTITIES: dict[type[Any], tuple[str, ...]] = {
    Amounts: ("cpu", "memory"),
    Limits: ("cpu", "memory"),
    Storage: ("size",),
}
_TEMPLATE_FIELDS = frozenset(FunctionTemplate.__struct_fields__)


def template_hash(
    template: InstanceTemplate, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> str:
    """The hash of what instances are made from. Equal for templates that mean the same, however they were written.

    Of an instance's spec it is the hash of the template that it was made from: what Rota adds does not count.
    """
    made_from = {
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "spec": _canonical(template, only=_TEMPLATE_FIELDS),
    }
    content = msgspec.json.encode({key: value for key, value in made_from.items() if value}, order="deterministic")
    return blake2b(content, digest_size=HASH_BYTES).hexdigest()


def settle_seconds(template: InstanceTemplate) -> float:
    """Return for how long a new instance is watched before it counts as one that stays up.

    One that says itself when it can be used is not watched.
    """
    probed = all(container.readiness_probe is not None for container in template.containers)
    return 0.0 if probed or template.worker is not None else SETTLE_SECONDS


def restart_stamps(annotations: Mapping[str, str]) -> dict[str, str]:
    """Of an owner's own annotations, those that belong into its template: the owner has no other place for them."""
    return {key: annotations[key] for key in RESTARTS if key in annotations}


def _canonical(value: Any, *, only: frozenset[str] | None = None) -> Any:
    """JSON without what is the default anyway, so that spelling it out, or a newer Rota's field, changes nothing."""
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
        # An empty `resources` says what an absent one says.
        if form not in ({}, []):
            canonical[field.encode_name] = form
    return canonical


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(type_)


def nanos(quantity: int | str) -> int:
    """An amount, in billionths."""
    return parse_quantity(str(quantity)).nanos


class Size(NamedTuple):
    """How much an instance takes of a budget, beside one instance. None: it is not counted."""

    cpu_nanos: int | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None

    def hash(self) -> str:
        """Equal for equal sizes: a grant is for one of these."""
        return blake2b("/".join(map(str, self)).encode(), digest_size=HASH_BYTES).hexdigest()


UNSAID = Size()
DEFAULT = Size(UNIT_NANOS, 1 << 30)
"""What a container that says nothing counts for in a budget, and is held to: 1 CPU and 1 GiB."""


class UnknownInstanceTypeError(LookupError):
    """The size of an instance rests on an instance type that is not there."""


def size(template: InstanceTemplate, types: Mapping[str, InstanceType], default: Size = UNSAID) -> Size:
    """The size of an instance: what its containers may use together, as far as that is said (`shares`)."""
    storage = None if template.storage is None else _bytes(template.storage.size)
    every = shares(template, types, default)
    return Size(_sum([one.cpu_nanos for one in every]), _sum([one.memory_bytes for one in every]), storage)


def shares(template: InstanceTemplate, types: Mapping[str, InstanceType], default: Size = UNSAID) -> list[Size]:
    """What each container may use of CPU and of memory: its limit, else its request, else a part of the instance's.

    What the instance asks for, itself or by its type, is shared out evenly among the containers that say nothing, after
    those that do. Where nothing says it, or nothing is left, it is the default.
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
    """What a container says itself. A limit is what it may use, whatever it requests."""
    for amounts in (resources.limits, resources.requests) if resources is not None else ():
        if amounts is not None and getattr(amounts, name) is not None:
            return _amount(getattr(amounts, name), name)
    return None


def _whole(template: InstanceTemplate, types: Mapping[str, InstanceType], name: str) -> int | None:
    """What an instance asks for as a whole: half a request does not make the other half free."""
    asked = getattr(template.requests, name) if template.requests is not None else None
    if asked is not None or template.instance_type is None:
        return None if asked is None else _amount(asked, name)
    type_ = types.get(template.instance_type)
    if type_ is None:
        raise UnknownInstanceTypeError(f'instance type "{template.instance_type}" not found')
    return _amount(getattr(type_.spec, name), name)


def _amount(quantity: int | str, name: str) -> int | None:
    """Return an amount of something; None for nothing, which is no size."""
    if name == "memory":
        return _bytes(quantity) or None
    return max(nanos(quantity), CPU_NANOS_MIN) if nanos(quantity) else None


def _sum(parts: list[int | None]) -> int | None:
    return None if None in parts else sum(one or 0 for one in parts)


def _bytes(quantity: int | str) -> int:
    # Part of a byte is a byte.
    return -(-nanos(quantity) // UNIT_NANOS)
