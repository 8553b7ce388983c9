"""What a template is worth: its hash, by which instances are told to be of it or not, and its size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from rota.api import InstanceType
from rota.api.cel.quantity import parse_quantity
from rota.api.instance import FunctionTemplate, InstanceTemplate, Storage
from rota.api.parts import Amounts, Limits

HASH_BYTES = 8
SETTLE_SECONDS = 0.5
"""For how long a process must have been up before it counts, in a rollout, as one that stays up."""
RESTARTED = "rota.dev/restarted-at"
TEMPLATE_RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""The same in a template, where Rota's own names are not for people to set."""
RESTARTS = (RESTARTED, TEMPLATE_RESTARTED)
"""Annotations that mean nothing but: run it anew."""
UNIT_NANOS = 1_000_000_000
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


class UnknownInstanceTypeError(LookupError):
    """The size of an instance rests on an instance type that is not there."""


def size(template: InstanceTemplate, types: Mapping[str, InstanceType]) -> Size:
    """The size of an instance: its containers' limits if all set both, else its requests, else its instance type.

    What requests leave open is taken from the instance type: half a request must not make the other half free.
    """
    storage = None if template.storage is None else _bytes(template.storage.size)
    return _computing(template, types)._replace(storage_bytes=storage)


def _computing(template: InstanceTemplate, types: Mapping[str, InstanceType]) -> Size:
    limits = [container.resources.limits if container.resources else None for container in template.containers]
    if all(one is not None and one.cpu is not None and one.memory is not None for one in limits):
        sizes = [_size_of(one) for one in limits if one is not None]
        return Size(sum(one.cpu_nanos or 0 for one in sizes), sum(one.memory_bytes or 0 for one in sizes))
    asked = _size_of(template.requests) if template.requests is not None else Size()
    if None not in asked[:2] or template.instance_type is None:
        return asked
    type_ = types.get(template.instance_type)
    if type_ is None:
        raise UnknownInstanceTypeError(f'instance type "{template.instance_type}" not found')
    named = _size_of(Amounts(cpu=type_.spec.cpu, memory=type_.spec.memory))
    return Size(*(named[at] if one is None else one for at, one in enumerate(asked[:2])))


def _size_of(amounts: Amounts) -> Size:
    return Size(
        None if amounts.cpu is None else nanos(amounts.cpu),
        None if amounts.memory is None else _bytes(amounts.memory),
    )


def _bytes(quantity: int | str) -> int:
    # Part of a byte is a byte.
    return -(-nanos(quantity) // UNIT_NANOS)
