"""Fields that make no sense by themselves: each is refused, with its path, and its neighbours are taken."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS
from rota.api.form import form
from tests.examples import example
from tests.refusals import REFUSED, TAKEN


def fields(kind: str, spec: dict[str, Any]) -> list[str]:
    """The fields that are refused, without `spec.`."""
    shape, obj = form(KINDS[kind]), example(kind, spec)
    _, found = shape.conform(obj)
    return [problem.field.removeprefix("spec.") for problem in shape.break_rules(obj, None, found)]


@pytest.mark.parametrize(("kind", "spec", "field"), REFUSED)
def test_what_makes_no_sense_is_refused_and_nothing_beside_it(kind: str, spec: dict[str, Any], field: str) -> None:
    assert fields(kind, spec) == [field]


@pytest.mark.parametrize(("kind", "spec"), TAKEN)
def test_what_makes_sense_is_taken(kind: str, spec: dict[str, Any]) -> None:
    assert fields(kind, spec) == []
