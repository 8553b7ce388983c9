"""How much of a budget an instance takes."""

from __future__ import annotations

from rota.api import InstanceType
from rota.api.instance import InstanceTemplate
from rota.control.instances import Size, size
from rota.control.instances.template import UnknownInstanceTypeError, shares
from rota.engine.objects import Objects, get


def size_of(objects: Objects, template: InstanceTemplate) -> Size:
    """Return the size of an instance; of one whose type is not there, nothing: it waits for that."""
    try:
        return size(template, _types(objects, template))
    except UnknownInstanceTypeError:
        return Size()


def share_of(objects: Objects, template: InstanceTemplate, container: str) -> Size:
    """Return what one container of an instance counts for, as far as that is said."""
    try:
        every = shares(template, _types(objects, template))
    except UnknownInstanceTypeError:
        return Size()
    return next(one for each, one in zip(template.containers, every, strict=True) if each.name == container)


def _types(objects: Objects, template: InstanceTemplate) -> dict[str, InstanceType]:
    name = template.instance_type
    type_ = get(objects, InstanceType, name) if name is not None else None
    return {name: type_} if name is not None and type_ is not None else {}
