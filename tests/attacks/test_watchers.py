"""Goal: stop the server with watches, by what each of them keeps or does for each change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota.api import ConfigMap
from rota.registry import ApiError, reading, selectors
from rota.registry.selectors import Selection
from rota.server import forms
from rota.server.media import Wanted
from rota.server.routing import Route
from rota.store import Event

WATCHES = 50
VALUES_MAX = 256


def _changed(labels: dict[str, str], before: dict[str, str]) -> Event:
    def value(revision: int, labels: dict[str, str]) -> bytes:
        meta = {"name": "big", "namespace": "alice", "resourceVersion": str(revision), "labels": labels}
        return msgspec.json.encode(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "x" * 999}}
        )

    return Event(2, "configmaps/alice/big", value(2, labels), False, value(1, before), 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Count the calls of a function of a module."""

    def count(module: Any, name: str) -> list[Any]:
        calls: list[Any] = []
        called = getattr(module, name)

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(args)
            return called(*args, **options)

        monkeypatch.setattr(module, name, counting)
        return calls

    return count


@pytest.mark.parametrize("operator", ["in", "notin"])
def test_a_watch_keeps_no_thousands_of_values(operator: str) -> None:
    """A viewer keeps a megabyte with each of its watches, which counts for nobody."""
    with pytest.raises(ApiError, match="values"):
        Selection(ConfigMap.api, f"a {operator} ({','.join(map(str, range(VALUES_MAX + 1)))})")
    halves = ",".join(f"k{i} in ({','.join(map(str, range(VALUES_MAX // 4)))})" for i in range(5))
    with pytest.raises(ApiError, match="values"):
        Selection(ConfigMap.api, halves)


def test_an_object_is_read_once_for_all_watches_with_labels(counted: Callable[[Any, str], list[Any]]) -> None:
    """A deployer changes a large object, which thousands of its watches then read one after the other."""
    read = counted(selectors, "_decode_labels")
    event = _changed({"a": "1"}, {"a": "2"})
    for i in range(WATCHES):
        (seen,) = reading.selected([event], Selection(ConfigMap.api, f"a,k{i}!=x"))
        assert seen.type == "MODIFIED"
    assert len(read) == 2, "as it is, and as it was"


def test_an_object_is_read_once_for_all_watches_with_fields(counted: Callable[[Any, str], list[Any]]) -> None:
    read = counted(msgspec.json, "decode")
    event = _changed({}, {})
    for i in range(WATCHES):
        assert reading.selected([event], Selection(ConfigMap.api, "", f"metadata.name!=n{i},metadata.namespace=alice"))
    assert len(read) == 2, "as it is, and as it was"


def test_what_leaves_a_selection_is_written_once_for_all(counted: Callable[[Any, str], list[Any]]) -> None:
    written = counted(reading, "_at_revision")
    event = _changed({}, {"a": "1"})
    for _ in range(WATCHES):
        (seen,) = reading.selected([event], Selection(ConfigMap.api, "a=1"))
        assert seen.type == "DELETED" and msgspec.json.decode(seen.object)["metadata"]["resourceVersion"] == "2"
    assert len(written) == 1


@pytest.mark.parametrize("form", ["table", "metadata"])
def test_a_short_form_is_made_once_for_all(
    form: Any, counted: Callable[[Any, str], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.5)
    made = counted(forms, "_line")
    event = _changed({}, {})
    where = Route(ConfigMap.api, "alice", "", "")
    lines = {
        forms.events(where, reading.selected([event], Selection(ConfigMap.api)), Wanted(form), headed=False)
        for _ in range(WATCHES)
    }
    assert len(lines) == 1 and b"big" in lines.pop()
    assert len(made) == 1
