"""The quick check and the thorough walk come to the same verdict, and to the same object."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.api import KINDS
from rota.api.form import form
from tests.amount import amount
from tests.corpus import Corpus
from tests.examples import examples
from tests.random_objects import objects

Object = dict[str, Any]
CORPUS = Corpus()
RANDOM_OBJECTS = st.sampled_from(sorted(KINDS)).flatmap(lambda name: objects(KINDS[name]))


def encoded(obj: Object) -> bytes:
    """The object as it is stored, where 7.0 is not 7. Only the order of its fields does not count."""
    return msgspec.json.encode(obj, order="deterministic")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_variant_of_the_examples_conforms_as_the_walk_says(kind: str) -> None:
    shape = form(KINDS[kind])
    for example in examples(kind):
        for part in example.keys() - {"apiVersion", "kind", "metadata"}:
            for what, obj in CORPUS.variants(shape.schema, example, part):
                walked = copy.deepcopy(obj)
                assert shape.conform(obj) == shape.walk(walked), what
                assert encoded(obj) == encoded(walked), what


@settings(max_examples=amount(80, 500), deadline=None, suppress_health_check=list(HealthCheck))
@given(RANDOM_OBJECTS)
def test_random_objects_conform_as_the_walk_says(obj: Object) -> None:
    shape = form(KINDS[obj["kind"]])
    walked = copy.deepcopy(obj)
    assert shape.conform(obj) == shape.walk(walked)
    assert encoded(obj) == encoded(walked)


@settings(max_examples=amount(40, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(RANDOM_OBJECTS.filter(lambda obj: KINDS[obj["kind"]].has_status and obj.get("status") is not None))
def test_a_random_status_conforms_as_the_walk_says(obj: Object) -> None:
    shape = form(KINDS[obj["kind"]])
    walked = copy.deepcopy(obj)
    assert shape.conform_status(obj) == shape.walk_status(walked)
    assert encoded(obj) == encoded(walked)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_examples_are_plainly_right(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = form(KINDS[kind])
    monkeypatch.setattr(type(shape), "walk", lambda self, obj: pytest.fail("it took the thorough walk"))
    for obj in examples(kind):
        assert shape.conform(obj) == ([], [])


@settings(max_examples=amount(40, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(RANDOM_OBJECTS)
def test_what_conforms_can_be_read_and_conforms_again(obj: Object) -> None:
    kind = KINDS[obj["kind"]]
    if form(kind).conform(obj) == ([], []):
        msgspec.convert(obj, kind.type)
        again = copy.deepcopy(obj)
        assert form(kind).conform(again) == ([], [])
        assert encoded(again) == encoded(obj)


@settings(max_examples=amount(80, 500), deadline=None, suppress_health_check=list(HealthCheck))
@given(RANDOM_OBJECTS)
def test_whatever_is_wrong_with_an_object_its_rules_and_checks_can_be_judged(obj: Object) -> None:
    shape = form(KINDS[obj["kind"]])
    _, found = shape.conform(obj)
    judged = shape.break_rules(obj, None, found)
    assert {problem.field for problem in found} <= {problem.field for problem in judged}
