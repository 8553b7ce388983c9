"""Fields that no kind has: refused, reported or dropped, as the request asks for."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.registry.options import FieldValidation
from tests.examples import examples
from tests.kubernetes.comparison import Both

CUSTOM = [kind for kind in KINDS.values() if kind.custom]
VALIDATIONS: tuple[FieldValidation, ...] = ("Strict", "Warn", "Ignore")


def add_strays(obj: dict[str, Any]) -> None:
    """Give an object fields that it does not have, at every level that is a struct."""
    obj["stray"] = {"deep": 1}
    obj["metadata"]["stray"] = "a"
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "stray": True},
    ]
    obj["spec"]["stray"] = None
    obj["spec"]["apiVersion"] = "v1"
    obj["status"] = {"stray": [1], "conditions": [{"type": "Ready", "status": "True", "stray": 1}]}


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.name)
async def test_fields_of_new_objects(both: Both, kind: Kind, validation: FieldValidation) -> None:
    for obj in examples(kind.name):
        add_strays(obj)
        await both.create("strays", obj, validation=validation)


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_fields_of_changed_objects(both: Both, validation: FieldValidation, subresource: str) -> None:
    kind = KINDS["Quota"]
    (least, *_) = examples(kind.name)
    await both.create("example", least, dry_run=False)
    await both.update("strays", kind, "example", add_strays, validation=validation, subresource=subresource)


@pytest.mark.parametrize("validation", VALIDATIONS)
async def test_an_unknown_field_beside_a_problem(both: Both, validation: FieldValidation) -> None:
    obj = examples("Quota")[1]
    add_strays(obj)
    obj["spec"]["hard"]["instances"] = -1
    await both.create("strays and a problem", obj, validation=validation)
