"""Every field that people may set does something, or it is said that it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rota.api import KINDS, Function, Task, WorkerPool
from rota.api.model import Model
from rota.control.unhonoured import unhonoured

ACTING = ("control", "pools", "runtime", "server", "cli")
"""The packages that carry objects out."""
FOR_PEOPLE = {
    ("LocationSpec", "city_code"): "what others name it by",
    ("LocationSpec", "display_name"): "shown",
    ("LocationSpec", "region"): "shown",
    ("LocationSpec", "latitude"): "shown",
    ("LocationSpec", "longitude"): "shown",
}
"""Fields that nothing has to read: people do."""
BY_ADMISSION = {
    ("Egress", "cidr"): "read with the host that it is instead of (rota.api.egress)",
    ("InstanceTypeSpec", "state"): "a disabled one keeps whatever names it from being ready (rota.api.cell)",
}
"""Fields that decide something in rota.api."""
TOLD = {
    ("WorkerConfig", "pod_overrides"): {"worker": {"podOverrides": {"a": 1}}},
    ("WorkerConfig", "image"): {"worker": {"image": "a:1"}},
    ("InstanceTemplate", "instance_type"): {"template": {"instanceType": "a", "containers": [{"name": "a"}]}},
    ("InstanceTemplate", "requests"): {"template": {"requests": {"cpu": 1}, "containers": [{"name": "a"}]}},
    ("Container", "image"): {"template": {"containers": [{"name": "a", "image": "a:1"}]}},
    ("Resources", "requests"): {"worker": {"resources": {"requests": {"cpu": 1}}}},
}
"""Fields of which the condition Honoured says that they change nothing, each in a pool that sets it."""


def models(found: Any) -> Iterator[type[Model]]:
    """The models that a type is made of, at its top."""
    kinds = msgspec.inspect
    match found:
        case kinds.Metadata():
            yield from models(found.type)
        case kinds.UnionType():
            for one in found.types:
                yield from models(one)
        case kinds.ListType():
            yield from models(found.item_type)
        case kinds.DictType():
            yield from models(found.value_type)
        case kinds.StructType():
            yield cast("type[Model]", found.cls)


def walk(model: type[Model], path: str, seen: set[type[Model]]) -> Iterator[tuple[type[Model], str, str]]:
    if model in seen:
        return
    seen.add(model)
    for field in msgspec.inspect.type_info(model).fields:  # type: ignore[attr-defined]
        yield model, field.name, f"{path}.{field.encode_name}"
        for below in models(field.type):
            yield from walk(below, f"{path}.{field.encode_name}", seen)


@cache
def fields() -> dict[tuple[str, str], str]:
    """The fields of all specs that are carried out: model and name, and one place where it is written."""
    found: dict[tuple[str, str], str] = {}
    for kind in KINDS.values():
        if kind.custom:
            [spec] = [one for one in msgspec.inspect.type_info(kind.type).fields if one.name == "spec"]  # type: ignore[attr-defined]
            for top in models(spec.type):
                for model, name, path in walk(top, f"{kind.name}: spec", set()):
                    found.setdefault((model.__name__, name), path)
    return found


@cache
def read() -> frozenset[str]:
    """The attributes that are read where objects are carried out. What is only told of is not honoured."""
    top = Path(__file__).parents[2] / "src" / "rota"
    found: set[str] = set()
    for package in ACTING:
        for file in (top / package).rglob("*.py"):
            if file.name != "unhonoured.py":
                nodes = ast.walk(ast.parse(file.read_text()))
                found |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)}
    return frozenset(found)


def test_every_field_is_read_or_it_is_told_that_it_changes_nothing() -> None:
    excused = {*TOLD, *FOR_PEOPLE, *BY_ADMISSION}
    unread = {path for field, path in fields().items() if field not in excused and field[1] not in read()}
    assert not unread, "honour these, refuse them, or tell of them in rota.control.unhonoured"


def test_what_is_excused_is_there() -> None:
    assert {*TOLD, *FOR_PEOPLE, *BY_ADMISSION} <= set(fields())


@pytest.mark.parametrize("field", TOLD, ids=".".join)
def test_a_pool_is_told_of_what_changes_nothing(field: tuple[str, str]) -> None:
    spec = msgspec.convert(TOLD[field], type(pool({"worker": {}}).spec))
    [told] = unhonoured(msgspec.structs.replace(pool({"worker": {}}), spec=spec))
    wire = msgspec.structs.fields(_model(field[0]))
    name = next(one.encode_name for one in wire if one.name == field[1])
    assert f"{name} changes nothing here" in told


def test_tasks_and_functions_are_told_likewise() -> None:
    worker = {"image": "a:1", "podOverrides": {"a": 1}, "resources": {"requests": {"cpu": 1}}}
    meta = {"name": "a"}
    task = msgspec.convert({"metadata": meta, "spec": {"command": ["a"], "worker": worker}}, Task)
    assert [one.partition(" ")[0] for one in unhonoured(task)] == [
        "spec.worker.image",
        "spec.worker.resources.requests",
        "spec.worker.podOverrides",
    ]
    source = {"entrypoint": "a:b", "source": {"inline": "x"}, "resources": worker["resources"]}
    function = msgspec.convert({"metadata": meta, "spec": source}, Function)
    assert [one.partition(" ")[0] for one in unhonoured(function)] == ["spec.resources.requests"]


def test_what_is_honoured_is_not_told_of() -> None:
    image = {"runtime": "container", "containers": [{"name": "a", "image": "a:1"}]}
    assert not unhonoured(pool({"template": image}))
    assert not unhonoured(pool({"worker": {"resources": {"limits": {"cpu": 1}}}}))


def pool(spec: dict[str, Any]) -> WorkerPool:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, WorkerPool)


def _model(name: str) -> type[Model]:
    seen: set[type[Model]] = set()
    for kind in KINDS.values():
        if kind.custom:
            list(walk(kind.type, "", seen))
    return next(one for one in seen if one.__name__ == name)
