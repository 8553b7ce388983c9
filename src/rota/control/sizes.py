"""How much of a budget an instance takes."""

from __future__ import annotations

from rota.api import InstanceType
from rota.api.instance import InstanceTemplate
from rota.control.instances import Size, size
from rota.control.instances.template import UnknownInstanceTypeError
from rota.engine.objects import Objects, get


def size_of(objects: Objects, template: InstanceTemplate) -> Size:
    """Return the size of an instance; of one whose type is not there, nothing: it waits for that."""
    name = template.instance_type
    type_ = get(objects, InstanceType, name) if name is not None else None
    try:
        return size(template, {name: type_} if name is not None and type_ is not None else {})
    except UnknownInstanceTypeError:
        return Size()
