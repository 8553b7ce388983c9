"""Sizes of the server's tables: found by a survey, and told as a metric."""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from rota.api import Task
from rota.client.http import HttpBackend
from rota.server import tables as survey
from rota.server.tables import LOOKED_INTO_MAX, Tables
from tests.functions.town import Town, serving
from tests.soak.measure import tables

SLOW_SECONDS_MAX = 60.0


@pytest.fixture
def _modules_of_the_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the classes of this file for parts of the server."""
    monkeypatch.setattr(survey, "PACKAGE", "tests.server.test_tables")


class Part:
    def __init__(self) -> None:
        self._names = {"a", "b"}


class Whole:
    def __init__(self) -> None:
        self.part = Part()
        self._by_key: dict[str, list[int]] = {"x": [1, 2], "y": [3]}
        self.queue = deque([Part(), Part()])
        self.on_end = functools.partial(self._end, 1)
        self.itself = self
        hidden = Hidden()
        self.read = lambda: hidden

    def _end(self, number: int) -> None: ...


class Hidden:
    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found = [1, 2, 3]


@pytest.mark.usefixtures("_modules_of_the_survey")
async def test_tables_are_found_in_attributes_in_tables_and_behind_functions() -> None:
    found = Tables()
    found.add(Whole())
    sizes = found.sizes()
    assert sizes[".Whole.by_key"] == 2
    assert sizes[".Whole.by_key[]"] == 3
    assert sizes[".Whole.queue"] == 2
    assert sizes[".Part.names"] == 6
    assert sizes[".Hidden.found"] == 3


@pytest.mark.usefixtures("_modules_of_the_survey")
async def test_a_survey_looks_into_so_many_entries_of_a_table_and_counts_all() -> None:
    whole = Whole()
    whole._by_key = {str(number): [number] for number in range(10 * LOOKED_INTO_MAX)}
    found = Tables()
    found.add(whole)
    sizes = found.sizes()
    assert sizes[".Whole.by_key"] == 10 * LOOKED_INTO_MAX
    assert sizes[".Whole.by_key[]"] == LOOKED_INTO_MAX


async def test_a_slow_disk_does_not_keep_tasks_in_the_engine_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, scandir = threading.Event(), os.scandir

    def slow(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(os.fsdecode(path)).is_relative_to(tmp_path / "home" / "tasks"):
            go_on.wait(SLOW_SECONDS_MAX)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slow)
    async with serving(tmp_path / "home") as town:
        before = await _nodes(town)
        spec = {"command": ["true"], "workerPoolRef": {"name": "none"}}
        try:
            for number in range(50):
                body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": f"task-{number}"}}
                await town.client.create({**body, "spec": spec})
            await town.client.delete_collection(Task)

            async def forgotten() -> bool:
                # Beside them there is one for the Events of the namespace.
                return await _nodes(town) <= before + 1

            await town.until(forgotten)
        finally:
            go_on.set()


async def _nodes(town: Town) -> int:
    backend = HttpBackend.connect(home=town.home)
    try:
        return (await tables(backend)).get("engine.core.Core.nodes", 0)
    finally:
        await backend.close()
