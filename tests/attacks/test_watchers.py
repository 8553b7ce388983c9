"""Goal: stop the server with watches, by what each of them keeps or does for each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota.api import ConfigMap
from rota.client import Client
from rota.registry import ApiError, ListOptions, Registry, pacing, reading, selectors
from rota.registry.selectors import Selection
from rota.server import forms
from rota.server.media import Wanted
from rota.server.routing import Route
from rota.store import Event, MemoryStore

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
    made = counted(forms, "_event_line")
    event = _changed({}, {})
    where = Route(ConfigMap.api, "alice", "", "")
    lines = {
        forms.events(where, reading.selected([event], Selection(ConfigMap.api)), Wanted(form), headed=False)
        for _ in range(WATCHES)
    }
    assert len(lines) == 1 and b"big" in lines.pop()
    assert len(made) == 1


async def _steps(pace: pacing.Pace, order: list[int], number: int) -> None:
    async with pace:
        for _ in range(5):
            await pace()
            order.append(number)


async def test_long_lists_are_read_one_after_the_other_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer asks for a selection of large objects many times at once: all were read before others came."""
    monkeypatch.setattr(pacing, "FREE_SECONDS", -1.0)
    monkeypatch.setattr(pacing, "SLICE_SECONDS", -1.0)
    order: list[int] = []
    tasks = [asyncio.create_task(_steps(pacing.Pace(), order, number)) for number in range(10)]
    most = 0
    async with asyncio.timeout(20):
        while not all(task.done() for task in tasks):
            before = len(order)
            await asyncio.sleep(0)
            most = max(most, len(order) - before)
    assert most <= 2, "in one turn of the loop there is one step of all of them, and the first of the next"
    assert order == sorted(order), "whoever has begun is over soon, and waits for nobody"


@pytest.mark.parametrize("options", [ListOptions(label_selector="a"), ListOptions(label_selector="a", limit=3)])
async def test_a_selective_list_gives_way(options: ListOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FREE_SECONDS", -1.0)
    monkeypatch.setattr(pacing, "SLICE_SECONDS", -1.0)
    registry = Registry(MemoryStore())
    client = Client.local(registry, manager="test")
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    for i in range(20):
        meta = {"name": f"m{i}", "namespace": "default", "labels": {"b": "c"}}
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    task = asyncio.create_task(registry.list(ConfigMap.api, "default", options))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20 and not task.result().items
    rows = asyncio.create_task(
        forms.whole_list(
            Route(ConfigMap.api, "default", "", ""),
            await registry.list(ConfigMap.api, "default", ListOptions()),
            Wanted("table"),
        )
    )
    turns = 0
    while not rows.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20 and len(msgspec.json.decode(rows.result())["rows"]) == 20
    await client.close()
