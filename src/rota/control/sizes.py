"""The size of an instance, with its instance type resolved."""

from __future__ import annotations

import msgspec

from rota.api import InstanceType
from rota.api.instance import InstanceTemplate
from rota.control.instances import Size, size
from rota.control.instances.template import DEFAULT, UNSAID, UnknownInstanceTypeError, shares
from rota.engine.objects import Objects, get


def size_of(objects: Objects, template: InstanceTemplate) -> Size:
    """Return the size of an instance. A resource that neither it nor its type sets is None."""
    return _sized(objects, template, UNSAID)


def counted_of(objects: Objects, template: InstanceTemplate) -> Size:
    """Return the size that a budget counts: a container without resources has the default."""
    return _sized(objects, template, DEFAULT)


def share_of(objects: Objects, template: InstanceTemplate, container: str) -> Size:
    """Return the share of one container in the size that a budget counts."""
    types = _types(objects, template)
    if not types:  # A type that does not exist has no resources.
        template = msgspec.structs.replace(template, instance_type=None)
    every = shares(template, types, DEFAULT)
    return next(one for each, one in zip(template.containers, every, strict=True) if each.name == container)


def _sized(objects: Objects, template: InstanceTemplate, default: Size) -> Size:
    try:
        return size(template, _types(objects, template), default)
    except UnknownInstanceTypeError:
        return Size()  # The instance waits for its type.


def _types(objects: Objects, template: InstanceTemplate) -> dict[str, InstanceType]:
    name = template.instance_type
    type_ = get(objects, InstanceType, name) if name is not None else None
    return {name: type_} if name is not None and type_ is not None else {}
