"""JSON merge patch, RFC 7386."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.registry.patches import merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # Appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # Section 3
        (
            {
                "title": "Goodbye!",
                "author": {"givenName": "John", "familyName": "Doe"},
                "tags": ["example", "sample"],
                "content": "This will be unchanged",
            },
            {
                "title": "Hello!",
                "phoneNumber": "+01-123-456-7890",
                "author": {"familyName": None},
                "tags": ["example"],
            },
            {
                "title": "Hello!",
                "author": {"givenName": "John"},
                "tags": ["example"],
                "content": "This will be unchanged",
                "phoneNumber": "+01-123-456-7890",
            },
        ),
    ],
)
def test_the_examples_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    inputs = copy.deepcopy((target, patch))
    assert merge_patch(target, patch) == result
    assert (target, patch) == inputs


def test_values_inside_arrays_are_taken_as_they_are() -> None:
    assert merge_patch({}, {"a": [None, {"b": None}]}) == {"a": [None, {"b": None}]}
