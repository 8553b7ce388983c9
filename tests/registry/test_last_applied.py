"""The hand-over from client-side to server-side apply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.registry.apply import ApplyConflict, apply
from rota.registry.last_applied import ANNOTATION, ANNOTATIONS_BYTES_MAX
from rota.registry.managed import Entry, after_update
from tests.registry.field_nodes import API_VERSION, WIDGET, config, widget

NOW = "2024-01-01T00:00:01Z"


def client_side(spec: dict[str, Any], last: str | None = None) -> tuple[dict[str, Any], list[Entry]]:
    """An object as `kubectl apply` makes it."""
    text = json.dumps(config(spec)) if last is None else last
    live = widget(spec, annotations={ANNOTATION: text})
    kubectl = "kubectl-client-side-apply"
    managed = after_update([], None, live, WIDGET, manager=kubectl, api_version=API_VERSION, subresource="", now=NOW)
    return live, managed


def server_side(
    live: dict[str, Any], managed: list[Entry], spec: dict[str, Any], manager: str = "kubectl", **meta: Any
) -> tuple[dict[str, Any], list[Entry]]:
    return apply(
        live,
        config(spec, **meta),
        managed,
        WIDGET,
        manager=manager,
        api_version=API_VERSION,
        subresource="",
        force=False,
        now=NOW,
    )


def test_what_client_side_apply_set_last_is_no_conflict() -> None:
    live, managed = client_side({"replicas": 1, "image": "i"})
    new, after = server_side(live, managed, {"replicas": 2})
    assert new["spec"] == {"replicas": 2, "image": "i"}
    assert [each["manager"] for each in after] == ["kubectl", "kubectl-client-side-apply"]


def test_the_annotation_follows_so_that_one_may_go_back() -> None:
    live, managed = client_side({"replicas": 1})
    annotations = {"a": "b", **live["metadata"]["annotations"]}
    new, _ = server_side(live, managed, {"replicas": 2, "image": "<&>"}, annotations=annotations)
    expected = (
        f'{{"apiVersion":"{API_VERSION}","kind":"Widget","metadata":{{"annotations":{{"a":"b"}},"name":"w","namespace":"d"}},'
        '"spec":{"image":"\\u003c\\u0026\\u003e","replicas":2}}\n'
    )
    assert new["metadata"]["annotations"][ANNOTATION] == expected


def test_a_second_apply_of_the_same_changes_nothing() -> None:
    live, managed = server_side(*client_side({"replicas": 1}), {"replicas": 2})
    new, after = server_side(live, managed, {"replicas": 2})
    assert new is live
    assert after == managed


def test_an_annotation_too_large_is_dropped() -> None:
    live, managed = client_side({"replicas": 1})
    new, _ = server_side(live, managed, {"args": ["x" * ANNOTATIONS_BYTES_MAX]})
    assert new["metadata"]["annotations"] == {}


def test_an_object_without_the_annotation_gets_none() -> None:
    new, _ = server_side(widget({"replicas": 1}), [], {"replicas": 1})
    assert "annotations" not in new["metadata"]


def test_what_others_changed_since_is_a_conflict() -> None:
    live, managed = client_side({"replicas": 1, "image": "i"})
    edited = widget({"replicas": 5, "image": "i"}, annotations=live["metadata"]["annotations"])
    managed = after_update(
        managed, live, edited, WIDGET, manager="editor", api_version=API_VERSION, subresource="", now=NOW
    )
    with pytest.raises(ApplyConflict) as raised:
        server_side(edited, managed, {"replicas": 2, "image": "j"})
    assert [each.path for each in raised.value.conflicts] == [".spec.replicas"]


@pytest.mark.parametrize(
    ("manager", "last"),
    [
        pytest.param("someone", None, id="another manager"),
        pytest.param("kubectl", "", id="no annotation"),
        pytest.param("kubectl", "{", id="an unreadable annotation"),
        pytest.param("kubectl", "[]", id="an annotation that is no object"),
        pytest.param("kubectl", '{"apiVersion":"v0","spec":{"replicas":1}}', id="a configuration of another version"),
    ],
)
def test_otherwise_conflicts_stay(manager: str, last: str | None) -> None:
    live, managed = client_side({"replicas": 1}, last)
    with pytest.raises(ApplyConflict):
        server_side(live, managed, {"replicas": 2}, manager)
